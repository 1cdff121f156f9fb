"""Compares engines on the same work, in interleaved blocks, behind a quality gate."""
