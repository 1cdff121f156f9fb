"""The default model's own vocabulary against ids of its published layout."""

import time

import pytest
from hypothesis import given, settings

from drut.model.store import resolve
from drut.model.tokenizer import from_gguf
from drut.model.weights.gguf import GGUFFile
from tests.model.tokenizer_reference import golden, random_texts, smollm2_reference

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def metadata():
    return GGUFFile(resolve("smollm2-135m-instruct")).metadata


@pytest.fixture(scope="module")
def tokenizer(metadata):
    return from_gguf(metadata, "smollm2")


def test_golden_ids(tokenizer):
    for text, ids in golden():
        assert tokenizer.encode(text) == ids, text
        assert tokenizer.decode(ids, skip_special=False) == text


def test_ids_of_random_texts_equal_those_of_the_published_layout(metadata, tokenizer):
    reference = smollm2_reference(metadata)

    @settings(max_examples=200, deadline=None)
    @given(random_texts)
    def check(text):
        assert tokenizer.encode(text) == reference.encode(text).ids

    check()


def test_its_rules(tokenizer):
    assert (tokenizer.bos_token, tokenizer.eos_token) == ("<|im_start|>", "<|im_end|>")
    assert not tokenizer.add_bos
    assert tokenizer.eos_ids == {2}
    assert tokenizer.special_ids == set(range(17))
    assert tokenizer.vocab_size == 49152


def test_it_is_rebuilt_quickly(metadata):
    best = float("inf")
    for _ in range(3):
        start = time.thread_time()  # of this thread: the machine may be busy
        from_gguf(metadata, "smollm2")
        best = min(best, time.thread_time() - start)
    assert best < 0.4
