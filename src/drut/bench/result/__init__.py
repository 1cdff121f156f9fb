"""What one run leaves behind: its figures with their intervals, and whether they may be quoted."""
