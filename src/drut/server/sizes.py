"""How large a reply may get, estimated from its request before anything is computed."""

from __future__ import annotations

from dataclasses import dataclass

from drut.server.job import Job

REPLY, CHOICE = 1000, 500  # bytes around them
TEXT = 8  # bytes of a token's text; of most vocabularies the mean is 3 to 5
TOKEN_ID = 8
SCORE = {"text_completion": 44, "chat": 110}  # bytes of one of the likeliest tokens with its logprob
PLACE = {"text_completion": 60, "chat": 130}  # bytes of a token's own entry
PROMPT_SCORE = 90  # the same in `prompt_logprobs`


@dataclass(frozen=True)
class ReplySize:
    """The factors of a reply's size: per choice the tokens of an answer and those of its prompt that it shows, with the
    bytes that each of them takes."""

    choices: int
    answer_tokens: int  # of the longest answer there may be
    prompt_tokens: int  # of all prompts, in each of their choices
    bytes: int
    scores: int  # likeliest tokens reported beside each token; -1 for none
    field: str  # of the request, to be named where that is too much

    @classmethod
    def of(cls, job: Job, room: int) -> ReplySize:
        """Of a stream only what it says at once counts: its answers go out as they come."""
        params, form = job.params, job.operation
        top = (params.logprobs or 0) if job.logprobs else -1
        entry = PLACE[form] + (top + 1) * SCORE[form] if job.logprobs else 0
        ids = TOKEN_ID if job.return_token_ids else 0
        scored = PROMPT_SCORE * (1 + (params.prompt_logprobs or 0)) if job.prompt_logprobs else 0
        per_answer_token = TEXT + entry + ids
        per_prompt_token = ids + (entry if job.echo_scores else 0)
        once = 0  # bytes of a prompt token that is shown once, whatever n is
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
