"""Patterns of a tokenizer.json: those in use are read, and none that is read takes long over any text."""

from __future__ import annotations

import time

import pytest
from tokenizers import Regex, pre_tokenizers

from drut.errors import UnsupportedError
from drut.model.tokenizer.patterns import check_patterns

WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
MARKS = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
CASED = rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*|"
SUFFIX = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
IN_USE = {
    "gpt-2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "llama 3": WORDS + r"\p{N}{1,3}" + MARKS,
    "qwen2": WORDS + r"\p{N}" + MARKS,
    "tekken": CASED + r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "o200k": CASED.replace("|", SUFFIX) + r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "deepseek v3": r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
                   r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "deepseek ideographs": "[一-龥\u3040-ゟ゠-ヿ]+",
    "deepseek words": r"\s?\p{L}+",
    "deepseek marks": r"\s?[!-/:-~！-／：-～‘-‟\u3000-。]+",
    "line ends": r"[\r\n]",
    "digits": r"\p{N}{1,3}",
    "three digits": "[0-9][0-9][0-9]",
    "spaces": " {2,}",
}
ENDLESS = [
    "[ab]*[ab]*[ab]*[cd]", "(a+)+b", "(?:a+)*b", "(?:a|aa)*[bc]", "(?:a|aa){1,20}[bc]", "[ab]+[bc]", "a+?b", "a*b",
    "(a|b)", r"(?<x>a)\g<x>", r"(a)\1", r"\R+", "a++", "a{2}+", "a{,5}", "^a", "(?=a*b)", "a?" * 40 + "a" * 40,
    "(?:a|aa)" * 30 + "[bc]", "[^]a]+", "[a[b]]", r"\s*[\r\n]+|a", r"\s*[\r\n]+|\s", UPPER + "*" + LOWER + "+|x",
    "a{9999}", "(?x)a", "|".join("ab" for _ in range(500)), "[a", "a{2", "*",
]  # fmt: skip
UNITS = ["a", "A", "ſ", "文", "\u0301", "1", " ", "\n", "\t", "'", "!", "'S", "A文", "文A", " \n", "\n ", "! ", " a"]


def split(pattern: str) -> dict[str, object]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def allowed(*patterns: str) -> bool:
    state = {"type": "Sequence", "pretokenizers": [split(p) for p in patterns]}
    try:
        check_patterns([None, state], "tokenizer.json")
    except UnsupportedError:
        return False
    return True


@pytest.mark.parametrize("name", IN_USE)
def test_patterns_in_use_are_read_and_are_linear(name: str) -> None:
    assert allowed(IN_USE[name])
    splitter = pre_tokenizers.Split(Regex(IN_USE[name]), "isolated")
    for unit in UNITS:
        for end in ("", "a", "!", "\n"):
            text = unit * 3000 + end
            started = time.process_time()
            splitter.pre_tokenize_str(text)
            assert time.process_time() - started < 2


@pytest.mark.parametrize("pattern", ENDLESS)
def test_what_may_search_without_end_is_refused(pattern: str) -> None:
    assert not allowed(pattern)
    assert not allowed(r"\p{L}+", pattern)
    assert not allowed("x|" + pattern)


def test_the_message_names_file_and_pattern_on_one_short_line() -> None:
    with pytest.raises(UnsupportedError, match=r"^dir/tokenizer\.json: the pattern '\(a\\n\)\*b' is not supported"):
        check_patterns([split("(a\n)*b")], "dir/tokenizer.json")
    with pytest.raises(UnsupportedError) as caught:
        check_patterns([split("a*b" * 1000)], "tokenizer.json")
    assert len(str(caught.value)) < 160


def test_many_patterns_are_bounded_together() -> None:
    assert allowed(*["a{1,9}"] * 5)
    assert not allowed(*["a{1,9}"] * 200)


def test_fixed_strings_are_patterns_too() -> None:
    for part in ("normalizers", "pretokenizers"):
        for text, good in ((" ", True), ("▁", True), ("(.*)+", True), ("ab" * 600, False)):
            step = {"type": "Replace", "pattern": {"String": text}, "content": ""}
            try:
                check_patterns([{"type": "Sequence", part: [step]}], "t")
                assert good
            except UnsupportedError:
                assert not good


def test_what_the_check_is_for() -> None:
    """A refused pattern, over texts short enough to end: five times the length takes hundreds of times as long."""
    splitter = pre_tokenizers.Split(Regex(ENDLESS[0]), "isolated")
    times = []
    for length in (20, 100):
        started = time.process_time()
        splitter.pre_tokenize_str("a" * length + "!c")
        times.append(time.process_time() - started)
    assert times[1] > 25 * times[0], times
