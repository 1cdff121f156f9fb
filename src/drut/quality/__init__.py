"""Measures a model's quality against its own weights in float32 or another model: metrics, intervals, a gate."""
