"""A setting of speculation is read, or one error names what is wrong with it."""

from __future__ import annotations

import pytest

from drut.config import EngineConfig
from drut.engine.memory_plan import step_limits
from drut.errors import RequestError
from drut.speculate.methods import METHODS, chosen_method


def test_none_is_no_method() -> None:
    assert chosen_method("none") is None


@pytest.mark.parametrize("method", [name for name, method in METHODS.items() if not method.files])
def test_a_method_has_a_drafter_and_its_defaults(method: str) -> None:
    chosen = chosen_method(method)
    assert chosen is not None
    assert (chosen.method, chosen.adaptive, chosen.max_drafts) == (method, True, 16)
    drafter = chosen.drafter()
    assert drafter is not None
    assert drafter.propose([]) == []


def test_a_model_is_named_by_its_path() -> None:
    chosen = chosen_method("draft:model=/some/where=here.gguf,k=3")
    assert chosen is not None
    assert (chosen.files["model"], chosen.max_drafts, chosen.adaptive) == ("/some/where=here.gguf", 3, True)
    assert chosen.drafter() is None, "the engine loads it"


def test_options_are_read() -> None:
    chosen = chosen_method("suffix:k=5,least=0.25,adaptive=0")
    assert chosen is not None
    assert (chosen.max_drafts, chosen.values["least"], chosen.adaptive) == (5, 0.25, False)


@pytest.mark.parametrize(("text", "named"), [
    ("", "unknown method ''; methods are none, auto, "), ("ngrams", "unknown method 'ngrams'"),
    ("none:k=1", "none takes no options"),
    ("ngram:depth=3", "ngram has no option 'depth'; options are k, adaptive, min, max"),
    ("ngram:k", "ngram:k= is not an integer"), ("ngram:k=0", "ngram:k must be from 1 to 64, not 0"),
    ("ngram:k=1.5", "k=1.5 is not an integer"), ("suffix:least=x", "least=x is not a number"),
    ("ngram:k=1,,", "no option ''"), ("ngram:min=6", "min=6 is more than max=4"), ("auto:min=6", "min=6"),
    ("draft", "draft needs model=, the draft model"), ("draft:model=,k=2", "draft needs model="),
    ("draft:model=a,depth=3", "draft has no option 'depth'; options are model, k, adaptive"),
    ("suffix:least=nan", "must be from 0 to 1, not nan")])
def test_an_error_names_what_is_wrong(text: str, named: str) -> None:
    with pytest.raises(RequestError, match=named):
        chosen_method(text)


def test_a_step_has_a_sample_for_each_draft() -> None:
    """As many as there are rows, at most."""
    assert step_limits(EngineConfig(max_seqs=4), 100).samples == 4
    assert step_limits(EngineConfig(max_seqs=4, speculate="ngram:k=7"), 100).samples == 32
    assert step_limits(EngineConfig(max_seqs=128, speculate="ngram:k=7"), 100).samples == 512
    assert step_limits(EngineConfig(max_seqs=4, speculate="draft:model=any"), 100).samples == 24
