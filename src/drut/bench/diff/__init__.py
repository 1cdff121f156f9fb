"""Compares two measurements of the same work: what became better or worse by more than chance."""
