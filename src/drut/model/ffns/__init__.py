"""Feed-forwards: how a layer transforms each position on its own. Each kind is one file."""
