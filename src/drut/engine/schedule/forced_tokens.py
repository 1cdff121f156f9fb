"""Forced tokens: if a grammar leaves no alternative, the next tokens are known before they are computed.

Their rows are computed like a prompt, as one chunk; only the last row is sampled. The plain way samples each under a
grammar mask that allows one id, and gives the same output.
"""

from __future__ import annotations

from drut.engine.request.request import Request


def forced_run(request: Request) -> tuple[int, ...]:
    """Returns the forced tokens that follow the known tokens, up to the length limit.

    Empty before the first output token, which marks the end of prefill. Empty if logprobs are requested, since those
    take a sample of every token.
    """
    guide, params, first = request.guide, request.params, request.num_output_tokens
    if request.progress.verifying:
        return ()  # the index of the next token is unknown
    if guide is None or params.logprobs is not None or len(request.tokens) == request.prompt_tokens:
        return ()
    run = guide.forced(first)[: max(0, request.limit - request.known)]
    held = run[: max(0, params.min_tokens - first)]  # no end is allowed yet: the plain way has no id to draw
    ends = [i for i, token in enumerate(held) if token in params.stop_token_ids]
    return run[: ends[0]] if ends else run
