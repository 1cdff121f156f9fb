"""What a run leaves behind: result.json, a CSV of its requests, a summary for people, and progress while it lasts."""
