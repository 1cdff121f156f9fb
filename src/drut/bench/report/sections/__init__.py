"""Each kind of file as notes, tables and plots, which Markdown and the page show alike."""
