"""The result of one run: its figures with their intervals, and whether they may be quoted."""
