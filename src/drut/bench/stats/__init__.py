"""The statistics of a run: whether it was steady, intervals of its figures, and the percentiles it can support."""
