"""Measures how much load a server takes: saturation, knee, and the highest rate that holds the limits."""
