"""From the records of requests to the figures that docs/metrics.md defines."""
