"""Compares serving engines over HTTP: the settings behind docs/comparison.md, and the command that runs them."""
