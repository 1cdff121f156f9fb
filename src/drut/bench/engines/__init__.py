"""Serving engines that a benchmark starts, watches and stops itself, and servers that run already."""
