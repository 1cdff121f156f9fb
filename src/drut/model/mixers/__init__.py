"""Mixers: the part of a layer that mixes positions. Each kind is one file."""
