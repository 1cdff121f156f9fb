"""The maximum size of a reply, estimated from its request before anything is computed."""

from __future__ import annotations

from dataclasses import dataclass

from drut.server.stream.prepared_request import PreparedRequest

REPLY, CHOICE = 1000, 500  # bytes of the JSON around them
TEXT = 8  # bytes of a token's text; the mean of most vocabularies is 3 to 5
TOKEN_ID = 8
SCORE = {"text_completion": 44, "chat": 110}  # bytes of one of the likeliest tokens with its logprob
PLACE = {"text_completion": 60, "chat": 130}  # bytes of a token's own entry
PROMPT_SCORE = 90  # the same in `prompt_logprobs`


@dataclass(frozen=True)
class ReplySize:
    """The estimated size of a reply and its factors: choices, output tokens, and prompt tokens that it repeats."""

    choices: int
    answer_tokens: int  # maximum output tokens of a choice
    prompt_tokens: int  # repeated for each choice, over all prompts
    bytes: int
    scores: int  # likeliest tokens reported for each token; -1 for none
    field: str  # of the request: the error names it if the size is too large

    @classmethod
    def of(cls, job: PreparedRequest, room: int) -> ReplySize:
        """Estimates the reply of `job`. Of a stream only the prompt fields count: its output is sent as it comes."""
        params, form = job.params, job.operation
        top = (params.logprobs or 0) if job.logprobs else -1
        entry = PLACE[form] + (top + 1) * SCORE[form] if job.logprobs else 0
        ids = TOKEN_ID if job.return_token_ids else 0
        scored = PROMPT_SCORE * (1 + (params.prompt_logprobs or 0)) if job.prompt_logprobs else 0
        per_answer_token = TEXT + entry + ids
        per_prompt_token = ids + (entry if job.echo_scores else 0)
        once = 0  # bytes of a prompt token that is reported once, independent of n
        if form == "chat":
            once = scored
        else:
            per_prompt_token += scored
        size, longest, shown = REPLY, 0, 0
        for prompt in job.prompts:
            known = len(prompt.ids)
            answer = 0 if job.stream or job.scoring else min(params.max_tokens, max(0, room - known))
            choice = CHOICE + answer * per_answer_token + known * per_prompt_token + 2 * len(prompt.text)
            size += params.n * choice + known * once
            longest = max(longest, answer)
            shown += known if job.echo or scored or ids else 0
        scores = max(top, (params.prompt_logprobs or 0) if job.prompt_logprobs else -1)
        choices = len(job.prompts) * params.n
        field = ("logprobs" if job.logprobs else "prompt_logprobs" if job.prompt_logprobs
                 else "n" if choices > 1 else "max_tokens")
        return cls(choices, longest, shown, size, scores, field)
