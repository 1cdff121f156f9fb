"""Chunks merged in any way give the same pieces, and logprobs never run ahead of the text they stand for."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from drut.engine.request.output import Chunk, Completion, Logprob
from drut.engine.request.params import FilledParams
from drut.model.tokenizer import StopChecker
from drut.server.stream.assembler import Assembler, LogprobEntry, TextPiece
from drut.server.stream.prepared_request import PreparedPrompt, PreparedRequest


class Bytes:
    """A vocabulary of the 256 bytes; 255 is special."""

    special_ids = frozenset((255,))
    stripped_spaces = 0

    def token_bytes(self, token_id: int) -> bytes:
        return bytes((token_id,))

    first_bytes = token_bytes


def job(prompts: int = 1, n: int = 1, **fields: object) -> PreparedRequest:
    params = FilledParams(n=n, logprobs=0, prompt_logprobs=0 if fields.get("echo") else None)
    return PreparedRequest("id", "m", "f", [PreparedPrompt([97, 98], "ab")] * prompts, params, logprobs=True,
                           echo_scores=bool(fields.get("echo")), **fields)  # type: ignore[arg-type]


def chunks(ids: list[int], stops: list[str], cuts: set[int], index: int = 0) -> list[Chunk]:
    """The chunks of an engine: text as it may be sent, ids as they are sampled, `cuts` between chunks."""
    checker, made, text, held = StopChecker(stops), [], "", []
    for i, token in enumerate(ids):
        new, stopped = checker.push(chr(token))
        text, held = text + new, [*held, token]
        if stopped or i == len(ids) - 1:
            text += "" if stopped else checker.flush()
            end = Completion(text=text, token_ids=ids, finish_reason="stop" if stopped else "length", prompt_tokens=2,
                             cached_tokens=0, completion_tokens=i + 1, seed=0, index=index, stop_reason=checker.matched)
            return [*made, Chunk(text, held, end, index, [scores(t) for t in held], text_lengths=[1] * len(held))]
        if i in cuts:
            made.append(Chunk(text, held, None, index, [scores(t) for t in held], text_lengths=[1] * len(held)))
            text, held = "", []
    raise AssertionError


def scores(token: int) -> dict[int, Logprob]:
    return {token: Logprob(-1.0, 1, chr(token))}


def whole(pieces: list[TextPiece]) -> tuple[str, list[int], list[LogprobEntry]]:
    entries = [LogprobEntry(token, offset, scores) for p in pieces
               for (token, scores), offset in zip(p.scores(), p.offsets(), strict=True)]
    return "".join(p.text for p in pieces), [i for p in pieces for i in p.ids], entries


ANSWERS = st.lists(st.sampled_from(list(b"abc")), min_size=1, max_size=12)
STOPS = st.lists(st.text("abc", min_size=1, max_size=3), max_size=2)


@settings(max_examples=200)
@given(ANSWERS, STOPS, st.sets(st.integers(0, 12)), st.sets(st.integers(0, 12)), st.booleans())
def test_any_cut_gives_the_same(ids: list[int], stops: list[str], cuts: set[int], reads: set[int], echo: bool) -> None:
    tokenizer = Bytes()
    said = chunks(ids, stops, cuts)
    if echo:
        said[0] = Chunk(text=said[0].text, token_ids=said[0].token_ids, completion=said[0].completion, index=0,
                        logprobs=said[0].logprobs, prompt_logprobs=[None, scores(98)],
                        text_lengths=said[0].text_lengths)
    assembler, pieces = Assembler(job(echo=echo), tokenizer), []  # type: ignore[arg-type]
    for i, chunk in enumerate(said):
        assembler.push(0, chunk)
        if i in reads:
            pieces += assembler.take()
            out = sum(len(p.text) for p in pieces)
            assert all(offset < out for p in pieces for offset in p.offsets())
    pieces += assembler.take()
    text, got, entries = whole(pieces)
    final = said[-1].completion
    assert final is not None
    answer = "".join(c.text for c in said)
    assert text == ("ab" if echo else "") + answer
    assert got == [t for c in said for t in c.token_ids]
    # one character a token: an entry for each character of the text, at its place
    assert [(chr(e.token), e.offset) for e in entries] == [(c, i) for i, c in enumerate(text)]
    assert [p.first for p in pieces] == [True] + [False] * (len(pieces) - 1)
    assert pieces[-1].end is final
    assert assembler.completion_tokens == len(got)


def test_choices_wait_for_the_prompts_scores() -> None:
    """Only the first choice computes them; the others report them too."""
    dice = random.Random(3)
    streams = [chunks([97 + i] * 4, [], {0, 1, 2}, i) for i in range(3)]
    first = streams[0][0]
    streams[0][0] = Chunk(text=first.text, token_ids=first.token_ids, completion=None, index=0, logprobs=first.logprobs,
                          prompt_logprobs=[None, scores(98)], text_lengths=first.text_lengths)
    assembler = Assembler(job(n=3, echo=True), Bytes())  # type: ignore[arg-type]
    assembler.push(0, streams[2].pop(0))
    assert assembler.take() == []
    pieces: dict[int, list[TextPiece]] = {0: [], 1: [], 2: []}
    while any(streams):
        assembler.push(0, dice.choice([s for s in streams if s]).pop(0))
        for piece in assembler.take():
            pieces[piece.index].append(piece)
    for index, own in pieces.items():
        text, _, entries = whole(own)
        assert text == "ab" + chr(97 + index) * 4
        assert [e.row is None for e in entries] == [True] + [False] * 5


def test_the_backlog_grows_with_what_waits_and_is_gone_when_it_is_taken() -> None:
    assembler = Assembler(job(), Bytes())  # type: ignore[arg-type]
    sizes = []
    for _ in range(3):
        assembler.push(0, Chunk("x" * 1000, [120], None, 0, [scores(120)], text_lengths=[1000]))
        sizes.append(assembler.backlog)
    assert sizes == sorted(set(sizes))
    assert sizes[-1] > 3000
    assembler.take()
    assert assembler.backlog == 0
