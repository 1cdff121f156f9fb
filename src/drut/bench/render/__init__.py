"""What reports and summaries are made of: sections, and each as Markdown and as a page; tables, plots, words."""
