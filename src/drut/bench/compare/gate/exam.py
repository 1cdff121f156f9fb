"""All requests of the gate to an engine, and its verdict on the answers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from drut.bench.compare.gate import schemas
from drut.bench.compare.gate.agreement import Encode, Reference, agreement
from drut.bench.compare.gate.ask import Asker, EngineAnswer, Question
from drut.bench.compare.gate.likelihood import ScoredText, ServedLikelihood, likelihood, texts
from drut.bench.compare.schema import GSM8K_LEAST, GateRecord
from drut.bench.workloads import gsm8k
from drut.bench.workloads.packed import read_jsonl
from drut.errors import RequestError

DOUBT = 0.05
LENGTH_TOKENS = 32


@dataclass(frozen=True)
class Paper:
    """The extent and the requirements of the gate. `full`: for real weights; otherwise only the lengths of answers are
    judged, and sums and schemas are skipped. `together`: requests at a time, if answers do not depend on it."""

    full: bool
    prompts: int
    tokens: int
    texts: int
    sums: int
    sum_tokens: int
    together: int
    least_agreement: float
    most_increase: float
    most_divergence: float
    most_sums_lost: float
    least_valid: float
    least_exact: float

    def greedy(self) -> list[Question]:
        """Returns the first questions of MT-Bench, each answered in at most `tokens` tokens."""
        rows: list[list[str]] = read_jsonl("mt-bench")
        return [Question(row[0], self.tokens) for row in rows[: self.prompts]]

    @property
    def most_tokens(self) -> int:
        """Returns the maximum of all tokens that an engine generates."""
        lengths = 2 * self.together * LENGTH_TOKENS
        more = self.sums * self.sum_tokens + len(schemas.questions()) * schemas.MAX_TOKENS
        return self.prompts * self.tokens + lengths + (more + self.texts if self.full else 0)


@dataclass(frozen=True)
class Answers:
    """The answers of an engine. `sums`: right or wrong, by question. `scores`: of the texts, empty if not supported."""

    greedy: list[EngineAnswer]
    lengths: list[EngineAnswer]
    sums: list[bool]
    schemas: list[EngineAnswer]
    scores: list[ScoredText] = field(default_factory=list)

    @property
    def prompt_tokens(self) -> int | None:
        """Returns the number of tokens of all greedy prompts by the engine; None if it does not report them."""
        counts = [answer.prompt_tokens for answer in self.greedy]
        return None if None in counts else sum(count or 0 for count in counts)


def examine(asker: Asker, paper: Paper) -> Answers:
    """Sends greedy prompts one by one, then everything else under load. Raises RequestError if the engine does not
    answer, or rejects a request that every engine accepts."""
    greedy = _taken(asker.ask(paper.greedy()))
    lengths = [Question(f"{i}. {question.text}", LENGTH_TOKENS, exact=True)
               for i, question in zip(range(2 * paper.together), _forever(paper.greedy()), strict=False)]
    exact = _taken(asker.ask(lengths, paper.together))
    if not paper.full:
        return Answers(greedy, exact, [], [])
    sums = [Question(text, paper.sum_tokens) for text in gsm8k.asked(paper.sums)]
    answers = _taken(asker.ask(sums, paper.together)) if sums else []
    return Answers(greedy, exact, [gsm8k.right(i, answer.text) for i, answer in enumerate(answers)],
                   asker.ask(schemas.questions()), asker.score(texts(paper.texts)))


def judge(paper: Paper, own: Answers, reference: Reference, base_sums: Sequence[bool], encode: Encode) -> GateRecord:
    """Judges the answers. `reference`: greedy answers to the same prompts, and scores of the texts. `base_sums`: the
    results that it may not be much worse than, if any."""
    agreed = agreement([answer.text for answer in own.greedy],
                       [reference.answers[question.text] for question in paper.greedy()], encode)
    scored = likelihood(own.scores, reference.scores)
    valid, judged = schemas.valid_share(own.schemas) if own.schemas else (None, 0)
    counts = [answer.tokens for answer in own.lengths if answer.tokens is not None]
    exact = fmean(tokens == LENGTH_TOKENS for tokens in counts) if counts else None
    telling = meaningful_sums(base_sums)
    reasons = []
    if exact is not None and exact < paper.least_exact:
        reasons.append(f"{exact:.0%} of answers have exactly the requested tokens, required are "
                       f"{paper.least_exact:.0%}")
    if paper.full and agreed.share < paper.least_agreement:
        reasons.append(f"its greedy answers agree with the reference's for {agreed.share:.0%} of their tokens, "
                       f"required are {paper.least_agreement:.0%}")
    reasons += _likelihood_reasons(paper, scored)
    if telling and worse(own.sums, base_sums, paper.most_sums_lost):
        reasons.append(f"it has {sum(own.sums)} of {len(own.sums)} sums right, and the base {sum(base_sums)}")
    if valid is not None and valid < paper.least_valid:
        reasons.append(f"{valid:.0%} of its structured answers are valid, required are {paper.least_valid:.0%}")
    figures = {"perplexity": scored is not None and scored.increase is not None,
               "divergence": scored is not None and scored.divergence is not None, "greedy answers": paper.full,
               "lengths": exact is not None, "GSM8K": telling and bool(own.sums), "schemas": valid is not None}
    asked = {"agreement": len(own.greedy), "lengths_exact": len(counts), "gsm8k": len(own.sums), "schema_valid": judged,
             "scored_tokens": 0 if scored is None else scored.tokens}
    return GateRecord(passed=not reasons, reasons=reasons, agreement=agreed.share,
                      gsm8k=fmean(own.sums) if own.sums else None, schema_valid=valid, lengths_exact=exact, asked=asked,
                      differs_at=agreed.differs_at, sums=own.sums,
                      perplexity=None if scored is None else scored.perplexity,
                      perplexity_increase=None if scored is None else scored.increase,
                      divergence=None if scored is None else scored.divergence,
                      judged_on=[name for name, was in figures.items() if was], scores_of=reference.scores_of)


def meaningful_sums(sums: Sequence[bool]) -> bool:
    """Returns whether a model has enough right answers to be distinguishable from guessing."""
    return bool(sums) and fmean(sums) > GSM8K_LEAST


def _likelihood_reasons(paper: Paper, scored: ServedLikelihood | None) -> Iterator[str]:
    if scored is None:
        return
    if scored.increase is not None and scored.increase > paper.most_increase:
        yield (f"its perplexity of {scored.perplexity:.4g} is {scored.increase:.0%} over the reference's, "
               f"the maximum is {paper.most_increase:.0%}")
    if scored.divergence is not None and scored.divergence > paper.most_divergence:
        yield (f"its next tokens diverge from the reference's by {scored.divergence:.3g} nats, "
               f"the maximum is {paper.most_divergence:.3g}")


def worse(own: Sequence[bool], base: Sequence[bool], most_lost: float) -> bool:
    """Returns whether `own` has more than `most_lost` fewer right answers, as a share, and not by chance: of the
    questions that exactly one of both answers rightly, each is equally likely to be either's if they are equally good
    (the sign test)."""
    lost = sum(b and not a for a, b in zip(own, base, strict=True))
    won = sum(a and not b for a, b in zip(own, base, strict=True))
    n = lost + won
    by_chance = sum(math.comb(n, k) for k in range(lost, n + 1)) / 2**n
    return bool(own) and (lost - won) / len(own) > most_lost and by_chance < DOUBT


def _taken(answers: list[EngineAnswer]) -> list[EngineAnswer]:
    for answer in answers:
        if answer.status != 200:
            raise RequestError(f"it answered {answer.status}: {answer.text[:200]}")
    return answers


def _forever(questions: list[Question]) -> Iterator[Question]:
    while True:
        yield from questions
