"""Drut beside other inference engines on one machine: the same token ids, interleaved, two threads each.

`python -m benchmarks.compare.peers` builds the engines, `python -m benchmarks.compare` measures,
`python -m benchmarks.compare.document` writes docs/benchmarks.md from what was measured.
"""
