"""Mixers: how a layer moves information between positions. Each kind is one file."""
