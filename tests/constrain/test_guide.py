"""A guide's way through grammars: what may come, when it ends, and what comes before it."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drut.constrain import Constraint, ReasoningSpec
from drut.constrain.grammar_matcher import MAX_AHEAD
from drut.constrain.limits import MAX_ENUM
from drut.constrain.reasoning import ReasoningState
from drut.kernels.descriptor import mask_words
from tests.constrain.walking import Walker, at_random

EOS = 257
BYTES = set(range(256))
LOOSE = {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "integer", "minimum": 0,
                                                                            "maximum": 99}, "maxItems": 3},
                                          "b": {"type": "boolean"}},
         "required": ["a", "b"], "additionalProperties": False}


ASKED = (Constraint.json_schema(LOOSE), Constraint.regex("[a-f]{2,9}x?"), Constraint.choice(["red", "green", "gray"]),
         Constraint.json_schema({"type": "array", "items": {"type": "string", "maxLength": 5}}),
         Constraint.lark('start: WORD ("," WORD){1,3}\nWORD: /[a-f]{2,5}/\n'))


def take(guide: Any, text: bytes) -> Any:
    for byte in text:
        guide.advance(byte)
    return guide


def test_only_what_the_grammar_says(walker: Walker) -> None:
    guide = walker.guide(Constraint.regex("a[bc]?"))
    assert walker.allowed(guide) == [ord("a")]
    guide.advance(ord("a"))
    assert walker.allowed(guide) == [ord("b"), ord("c"), EOS]
    guide.advance(ord("b"))
    assert (guide.ended, guide.failure) == (2, None)


def test_eos_ends_it_and_ignoring_it_goes_on(walker: Walker) -> None:
    constraint = Constraint.regex("ab*")
    ended = take(walker.guide(constraint), b"ab")
    ended.advance(EOS)
    assert ended.ended == 3
    on = take(walker.guide(constraint, ignore_eos=True), b"ab")
    assert walker.allowed(on) == [ord("b")]
    assert walker.allowed(walker.guide(Constraint.regex(""), ignore_eos=True)) == [EOS]  # there is nothing else


def test_special_tokens_are_no_text(walker: Walker) -> None:
    assert set(walker.allowed(walker.guide(Constraint.regex("(.|\n)*")))) - BYTES == {EOS}
    spelled = walker.guide(Constraint.choice(["<eos>"]))
    for byte in b"<eos>":
        assert walker.allowed(spelled) == [byte]
        spelled.advance(byte)


@pytest.mark.parametrize("greedy", [b" \t\n\r", b"0123456789", b'",:{}[] '])
def test_whoever_loves_spaces_comes_to_an_end(walker: Walker, greedy: bytes) -> None:
    """At most one between two tokens, and nowhere else."""
    def choose(allowed: Sequence[int]) -> int:
        return next((i for i in allowed if i in greedy), allowed[-1])

    walk = walker.walk(Constraint.json_schema(LOOSE), choose, most=100)
    assert walk.over
    assert set(json.loads(walk.text)) == {"a", "b"}
    assert not re.search(r"\s\s|[\t\n\r]", walk.text)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1 << 30))
def test_every_walk_fits(walker: Walker, seed: int) -> None:
    walk = walker.walk(Constraint.json_schema(LOOSE), at_random(seed, walker.eos))
    value = json.loads(walk.text)
    assert walk.over
    assert len(value["a"]) <= 3
    assert all(0 <= i <= 99 for i in value["a"])


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1 << 30), st.data())
def test_a_guide_cut_back_is_as_if_it_had_never_been_further(walker: Walker, seed: int, data: Any) -> None:
    guide = walker.guide(Constraint.json_schema(LOOSE), ReasoningSpec("<t>", "/>"))
    ids = list[int]()
    choose, masks = at_random(seed, walker.eos), list[list[int]]()
    while not guide.over and len(ids) < 60:
        masks.append(walker.allowed(guide))
        ids.append(choose(masks[-1]))
        guide.advance(ids[-1])
    count = data.draw(st.integers(0, len(ids) - 1))
    guide.truncate(count)
    assert (guide.taken, guide.over) == (count, False)
    assert walker.allowed(guide) == masks[count]


def test_a_token_asked_about_is_what_the_mask_says_of_it(walker: Walker) -> None:
    """Exceptions: an ignored end token and the first token of reasoning, for which `accepts` may be False."""
    thoughts = (None, ReasoningSpec("<t>", "/>", begun=True, budget=4, closing="/>"), ReasoningSpec("<t>", "/>"))
    seen = 0
    for seed in range(60):
        dice, reasoning, ignore_eos = random.Random(seed), thoughts[seed % 3], seed % 4 == 0
        guide = walker.guide(dice.choice(ASKED), reasoning, ignore_eos=ignore_eos)
        choose = at_random(seed, walker.eos)
        while not guide.over and guide.taken < 40:
            allowed = walker.allowed(guide)
            accepted = [i for i in range(walker.vocab) if guide.accepts(i)]
            assert walker.allowed(guide) == allowed  # asking changes nothing
            assert set(accepted) <= set(allowed)
            missed = set(allowed) - set(accepted)
            ahead = guide._watch is not None and guide._watch.state is ReasoningState.AHEAD
            assert ahead or missed <= (walker.eos if ignore_eos else set()), (seed, guide.taken, missed)
            seen += 0 < len(accepted) < walker.vocab
            closing = guide._watch.forced(guide.taken) if guide._watch is not None else None
            before = guide.taken
            if outside := [i for i in range(walker.vocab) if i not in allowed]:
                assert not guide.try_advance(dice.choice(outside))
            assert guide.taken == before
            token = choose(allowed) if closing is None else closing
            if not guide.try_advance(token):
                guide.advance(token)
            assert guide.taken == before + 1
        assert guide.failure is None
        assert guide.accepts(5) == (5 in walker.allowed(guide))
    assert seen > 300


class TestForced:
    KEYS = Constraint.json_schema({
        "type": "object", "properties": {"long_name": {"type": "boolean"}, "b": {"const": 7}},
        "required": ["long_name", "b"], "additionalProperties": False})

    @settings(max_examples=25, deadline=None)
    @given(st.integers(0, 1 << 30), st.booleans())
    def test_what_is_forced_is_all_that_is_allowed(self, walker: Walker, seed: int, thinks: bool) -> None:
        """Each of its ids in its turn; and where nothing is, there is a choice, or it may be over."""
        guide = walker.guide(self.KEYS, ReasoningSpec("<t>", "/>", begun=True, budget=4,
                                                      closing="/>") if thinks else None)
        choose, runs = at_random(seed, walker.eos), 0
        while not guide.over:
            run, forced = guide.forced(guide.taken), walker.allowed(guide)
            runs += len(run) > 3
            if run:
                assert forced == [run[0]]
                assert guide.forced(guide.taken + 1) == run[1:]
            watch = guide._watch
            closing = watch.forced(guide.taken) if watch is not None else None
            guide.advance(choose(forced) if closing is None else closing)
        assert guide.failure is None
        assert runs >= 2

    def test_the_library_allows_nothing_else_either(self, walker: Walker) -> None:
        """What is forced is no narrower than its own masks."""
        matcher = walker.grammars.build(self.KEYS)
        words = np.zeros(mask_words(walker.vocab), np.int32)
        seen = 0
        for byte in b'{"long_name":true,"b":7':
            run = matcher.compute_ff_tokens()
            matcher.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
            allowed = np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little")).tolist()
            if run:
                assert allowed == [run[0]] == [byte]
                seen += 1
            assert matcher.consume_token(byte)
        assert seen > 10

    def test_catching_up_is_taking_one_by_one(self, walker: Walker) -> None:
        constraint = Constraint.regex("[0-9]abc[0-9]def")
        slow, fast = take(walker.guide(constraint), b"1abc2d"), take(walker.guide(constraint), b"1")
        fast.catch_up(4)
        fast.advance(ord("2"))
        fast.catch_up(6)
        assert (fast.taken, fast.forced(6), fast.ended) == (slow.taken, slow.forced(6), slow.ended)
        assert fast.forced(6) == tuple(b"ef")
        assert (fast.ended, fast.over) == (8, False)
        fast.catch_up(99)
        assert (fast.taken, fast.over) == (8, True)

    def test_cut_back_into_a_run(self, walker: Walker) -> None:
        guide = take(walker.guide(Constraint.regex("[0-9]abcdef[0-9]")), b"1abcdef2")
        guide.truncate(3)
        assert (guide.over, guide.forced(3), walker.allowed(guide)) == (False, tuple(b"cdef"), [ord("c")])

    def test_an_end_is_never_forced(self, walker: Walker) -> None:
        guide = take(walker.guide(Constraint.regex("ab*"), ignore_eos=True), b"a")
        assert guide.forced(1) == ()
        assert walker.guide(Constraint.regex("")).forced(0) == ()

    def test_no_run_is_longer_than_others_can_wait_for(self, walker: Walker) -> None:
        guide = walker.guide(Constraint.choice(["x" * 1000]))
        assert len(guide.forced(0)) == MAX_AHEAD
        guide.catch_up(2000)
        assert (guide.taken, guide.over) == (1000, True)


def test_one_of_the_choices(walker: Walker) -> None:
    choices = ["red", "green", 'qu"ote', "new\nline", "ünï", "red wine", "del\x7f", "\x01"]
    constraint = Constraint.choice(choices)
    assert all(walker.accepts(constraint, choice) for choice in choices)
    assert not any(walker.accepts(constraint, text) for text in ("re", "reds", "", "blue", "new\\nline"))


def test_as_many_choices_as_there_may_be(walker: Walker) -> None:
    constraint = Constraint.choice([f"{i} of them" for i in range(MAX_ENUM)])
    assert walker.accepts(constraint, "4999 of them")
    assert not walker.accepts(constraint, "5000 of them")


def test_ebnf_and_lark(walker: Walker) -> None:
    ebnf = Constraint.lark('root ::= "x" digit+ rest?\ndigit ::= [0-9]\nrest ::= "(" root ")"\n')
    assert walker.accepts(ebnf, "x12(x3)")
    assert not walker.accepts(ebnf, "x12(x3")
    lark = Constraint.lark('start: "call " %json {"type": "array", "items": {"type": "integer"}} "!"\n')
    assert walker.accepts(lark, "call [1, 2]!")
    assert not walker.accepts(lark, "call [1,  2]!")  # whitespace is bounded there too


class TestTags:
    TAGS = (("<f=a>", LOOSE, "</f>"), ("<f=b>", {"type": "integer"}, "</f>"))

    def test_free_text_until_a_trigger(self, walker: Walker) -> None:
        tags = Constraint.structural_tags(self.TAGS, ["<f="])
        for text in ("", "no tag at all", "< f", "so <f=b>12</f> and <f=b>3</f>.", '<f=a>{"a": [], "b": true}</f>'):
            assert walker.accepts(tags, text), text
        for text in ("<f=c>", "x <f=b>one</f>", "<f=b>12</f", "<f=b>12", "<f="):
            assert not walker.accepts(tags, text), text

    def test_a_trigger_leaves_only_its_tags(self, walker: Walker) -> None:
        guide = take(walker.guide(Constraint.structural_tags(self.TAGS, ["<f="])), b"hello <f=")
        assert walker.allowed(guide) == [ord("a"), ord("b")]

    def test_required(self, walker: Walker) -> None:
        one = Constraint.structural_tags(self.TAGS, required=True, most=1)
        many = Constraint.structural_tags(self.TAGS, required=True)
        assert walker.accepts(one, "<f=b>12</f>")
        assert walker.accepts(many, "<f=b>12</f><f=b>3</f>")
        for text in ("", "text", "<f=b>12</f> ", "<f=b>12</f><f=b>3</f>"):
            assert not walker.accepts(one, text), text


class TestThoughts:
    DIGITS = Constraint.regex("[0-9]{2}")

    def test_free_until_its_end_and_no_end_of_the_answer(self, walker: Walker) -> None:
        guide = walker.guide(self.DIGITS, ReasoningSpec("<t>", "/>", begun=True))
        for byte in b"think / > 1":
            assert set(walker.allowed(guide)) == set(range(walker.vocab)) - {EOS}
            guide.advance(byte)
        assert walker.allowed(take(guide, b"/>")) == list(b"0123456789")
        assert take(guide, b"42").ended == 15

    def test_what_a_budget_forces_is_no_matter_of_masks_nor_of_the_grammar(self, walker: Walker) -> None:
        guide = walker.guide(self.DIGITS, ReasoningSpec("<t>", "/>", begun=True, budget=3, closing=".\n/>\n"))
        take(guide, b"abc")
        for byte in b".\n/>\n":
            assert len(walker.allowed(guide)) == walker.vocab
            guide.advance(byte)
        assert walker.allowed(guide) == list(b"0123456789")

    def test_an_end_that_begins_again(self, walker: Walker) -> None:
        guide = take(walker.guide(self.DIGITS, ReasoningSpec("<t>", "aab", begun=True)), b"aaab")
        assert walker.allowed(guide) == list(b"0123456789")

    def test_where_it_does_not_begin_there_is_none(self, walker: Walker) -> None:
        reasoning = ReasoningSpec("<t>", "/>")
        guide = walker.guide(self.DIGITS, reasoning)
        assert walker.allowed(guide) == sorted(b"0123456789<")
        assert take(guide, b"17").ended == 2
        thinking = take(walker.guide(self.DIGITS, reasoning), b"<t")
        assert walker.allowed(thinking) == [ord(">")]
        assert walker.allowed(take(thinking, b"> hm />")) == list(b"0123456789")

    def test_a_beginning_that_may_be_the_answer_too(self, walker: Walker) -> None:
        constraint, reasoning = Constraint.regex("<[0-9]"), ReasoningSpec("<t>", "/>")
        guide = take(walker.guide(constraint, reasoning), b"<")
        assert walker.allowed(guide) == sorted(b"0123456789t")
        assert take(guide, b"7").ended == 2
        assert walker.allowed(take(walker.guide(constraint, reasoning), b"<t>x/>")) == [ord("<")]

    def test_white_space_may_come_before_it(self, walker: Walker) -> None:
        guide = take(walker.guide(Constraint.regex(" ?[0-9]{2}"), ReasoningSpec("<t>", "/>")), b" ")
        assert walker.allowed(guide) == sorted(b"0123456789<")
        assert take(guide, b"17").ended == 3


def test_a_token_that_does_not_fit_is_a_failure_that_says_where(walker: Walker) -> None:
    guide = take(walker.guide(Constraint.regex("ab")), b"ax")
    assert "after 2 tokens" in str(guide.failure)
    assert len(walker.allowed(guide)) == walker.vocab


def test_where_nothing_can_come_it_says_so(walker: Walker) -> None:
    guide = take(walker.guide(Constraint.lark('start: "a" B\nB: /[^\\s\\S]/')), b"a")
    assert len(walker.allowed(guide)) == walker.vocab
    assert str(guide.failure) == "the grammar failed after 1 tokens: no token of this model can come next"


def test_ids_that_no_token_has_are_never_allowed(walker: Walker) -> None:
    wide = Walker(walker.tokenizer, walker.vocab + 30)
    guide = wide.guide(Constraint.regex("(.|\n)*"))
    assert max(wide.allowed(guide)) == EOS
    wide.grammars.close()


def test_a_vocabulary_without_eos_ends_with_its_grammar(walker: Walker) -> None:
    """Masks are as wide as the logits, though the library counts one id more."""
    bytes_only = Walker(walker.tokenizer, 256)
    assert not bytes_only.eos
    guide = bytes_only.guide(Constraint.regex("ab?"))
    guide.advance(ord("a"))
    assert bytes_only.allowed(guide) == [ord("b")]
    guide.advance(ord("b"))
    assert guide.ended == 2
    bytes_only.grammars.close()
