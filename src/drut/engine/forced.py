"""Forced tokens: where a grammar leaves no choice, an answer's next tokens are known before they are computed.

They come as a prompt does, a chunk of rows of which only the last is sampled. The plain way draws each under a mask
that allows nothing else, and gives the same answer.
"""

from __future__ import annotations

from drut.engine.request import Request


def forced_run(request: Request) -> tuple[int, ...]:
    """What surely comes behind the tokens that are known or on their way, up to the limit of the answer.

    Nothing before the first token, which says that the prompt is computed; nothing where each token's logprob is asked
    for, since that takes a sample of each.
    """
    guide, params, first = request.guide, request.params, request.outputs
    if guide is None or params.logprobs is not None or len(request.tokens) == request.prompt_tokens:
        return ()
    run = guide.forced(first)[: max(0, request.limit - request.known)]
    held = run[: max(0, params.min_tokens - first)]  # where an end may not come the plain way has nothing to draw
    ends = [i for i, token in enumerate(held) if token in params.stop_token_ids]
    return run[: ends[0]] if ends else run
