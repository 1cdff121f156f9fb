"""Texts have exactly the tokens they were made with, whatever the tokenizer."""

import functools
from itertools import takewhile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drut.bench.tokens import LocalTokenizer
from drut.bench.workloads.texts import WorkloadTexts
from drut.errors import RequestError
from tests.bench.tokens.vocabularies import BUILDS, vocabulary

names = pytest.mark.parametrize("name", BUILDS)


@functools.cache
def texts(name, seed=1):
    return WorkloadTexts(vocabulary(name), [seed])


def shared(a, b):
    """How many ids two lists begin with in common."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))


@names
@settings(max_examples=15, deadline=None)
@given(n=st.integers(1, 5000), key=st.integers(0, 1 << 40))
def test_exact_count(name, n, key):
    tokenizer = vocabulary(name)
    text = texts(name).text(n, key)
    ids = tokenizer.encode(text)
    assert len(ids) == n
    assert tokenizer.encode(tokenizer.decode(ids)) == ids
    assert text == text.strip()  # as chat templates do


@names
def test_every_small_length(name):
    for n in range(1, 130):
        assert vocabulary(name).count(texts(name).text(n, n)) == n


@pytest.mark.model
@settings(max_examples=40, deadline=None)
@given(n=st.integers(1, 5000), key=st.integers(0, 1 << 40))
def test_exact_count_of_the_default_model(n, key):
    tokenizer, source = _default()
    ids = tokenizer.encode(source.text(n, key))
    assert len(ids) == n
    assert tokenizer.encode(tokenizer.decode(ids)) == ids


@functools.cache
def _default():
    tokenizer = LocalTokenizer.open("smollm2-135m-instruct")
    return tokenizer, WorkloadTexts(tokenizer, [1])


@names
def test_prefixes_stay_as_they_are(name):
    """The ids of a text followed by another begin with the ids of the text."""
    tokenizer, source = vocabulary(name), texts(name)
    for key in range(20):
        prefix = source.text(300, key)
        ids = tokenizer.encode(prefix)
        a, b = (tokenizer.encode(prefix + source.piece(100, key, i, inside=True)) for i in (1, 2))
        assert a[:300] == b[:300] == ids
        assert 300 <= shared(a, b) < 320  # a line in common at most


@names
def test_labels_distinguish_texts(name):
    """Of equal keys, and so equal but for the label."""
    source, tokenizer = texts(name), vocabulary(name)
    few = 4 if name != "no words" else 19  # a first word, then the label in digits: of two fillers, 17
    made = [tokenizer.encode(source.piece(64, 5, label=(i, 100_000))) for i in (0, 1, 2, 799, 800, 99_999)]
    assert max(shared(a, b) for i, a in enumerate(made) for b in made[:i]) < few


def test_a_text_does_not_depend_on_others():
    late = WorkloadTexts(vocabulary("gpt-2"), [1])
    for key in range(30):
        late.text(200, key)
    assert late.text(200, 77) == WorkloadTexts(vocabulary("gpt-2"), [1]).text(200, 77)
    assert late.text(200, 77) != WorkloadTexts(vocabulary("gpt-2"), [2]).text(200, 77)


@names
def test_passage_follows_the_play(name):
    source = texts(name)
    passage = source.passage(500, 3)
    lines = [line for line in source._lines[3:40] if line in passage]
    assert passage.startswith("".join(lines[:10]))
    assert vocabulary(name).count("The" + passage) - vocabulary(name).count("The") == 500


class Deaf:
    """A tokenizer whose words cannot be cut: every text is three tokens."""

    name, remote = "deaf", False

    def encode(self, text):
        return [0, 0, 0]

    def count(self, text):
        return 3

    def decode(self, ids):
        return ""


class Merging:
    """A token a word, and one more for every 50 words: parts do not add up."""

    name, remote = "merging", False

    def count(self, text):
        words = len(text.split())
        return words + words // 50

    def encode(self, text):
        return [0] * self.count(text)

    def decode(self, ids):
        return ""


def test_parts_that_do_not_add_up_are_mended_or_refused():
    source = WorkloadTexts(Merging(), [1])
    for n in np.arange(1, 1000, 7):
        if n % 51 != 50:  # 49 words are 49 tokens, 50 are 51
            assert Merging().count(source.text(int(n))) == n
    with pytest.raises(RequestError, match="merging: no text of exactly 50 tokens"):
        source.text(50)


def test_tokenizer_without_words_is_refused():
    with pytest.raises(RequestError, match="deaf: no word or letter is one token"):
        WorkloadTexts(Deaf(), [1])
