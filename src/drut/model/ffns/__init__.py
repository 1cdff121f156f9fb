"""Feed-forwards: the part of a layer that works on each position alone. Each kind is one file."""
