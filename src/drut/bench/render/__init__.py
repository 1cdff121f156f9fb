"""The building blocks of reports and summaries: sections, their rendering as Markdown and as a page, tables, plots."""
