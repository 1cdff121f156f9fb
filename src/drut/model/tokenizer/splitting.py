r"""Pre-tokenizers: how text is split into words before merging, by the name in `tokenizer.ggml.pre`.

The names, and the names that share a pre-tokenizer, are those of llama.cpp (src/llama-vocab.cpp). Its expressions
approximate some published ones, because its matcher does not know the case of letters outside ASCII; here they are as
published. Every expression takes linear time, so `(?<!\s)` stands in front of a run that must reach the end.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tokenizers
from tokenizers import Regex, models, normalizers, pre_tokenizers

SPACE = "\u2581"  # the spelling of a space in vocabularies of text


@dataclass(frozen=True)
class Splitting:
    """A pre-tokenizer: `patterns` split in sequence, each one the parts of the previous ones; None is GPT-2's pattern.

    With `bytes_spelled` each byte then becomes one printable character; else pieces are text with U+2581 for spaces.
    `nfc`: the published tokenizers compose characters first.
    """

    patterns: tuple[str | None, ...]
    nfc: bool = False
    whole_words: bool = False  # a word in the vocabulary becomes one token without merges
    adds_bos: bool = False  # default of the file's key
    bytes_spelled: bool = True

    def normalizer(self) -> normalizers.Normalizer | None:
        if not self.bytes_spelled:
            return normalizers.Replace(" ", SPACE)
        return normalizers.NFC() if self.nfc else None

    def pre_tokenizer(self) -> pre_tokenizers.PreTokenizer:
        own = self.patterns[-1] is not None
        steps: list[pre_tokenizers.PreTokenizer] = [_step(p) for p in self.patterns if p is not None]
        if self.bytes_spelled:
            steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not own))
        return steps[0] if len(steps) == 1 else pre_tokenizers.Sequence(steps)


def _step(pattern: str) -> pre_tokenizers.PreTokenizer:
    if pattern == _DIGIT:
        return pre_tokenizers.Digits(individual_digits=True)
    return pre_tokenizers.Split(Regex(pattern), "isolated")


_ENGLISH = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_MARKS, _BLANKS = r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+|\s+(?!\S)|\s+"


def _gpt4(digits: str, *, first: str = _ENGLISH + "|", word: str = _WORD, marks: str = _MARKS) -> str:
    """Returns a pattern of words with one leading mark, `digits`, runs of marks with their line ends, white space."""
    return f"{first}{word}|{digits}|{marks}|{_BLANKS}"


def _cased(more: str = "") -> str:
    """Returns a pattern of words that end before an upper-case letter, of letters and marks that also match `more`."""
    upper, lower = (rf"[{kind}\p{{Lm}}\p{{Lo}}\p{{M}}{more}]" for kind in (r"\p{Lu}\p{Lt}", r"\p{Ll}"))
    return "|".join(rf"[^\r\n\p{{L}}\p{{N}}]?{run}" for run in (f"{upper}*{lower}+", f"{upper}+{lower}*"))


def _suffixed(words: str) -> str:
    return "|".join(f"{word}{_ENGLISH}?" for word in words.split("|"))


_DIGIT, _DIGITS_3 = r"\p{N}", r"\p{N}{1,3}"
_ASCII_MARK = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]"
_IDEOGRAPHS = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
_DEEPSEEK_IDEOGRAPHS = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
_DEEPSEEK_MARKS = "[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+"
_DEEPSEEK_LETTERS = (  # Latin, Greek, Cyrillic, Armenian, Georgian and other scripts that have case
    "[A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376"
    "\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-"
    "\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a"
    "\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4"
    "\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc"
    "\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f"
    "\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b"
    "\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a"
    "\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2"
    "\U000118a0-\U000118df\U0001e900-\U0001e943]+"
)
_YOUTU_SCRIPTS = (
    "[\uac00-\ud7a3\u3131-\u318e]+|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f\ufe30-"
    "\ufe4f]+|[\u3105-\u312f]+|[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
)
_AFMOE_SCRIPTS = (
    "[\u4e00-\u9fff\u3400-\u4dbf\u8c48-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf\u0e40-\u0e7f\u0e80-"
    "\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]+"
)
_SLASHED = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"
_DEEPSEEK_WORDS = rf"{_ASCII_MARK}[A-Za-z]+|[^\r\n\p{{L}}\p{{P}}\p{{S}}]?[\p{{L}}\p{{M}}]+"
_DEEPSEEK_3 = rf"{_DEEPSEEK_WORDS}| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_BLANKS}"
_UNMARKED = " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"
_LAST_THREES = (r"(?<!\p{N}{3})(?:\p{N}{3})+\z", r"\G\p{N}{3}")  # digits in threes, counted from the end of their run
_LINES = r"\n+"

_GPT_2 = Splitting((None,))
_SMOLLM = Splitting((_DIGIT, None))
_LLAMA_3 = Splitting((_gpt4(_DIGITS_3),), whole_words=True, adds_bos=True)
_QWEN_2 = Splitting((_gpt4(_DIGIT),), nfc=True)
_QWEN_2_PLAIN = Splitting((_gpt4(_DIGIT),))
_DEEPSEEK_V3 = Splitting((_DIGITS_3, _IDEOGRAPHS, _DEEPSEEK_3))
_O200K = Splitting((f"{_suffixed(_cased())}|{_DIGITS_3}|{_SLASHED}|{_BLANKS}",))
_BAILING = Splitting((rf"'(?i:[sdmt]|ll|ve|re)|{_WORD}|{_DIGIT}|{_MARKS}|\s*[\r\n]|\s+(?!\S)|\s+",))
_BLOOM = Splitting((_UNMARKED,))
_GEMMA_4 = Splitting((_LINES,), adds_bos=True, bytes_spelled=False)
_TINY_AYA = Splitting((r"(?<!\d)\d+\b", r"(?<!\d{3})(?:\d{3})+\z", r"\G\d{3}", *_O200K.patterns))

# The first name of a pre-tokenizer is used for writing: a name that leaves BOS to the file.
_NAMED: tuple[tuple[str, Splitting], ...] = (
    ("gpt-2 phi-2 jina-es jina-de jina-v1-en jina-v2-es jina-v2-de jina-v2-code roberta-bpe modern-bert gigachat "
     "a.x-4.0 mellum exaone4 jais trillion granite-docling", _GPT_2),
    ("olmo mpt", Splitting(_GPT_2.patterns, nfc=True)),
    ("smollm starcoder refact codeshell exaone minerva-7b mellum2", _SMOLLM),
    ("command-r", Splitting(_SMOLLM.patterns, nfc=True)),
    ("llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano", _LLAMA_3),
    ("dbrx smaug-bpe chatglm-bpe", Splitting(_LLAMA_3.patterns)),
    ("glm4 glm5", Splitting(_LLAMA_3.patterns, whole_words=True)),
    ("jais-2", Splitting((_gpt4(_DIGITS_3).removesuffix(r"\s+(?!\S)|\s+") + "|".join(
        rf"\s{{{n}}}(?!\S)" for n in ("512", "256", "128", "64", "32", "16", "8", "4", "1,2")) + r"|\s",))),
    ("minicpm5", Splitting((_DIGITS_3, _gpt4(r"\p{N}+")), whole_words=True)),
    ("qwen2 deepseek-r1-qwen kormo f2llmv2 megrez", _QWEN_2),
    ("stablelm2 hunyuan solar-open grok-2", _QWEN_2_PLAIN),
    ("qwen35", Splitting((_gpt4(_DIGIT, word=r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+",
                                marks=r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"),))),
    ("ufakzeka", Splitting((_gpt4(_DIGIT, first=""),))),
    ("laguna", Splitting((_LINES, *_QWEN_2.patterns))),
    ("seed-coder", Splitting((_gpt4(_DIGIT, marks=r" ?[^\s\p{L}\p{N}\r\n]+"),))),
    ("exaone-moe", Splitting((rf"{_ENGLISH}|[^\r\n\p{{L}}\p{{N}}]?(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|{_DIGIT}"
                              r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+",))),
    ("bailingmoe bailingmoe2 llada-moe", _BAILING),
    ("deepseek-llm", Splitting((r"[\r\n]", rf"\s?{_DEEPSEEK_LETTERS}", rf"\s?{_DEEPSEEK_MARKS}",
                                r"(?<!\s)\s+\z", _DEEPSEEK_IDEOGRAPHS, r"\p{N}+"))),
    ("deepseek-coder", Splitting((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _DEEPSEEK_IDEOGRAPHS, _DIGIT))),
    ("deepseek-v3 hunyuan-dense joyai-llm hy_v4", _DEEPSEEK_V3),
    ("spark2_5", Splitting((_DIGITS_3, _IDEOGRAPHS,
                            rf"{_DEEPSEEK_WORDS}| ?[\p{{P}}\p{{S}}]+|[\r\n]|\s+(?!\S)|\s+", _DIGIT))),
    ("youtu", Splitting((_YOUTU_SCRIPTS, f"{_suffixed(_cased())}|{_DIGIT}|{_SLASHED}|{_BLANKS}"), whole_words=True)),
    ("tekken", Splitting((f"{_cased()}|{_DIGIT}|{_SLASHED}|{_BLANKS}",), whole_words=True, adds_bos=True)),
    ("gpt-4o llama4 kanana2 talkie minimax-m2", _O200K),
    ("granite-embed-multi-97m", Splitting(_O200K.patterns, whole_words=True)),
    ("tiny_aya cohere2moe", _TINY_AYA),
    ("kimi-k2", Splitting((rf"\p{{Han}}+|{_suffixed(_cased('&&[^' + chr(92) + 'p{Han}]'))}|{_DIGITS_3}|{_MARKS}|"
                           f"{_BLANKS}",))),
    ("superbpe", Splitting((r"\p{N}+", *_LAST_THREES))),
    ("afmoe", Splitting((r"\p{N}+", *_LAST_THREES, _AFMOE_SCRIPTS, _DEEPSEEK_3))),
    ("falcon", Splitting((r"[\p{P}$+<=>^~|`]+", _GPT_2_PATTERN := (
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"), "[0-9][0-9][0-9]"))),
    ("default", Splitting((r"[\p{P}$+<=>^~|]+", _GPT_2_PATTERN, r"\p{N}+", "[0-9][0-9][0-9]"))),
    ("chameleon", Splitting((r"<sentinel:[0-9]+>", r"(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", r"([\t\n]|    |  )",
                             _DIGIT, r"[\p{P}!-/:-@\[-`{-~]", None), adds_bos=True)),
    ("poro-chat bloom gpt3-finnish", _BLOOM),
    ("viking", Splitting((_UNMARKED, _DIGIT))),
    ("sarvam-moe", Splitting((_LINES,), bytes_spelled=False)),
    ("gemma4 granite-embed-multi-311m", _GEMMA_4),
)
SPLITTINGS = {name: splitting for names, splitting in _NAMED for name in names.split()}
OUTER_SPACES = r"\A | \z"
PATTERNS = frozenset([OUTER_SPACES, *(pattern for splitting in SPLITTINGS.values() for pattern in splitting.patterns)])


def name_of(state: Mapping[str, Any]) -> str | None:
    """Returns the name in `tokenizer.ggml.pre` of a `tokenizer.json`'s pre-tokenizer; None if no known one matches."""
    for name, splitting in SPLITTINGS.items():
        if bool(state["model"].get("ignore_merges")) != splitting.whole_words:
            continue
        like = tokenizers.Tokenizer(models.BPE())
        like.pre_tokenizer = splitting.pre_tokenizer()
        if normalizer := splitting.normalizer():
            like.normalizer = normalizer
        made = json.loads(like.to_str())
        if all(_plain(made[key]) == _plain(state.get(key)) for key in ("normalizer", "pre_tokenizer")):
            return name
    return None


def _plain(step: Any) -> Any:
    """Returns a step of a tokenizer without offsets, which change no token."""
    if isinstance(step, dict):
        return {key: _plain(value) for key, value in step.items() if key != "trim_offsets"}
    return [_plain(item) for item in step] if isinstance(step, list) else step
