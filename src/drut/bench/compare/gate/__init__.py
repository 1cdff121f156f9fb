"""What an engine must show before its speed counts: the right tokens, as many as asked for, and what it was told to."""
