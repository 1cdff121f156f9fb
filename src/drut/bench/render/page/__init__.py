"""One HTML file that holds all of a report: no script, nothing fetched, every word of others escaped."""
