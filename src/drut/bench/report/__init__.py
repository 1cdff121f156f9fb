"""The results of a run: result.json, a CSV of its requests, a summary for people, and reports over several files."""
