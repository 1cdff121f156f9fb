import json
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, trainers

from drut.errors import DrutError, ModelFileError, UnsupportedError
from drut.model.tokenizer import Detokenizer, from_hf
from drut.model.tokenizer.tokenizer import encode
from tests.model.tokenizer_reference import TEXTS, layout, random_texts

BYTES = [*map(chr, range(0x21, 0x7F)), *map(chr, range(0xA1, 0xAD)), *map(chr, range(0xAE, 0x100))]
ALPHABET = BYTES + [chr(0x100 + i) for i in range(256 - len(BYTES))]
N = len(ALPHABET) + 1
ADDED = [(N, "<s>", True), (N + 1, "</s>", True), (N + 2, "<eot>", True), (N + 3, "<tool>", False)]
BOS, EOS, EOT, TOOL = (i for i, _, _ in ADDED)
LETTERS = str.maketrans("0123456789", "cdefghijkl")
TEMPLATE = {
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
    "special_tokens": {"<s>": {"id": "<s>", "ids": [BOS], "tokens": ["<s>"]}},
}


class Directory:
    """A model directory of byte-level BPE whose files a test changes."""

    def __init__(self, path):
        self.path = path
        vocab = {token: i for i, token in enumerate([*ALPHABET, "ab"])}
        self.tokenizer = layout("llama-bpe", vocab, [["a", "b"]], ADDED)
        self.write("tokenizer_config.json", {"bos_token": "<s>", "eos_token": {"content": "</s>"}})

    def write(self, name, content):
        text = content if isinstance(content, str) else json.dumps(content)
        (self.path / name).write_text(text, encoding="utf-8")

    def load(self):
        self.write("tokenizer.json", self.tokenizer)
        return from_hf(self.path)

    def reference(self):
        return Tokenizer.from_str(json.dumps(self.tokenizer))


@pytest.fixture
def directory(tmp_path):
    return Directory(tmp_path)


@pytest.mark.parametrize("post_processor", [None, TEMPLATE])
def test_ids_equal_those_of_the_library(directory, post_processor):
    directory.tokenizer["post_processor"] = post_processor
    tokenizer, reference = directory.load(), directory.reference()
    for text in (*TEXTS, "<s>ab<eot>x<tool>"):
        for add_special in (True, False):
            expected = reference.encode(text, add_special_tokens=add_special).ids
            assert tokenizer.encode(text, add_special=add_special) == expected
    assert tokenizer.add_bos == (post_processor is not None)


def test_ids_that_end_an_answer_come_from_all_files(directory):
    directory.write("generation_config.json", {"eos_token_id": [EOT, EOS]})
    assert directory.load().eos_ids == {EOS, EOT}
    directory.write("generation_config.json", {"eos_token_id": EOT})
    tokenizer = directory.load()
    assert tokenizer.eos_ids == {EOS, EOT}
    assert (tokenizer.bos_id, tokenizer.bos_token, tokenizer.eos_token) == (BOS, "<s>", "</s>")


def test_the_config_names_the_ids_that_end_an_answer_where_no_other_file_does(directory):
    directory.write("config.json", {"eos_token_id": [EOT]})
    assert directory.load().eos_ids == {EOS, EOT}
    directory.write("config.json", {"text_config": {"eos_token_id": EOT}})
    assert directory.load().eos_ids == {EOS, EOT}
    directory.write("generation_config.json", {"eos_token_id": EOS})
    assert directory.load().eos_ids == {EOS}


def test_special_tokens_named_in_the_map_only(directory):
    directory.write("tokenizer_config.json", {})
    directory.write("special_tokens_map.json", {"bos_token": {"content": "<s>"}, "eos_token": "<eot>"})
    tokenizer = directory.load()
    assert (tokenizer.bos_id, tokenizer.eos_ids) == (BOS, {EOT})


def test_nothing_but_the_vocabulary(directory):
    (directory.path / "tokenizer_config.json").unlink()
    tokenizer = directory.load()
    assert (tokenizer.bos_id, tokenizer.eos_ids, tokenizer.chat_template) == (None, frozenset(), None)
    assert tokenizer.encode("ab") == [N - 1]


@pytest.mark.parametrize("post_processor", [None, TEMPLATE])
@pytest.mark.parametrize("add_bos", [True, False])
def test_the_configuration_decides_on_bos(directory, post_processor, add_bos):
    directory.tokenizer["post_processor"] = post_processor
    directory.write("tokenizer_config.json", {"bos_token": "<s>", "add_bos_token": add_bos})
    assert directory.load().encode("ab") == ([BOS] if add_bos else []) + [N - 1]


def test_one_bos_where_the_template_writes_it_after_white_space(directory):
    directory.write("tokenizer_config.json", {"bos_token": "<s>", "add_bos_token": True})
    tokenizer = directory.load()
    assert tokenizer.encode_chat("\n<s>ab").count(BOS) == tokenizer.encode_chat("<s>ab").count(BOS) == 1
    assert tokenizer.encode_chat("ab") == [BOS, N - 1]


def test_what_begins_a_text_in_place_of_bos_comes_once_too(directory):
    """As [gMASK]<sop> of GLM, which both its post-processor and its template write."""
    begin = {"<s>": BOS, "<eot>": EOT}
    pieces = [{"SpecialToken": {"id": text, "type_id": 0}} for text in begin]
    directory.tokenizer["post_processor"] = {
        "type": "TemplateProcessing", "single": [*pieces, {"Sequence": {"id": "A", "type_id": 0}}], "pair": [],
        "special_tokens": {text: {"id": text, "ids": [i], "tokens": [text]} for text, i in begin.items()},
    }
    directory.write("tokenizer_config.json", {"bos_token": None})
    tokenizer = directory.load()
    assert tokenizer.encode("ab") == tokenizer.encode_chat("ab") == tokenizer.encode_chat("<s><eot>ab") == [
        BOS, EOT, N - 1]


def test_special_tokens_typed_by_a_user_are_text(directory):
    tokenizer = directory.load()
    ids = tokenizer.encode("<s>ab<tool>", parse_special=False)
    assert BOS not in ids
    assert TOOL in ids
    assert tokenizer.decode(ids) == "<s>ab<tool>"
    assert tokenizer.special_ids == {BOS, EOS, EOT}


def test_truncation_and_padding_of_training_are_off(directory):
    directory.tokenizer["truncation"] = {
        "direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0
    }  # fmt: skip
    directory.tokenizer["padding"] = {
        "strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0,
        "pad_type_id": 0, "pad_token": "!",
    }  # fmt: skip
    assert len(directory.load().encode("cdef")) == 4


def test_where_the_chat_template_is(directory):
    config = {"bos_token": "<s>"}
    directory.write("tokenizer_config.json", config | {"chat_template": "one"})
    assert directory.load().chat_template == "one"
    named = [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]
    directory.write("tokenizer_config.json", config | {"chat_template": named})
    assert directory.load().chat_template == "d"
    directory.write("chat_template.jinja", "{{ file }}")
    assert directory.load().chat_template == "{{ file }}"
    (directory.path / "chat_template.jinja").unlink()
    directory.write("tokenizer_config.json", config | {"chat_template": named[:1]})
    rules = directory.load().rules
    assert (rules.chat_template, rules.named_templates) == (None, {"tool_use": "t"})


def sentencepiece_like():
    """The layout of Llama 2: a space in front, U+2581 for spaces, bytes for what is not in the vocabulary."""
    model = models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    specials = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256))]
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=specials, limit_alphabet=60, show_progress=False
    )
    tokenizer.train_from_iterator(["Hello world, this is a test of words.", "def f(x): return 1"], trainer)
    data = json.loads(tokenizer.to_str())
    data["added_tokens"] = data["added_tokens"][:3]  # the bytes are ordinary entries
    return data


@pytest.fixture(scope="module")
def spaced(tmp_path_factory):
    path = tmp_path_factory.mktemp("spaced")
    directory = Directory(path)
    directory.tokenizer = sentencepiece_like()
    return directory.load(), directory.reference()


def test_decoding_of_a_sentencepiece_like_vocabulary(spaced):
    tokenizer, reference = spaced

    @settings(max_examples=100, deadline=None)
    @given(random_texts)
    def check(text):
        ids = tokenizer.encode(text)
        assert ids == reference.encode(text).ids
        assert tokenizer.decode(ids, skip_special=False) == text.replace("▁", " ") or "<" in text

    check()


def test_a_continuation_keeps_its_space(spaced):
    tokenizer, _ = spaced
    ids = tokenizer.encode("Hello world", add_special=False)
    assert tokenizer.decode(ids) == "Hello world"
    assert Detokenizer(tokenizer).push(ids) == " Hello world"
    assert tokenizer.token_bytes(tokenizer.id_of("<0x0A>")) == b"\n"


@settings(deadline=None)
@given(st.lists(st.integers(0, 400), max_size=20))
def test_valid_text_of_random_ids_is_the_librarys(spaced, ids):
    tokenizer, reference = spaced
    text = tokenizer.decode(ids)
    if "\ufffd" not in text:  # the library replaces each byte, this decoder each broken sequence
        assert text == reference.decode(ids)


def test_a_missing_vocabulary_is_named(tmp_path):
    with pytest.raises(ModelFileError, match=r"tokenizer\.json: no such file"):
        from_hf(tmp_path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokenizer_config.json", "{"),
        ("tokenizer_config.json", "[1]"),
        ("tokenizer_config.json", "[" * 100_000),
        ("tokenizer_config.json", '{"eos_token": 5}'),
        ("tokenizer_config.json", '{"add_bos_token": "yes"}'),
        ("tokenizer_config.json", '{"chat_template": 5}'),
        ("special_tokens_map.json", '{"bos_token": {"content": 5}}'),
        ("generation_config.json", '{"eos_token_id": "2"}'),
        ("generation_config.json", '{"eos_token_id": [null]}'),
        ("generation_config.json", '{"eos_token_id": 99999}'),
    ],
)
def test_a_damaged_small_file_is_one_error(directory, name, content):
    if name == "special_tokens_map.json":
        (directory.path / "tokenizer_config.json").unlink()
    directory.write(name, content)
    with pytest.raises(ModelFileError) as caught:
        directory.load()
    assert str(directory.path) in str(caught.value)
    assert "\n" not in str(caught.value)


def replacing(count):
    """A normalizer that makes each `a` 10 ** count of them."""
    step = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 10}
    return {"type": "Sequence", "normalizers": [step] * count}


def pattern(regex):
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}


@pytest.mark.parametrize(
    "change",
    [
        {"model": {"type": "Nothing"}},
        {"model": 5},
        {"decoder": None},
        {"decoder": {"type": "BPEDecoder", "suffix": "</w>"}},
        {"decoder": {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 50}},
        {"decoder": {"type": "Replace", "pattern": {"Regex": "(a+)+b"}, "content": ""}},
        {"pre_tokenizer": pattern("(")},
        {"normalizer": replacing(9)},
        {"normalizer": {"type": "Replace", "pattern": {"String": ""}, "content": "x"}},
        {"normalizer": {"type": "Prepend", "prepend": "x" * 10**6}},
        {"normalizer": {"type": "Lowercase2"}},
        {"added_tokens": [{"id": 1}]},
    ],
    ids=str,
)
def test_a_hostile_vocabulary_is_one_error(directory, change):
    directory.tokenizer |= change
    with pytest.raises(DrutError) as caught:
        directory.load()
    assert str(directory.path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("expression", ["(a+)+$", "[ab]*[ab]*[ab]*[cd]"])
def test_a_pattern_that_may_search_for_ever_is_refused(directory, expression):
    good = dict(directory.tokenizer)
    directory.tokenizer["pre_tokenizer"] = pattern(expression)
    with pytest.raises(UnsupportedError, match=r"tokenizer\.json: the pattern .* is not supported"):
        directory.load()
    replace = {"type": "Replace", "pattern": {"Regex": expression}, "content": ""}
    directory.tokenizer = good | {"normalizer": {"type": "Sequence", "normalizers": [replace]}}
    with pytest.raises(UnsupportedError, match=r"tokenizer\.json: the pattern .* is not supported"):
        directory.load()


def test_a_failure_inside_the_library_ends_the_call_only(directory):
    directory.tokenizer["pre_tokenizer"] = pattern("(a+)+$")
    with pytest.raises(ModelFileError, match="name: the tokenizer cannot encode"):
        encode(directory.reference(), "a" * 30 + "!", "name")


def test_words_are_remembered_within_a_bound(directory):
    tokenizer = directory.load()
    process = psutil.Process()

    def growth_mb():
        before = process.memory_info().rss
        for i in range(10_000):
            tokenizer.encode(f"{i:05}".translate(LETTERS) * 40)
        return (process.memory_info().rss - before) / 1e6

    with ThreadPoolExecutor(1) as fresh:  # what is remembered is a thread's own
        assert fresh.submit(growth_mb).result() < 40  # 67 with the bound of the library
