"""One run at each of several loads, and their summary."""
