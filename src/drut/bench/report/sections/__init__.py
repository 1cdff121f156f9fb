"""The sections of each kind of file: notes, tables and plots, for Markdown and the page."""
