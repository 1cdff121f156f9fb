"""The quality gate: an engine must generate the right tokens, of the requested number and format, before its speed
counts."""
