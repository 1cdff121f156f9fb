"""Times of a reply, with llama.cpp's names."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET

from drut.server.admission import RequestRecord
from drut.server.openai.protocol.replies import Timings


def timings(records: Sequence[RequestRecord]) -> Timings:
    """Returns the times of one reply, from one record per prompt. A choice's first token is computed with its prompt,
    so the decode time is divided by the tokens after it."""
    cached = sum(record.cached_tokens for record in records)
    computed = sum(record.prompt_tokens for record in records) - cached
    generated = sum(record.completion_tokens for record in records)
    behind = max(0, generated - sum(record.choices for record in records))
    prompt_s = max((record.prefill_s or 0.0 for record in records), default=0.0)
    generated_s = max((record.decode_s or 0.0 for record in records), default=0.0)
    drafted, accepted = sum(record.drafted for record in records), sum(record.accepted for record in records)
    return Timings(
        cache_n=cached, prompt_n=computed, prompt_ms=1e3 * prompt_s,
        prompt_per_token_ms=_over(1e3 * prompt_s, computed), prompt_per_second=_over(computed, prompt_s),
        predicted_n=generated, predicted_ms=1e3 * generated_s,
        predicted_per_token_ms=_over(1e3 * generated_s, behind), predicted_per_second=_over(behind, generated_s),
        draft_n=drafted or UNSET, draft_n_accepted=accepted if drafted else UNSET)


def _over(amount: float, by: float) -> float:
    return amount / by if by else 0.0
