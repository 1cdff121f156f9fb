"""Serving engines that a benchmark starts, watches and stops, and servers that already run."""
