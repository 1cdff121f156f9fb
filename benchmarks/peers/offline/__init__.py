"""Compares Drut with other inference engines in one process each: the same token ids, interleaved, two threads each.

`python -m benchmarks.peers.build` builds the engines, `python -m benchmarks.peers.offline` measures, `python -m
benchmarks.peers.offline.document` writes docs/benchmarks.md from the results.
"""
