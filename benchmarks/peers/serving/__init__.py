"""Serving engines beside each other over HTTP: the settings behind docs/comparison.md, and what takes them."""
