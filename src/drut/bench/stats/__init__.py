"""What a run may claim: whether it was steady, how far its figures may be off, which percentiles it can tell."""
