"""Texts that tokenizers are compared on: scripts, emoji, code, white space, control characters, from a fixed seed.

`shared` takes out of a text what llama.cpp is known to take in another way than the published tokenizer, so that the
rest can be compared id by id.
"""

from __future__ import annotations

import random
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

WORDS = {
    "english": "The quick brown fox doesn't jump; it's they've we'll I'm you'd HelloWorld iPhone NASA's O'Neil e.g. x2",
    "latin": "Ça déjà vu Straße naïve façade señor İstanbul Łódź Ærø Thị trường Cửa Việt přílÌš ŽLUŤOUČKÝ",
    "decomposed": "re\u0301sume\u0301 cafe\u0301 o\u0308 A\u030a n\u0303 \u0915\u093c e\u0301\u0323",
    "hindi": "नमस्ते दुनिया यह एक परीक्षण है। क़लम ज़िंदगी १२३४५ श्री कि की हिन्दी ₹५०० क्ष त्र ज्ञ",
    "chinese": "你好，世界！ 中文测试 人工智能 2024年 「引号」 龍 繁體字 ㄅㄆㄇ 〇 一二三",
    "japanese": "こんにちは 世界 カタカナ ﾊﾝｶｸ 東京タワー ー々 ゛",
    "korean": "안녕하세요 세계 한국어 테스트 ㄱㄴㄷ",
    "thai": "สวัสดีชาวโลก การทดสอบ ๑๒๓",
    "arabic": "مرحبا بالعالم، كيف حالك؟ ١٢٣ שלום עולם",
    "cyrillic": "Привет мир Ещё ПРИВЕТ Україна ъ Ελληνικά Καλημέρα Ώρα Հայերեն ქართული",
    "emoji": "😀 👩‍👩‍👧‍👦 🇮🇳 ❤️ 🤷🏽‍♀️ ✅ 1️⃣ 🦙🦙 ☃ ™ © €5 £ ½ Ⅷ ² ①",
    "code": "def f(x): return x**2 if(a!=b){c+=1;} // TODO /* x */ <div class=\"a\"> #include <a.h> $x->y[0] => λ \\n "
            "{{}} a_b __init__ 0xFF 1e-9 && || ::std ... --- ''' \"\"\" `x` ~/.bashrc http://a.b/c?d=e&f#g",
    "digits": "0 12 123 1234 12345 123456 1234567 3.14159 1,000,000 2024-01-02 v1.2.3 007 9999999999999999 12ab ab12",
    "symbols": "! !! ?! ... , ; : ' '' \" « » – — • · … ± × ÷ ≤ ∑ √ → ░ █ § ¶ ° ^ ~ | \\ / _ - + = < > ( ) [ ] { }",
}
BLANKS = [" ", "  ", "   ", "    ", " " * 9, " " * 17, "\n", "\n\n", "\n\n\n", "\r\n", "\t", "\t\t", " \n", "\n ",
          " \t ", "\u00a0", "\u3000", "\u2003", " \n \n", "\u2009", "\u202f"]
CONTROLS = ["\0", "\x01", "\x07", "\x08", "\x0b", "\x0c", "\x1b[0m", "\x7f", "\u200b", "\ufeff", "\u00ad", "\u200e",
            "\u2028", "\u0085"]
MARKS = ["▁", "▁▁", "Ġ", "##", "<0x0A>", "<unk>", "<s>", "</s>", "[PAD]", "[CLS]", "<|endoftext|>", "<|im_end|>"]


def texts(count: int, seed: int, special: Sequence[str] = ()) -> list[str]:
    """`count` texts, with `special` among them: the tokens that a vocabulary would match before anything else."""
    return list(islice(endless(seed, special), count))


def endless(seed: int, special: Sequence[str] = ()) -> Iterator[str]:
    """As `texts`, one after the other."""
    rng = random.Random(seed)
    kinds = [words.split() for words in WORDS.values()]
    while True:
        yield _text(rng, kinds, [*MARKS, *special])


def _text(rng: random.Random, kinds: list[list[str]], marks: list[str]) -> str:
    mixed = rng.random() < 0.3
    kind = rng.choice(kinds)
    parts = []
    for _ in range(rng.randint(1, 9)):
        parts.append(rng.choice(rng.choice(kinds) if mixed else kind))
        draw = rng.random()
        if draw < 0.55:
            parts.append(" ")
        elif draw < 0.75:
            parts.append(rng.choice(BLANKS))
        elif draw < 0.8:
            parts.append(rng.choice(CONTROLS))
        elif draw < 0.87:
            parts.append(rng.choice(marks))
    if rng.random() < 0.3:
        parts.insert(0, rng.choice(BLANKS))
    return "".join(parts)


# llama.cpp takes entries of these names for control tokens, whatever the file says that they are.
ENDS = ("<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>", "<EOT>", "</s>",
        "<|eom_id|>", "<|return|>", "<|call|>", "<eos>", "<turn|>", "<|tool_response>", "<fim_prefix>", "<fim_suffix>",
        "<fim_middle>", "<fim_pad>", "<\uff5cfim\u2581begin\uff5c>", "<\uff5cfim\u2581hole\uff5c>",
        "<\uff5cfim\u2581end\uff5c>", "<\uff5cend\u2581of\u2581sentence\uff5c>", "<PRE>", "<SUF>", "<MID>", "<PAD>",
        "[PAD]", "[EOT]", "[EOS]", "<reponame>", "<|file_sep|>", "<|repo_name|>")
_CASELESS = "its words are cut where upper-case letters or marks begin, which llama.cpp knows in ASCII only"
_DIGITS = "llama.cpp glues text to the digits behind it, or takes other digits than the expression"
_HAN = "two marks of the Han script lie outside the ranges of llama.cpp"
_SPACES = "white space outside ASCII lies in the range of ideographs that is cut out, which llama.cpp hides from it"
_ACCENTS = "llama.cpp drops all marks and most of a Hangul syllable, but no controls, and takes U+2581 for a new word"
_STACKED = "the library's map of characters drops the second of two marks on a letter"
DIFFERENT: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(["tekken", "gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2", "granite-embed-multi-97m",
                     "youtu"], (_CASELESS,)),
    "kimi-k2": (_CASELESS, _HAN),
    **dict.fromkeys(["tiny_aya", "cohere2moe"], (_CASELESS, _DIGITS)),
    **dict.fromkeys(["afmoe", "superbpe"], (_DIGITS,)),
    **dict.fromkeys(["deepseek-llm", "deepseek-coder"], (_SPACES,)),
    "bert-bge": (_ACCENTS,), "nomic-bert-moe": (_STACKED,),
}


def shared(text: str, name: str, ends: Iterable[str]) -> str:
    """`text` without what llama.cpp takes differently with the vocabulary or splitting `name`.

    `ends`: those of ENDS that the vocabulary has as something else.
    """
    for token in ends:
        text = text.replace(token, "")
    for why in DIFFERENT.get(name, ()):
        text = _WITHOUT[why](text)
    return text


def _marks(text: str) -> str:
    return "".join(c for c in text if not unicodedata.category(c).startswith("M"))


_WITHOUT = {
    _CASELESS: lambda text: _marks(unicodedata.normalize("NFKC", text.lower())),
    _DIGITS: lambda text: "".join(c for c in text if not unicodedata.category(c).startswith("N")),
    _HAN: lambda text: re.sub("[\u3005\u3007]", "", text),
    _SPACES: lambda text: re.sub(r"[^\S\t\n\v\f\r ]", " ", text),
    _ACCENTS: lambda text: "".join(c for c in unicodedata.normalize("NFC", text)
                                   if not any(unicodedata.category(d) in ("Mc", "Me")
                                              for d in unicodedata.normalize("NFD", c))
                                   and not "\uac00" <= c <= "\ud7a3" and c not in "\u2581\x0b\x0c\x85"),
    _STACKED: lambda text: _marks(unicodedata.normalize("NFC", text)),
}
