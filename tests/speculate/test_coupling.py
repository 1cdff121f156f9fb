"""A drafter that samples with the target's noise agrees with it far more often than one with noise of its own.

Both take the id with the largest logit / T + noise, and the noise of an id is the same. Then they agree with a
probability of at least (1 - d) / (1 + d), where d is the total variation distance of the two distributions, and at most
1 - d, which no method exceeds. Independent draws agree with the sum of p * q.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from drut.kernels.backend import Backend
from drut.kernels.native import library
from drut.kernels.numpy.sampling import kept_ids, sample
from drut.speculate.drafter import DraftSampling
from drut.speculate.eagle3 import sampled
from tests.kernels.rig import F32, Draw, Sampler, oracle

DRAWS = 4000
CASES = [(vocab, noise, settings)
         for vocab, noise in ((2, 0.5), (10, 0.1), (10, 1.0), (100, 0.3), (100, 3.0), (1000, 0.7), (1000, 0.05))
         for settings in ({"temperature": 1.0}, {"temperature": 0.6, "top_p": 0.9}, {"temperature": 1.4, "top_k": 8},
                          {"temperature": 1.0, "min_p": 0.05})]


@pytest.fixture(scope="module")
def backend() -> Iterator[Backend]:
    if library.load() is None:
        yield oracle()
        return
    from drut.kernels.native.backend import NativeBackend

    native = NativeBackend(1)
    yield native
    native.close()


def distribution(logits: F32, temperature: float, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0) -> np.ndarray:
    z = logits / np.float32(temperature)
    kept = kept_ids(z, top_k, top_p, min_p)
    weights = np.zeros(len(z))
    weights[kept] = np.exp(z[kept].astype(np.float64) - z.max())
    return weights / weights.sum()


@pytest.mark.parametrize(("vocab", "noise", "settings"), CASES, ids=str)
def test_the_bound_holds(backend: Backend, vocab: int, noise: float, settings: dict[str, float]) -> None:
    rng = np.random.default_rng([vocab, int(100 * noise)])
    target = 2 * rng.standard_normal((1, vocab)).astype(np.float32)
    drafter = target + noise * rng.standard_normal((1, vocab)).astype(np.float32)
    p, q = (distribution(logits[0], **settings) for logits in (target, drafter))  # type: ignore[arg-type]
    distance = 0.5 * np.abs(p - q).sum()
    draws = [Draw(seed=seed, **settings) for seed in range(DRAWS)]  # type: ignore[arg-type]
    own = [Draw(seed=seed + DRAWS, **settings) for seed in range(DRAWS)]  # type: ignore[arg-type]
    sampled = np.array(Sampler(backend, target, DRAWS).ids(draws))
    drafts = Sampler(backend, drafter, DRAWS)
    coupled, independent = (float((sampled == np.array(drafts.ids(with_))).mean()) for with_ in (draws, own))
    chance = 4 * 0.5 / DRAWS**0.5
    assert (1 - distance) / (1 + distance) - chance < coupled < 1 - distance + chance
    assert abs(independent - float((p * q).sum())) < chance
    assert coupled > independent - chance
    if distance < 0.3 and vocab > 2:
        assert coupled > independent + 0.1


@pytest.mark.parametrize("settings", [{"temperature": 1.0}, {"temperature": 0.6, "top_p": 0.9},
                                      {"temperature": 1.4, "top_k": 8}, {"temperature": 1.0, "min_p": 0.05}], ids=str)
def test_a_reduced_vocabulary_has_the_noise_of_its_tokens(settings: dict[str, float]) -> None:
    """It samples as the target would if all other tokens were impossible; of more ids than are looked at, if a filter
    keeps fewer."""
    rng = np.random.default_rng(0)
    for seed, vocab in enumerate((40, 40, 250, 250, *((2000,) * 3 if "top_k" in settings else ()))):
        ids = np.sort(rng.permutation(3 * vocab)[:vocab])
        logits = (3 * rng.standard_normal(vocab)).astype(np.float32)
        whole = np.full(3 * vocab, -np.inf, np.float32)
        whole[ids] = logits
        draw = Draw(seed=seed, choice=2, **settings)  # type: ignore[arg-type]
        wanted = sample(whole, temperature=draw.temperature, top_k=draw.top_k, top_p=draw.top_p, min_p=draw.min_p,
                        seed=seed, position=7, choice=2)
        assert sampled(logits, ids, DraftSampling(draw, seed, 2, lambda drafts: None), 7) == wanted
