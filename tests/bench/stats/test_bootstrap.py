"""The percentile of resampled blocks is that of the samples of the drawn blocks, one list, one percentile."""

from __future__ import annotations

import numpy as np

from drut.bench.stats.bootstrap import DRAWS, Resampling
from drut.bench.stats.distribution import percentile


def test_the_percentile_of_resampled_blocks_is_that_of_their_samples() -> None:
    blocks = [np.random.default_rng(9).exponential(1.0, n) for n in (3, 0, 8, 5, 1, 7, 2, 6, 4, 8, 0, 5)]
    draws = np.random.default_rng(0).integers(0, 12, (DRAWS, 12))
    naive = np.array([percentile(np.sort(np.concatenate([blocks[i] for i in draw])), 90) for draw in draws])
    resampling = Resampling(12)
    want = resampling.interval(percentile(np.sort(np.concatenate(blocks)), 90), naive)
    assert resampling.percentile(blocks, 90) == want
