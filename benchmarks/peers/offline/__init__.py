"""Drut beside other inference engines on one machine: the same token ids, interleaved, two threads each.

`python -m benchmarks.peers.build` builds the engines, `python -m benchmarks.peers.offline` measures,
`python -m benchmarks.peers.offline.document` writes docs/benchmarks.md from what was measured.
"""
