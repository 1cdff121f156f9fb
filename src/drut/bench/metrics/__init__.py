"""From the records of requests to the figures defined in docs/metrics.md."""
