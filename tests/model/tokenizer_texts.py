"""Texts that tokenizers are compared on: scripts, emoji, code, white space, control characters, from a fixed seed."""

from __future__ import annotations

import random
from collections.abc import Sequence

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
    rng = random.Random(seed)
    kinds = [words.split() for words in WORDS.values()]
    return [_text(rng, kinds, [*MARKS, *special]) for _ in range(count)]


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
