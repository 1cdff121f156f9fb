"""Engines side by side on the same work, in interleaved blocks, behind a quality gate."""
