import json
import unicodedata
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from drut.errors import ModelFileError, RequestError, UnsupportedError
from drut.model.model import open_model
from drut.model.tokenizer import from_gguf
from drut.model.tokenizer.pieces import byte_alphabet
from tests.cli import tiny
from tests.model.gguf_writer import ARRAY, Typed
from tests.model.tokenizer_reference import PRE_TOKENIZERS, TEXTS, random_texts, reference

CONTROL, USER_DEFINED, UNUSED = 3, 4, 5
U8, I32, GGUF_F32 = 0, 5, 6  # of elements


@dataclass
class Family:
    metadata: dict
    reference: Tokenizer


def train(pre):
    """A small vocabulary cut the way `pre` cuts, so that its merges cross every boundary the rules allow."""
    trainee = Tokenizer(models.BPE())
    trainee.pre_tokenizer = reference(pre, {}, []).pre_tokenizer
    trainer = trainers.BpeTrainer(
        vocab_size=700, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    trainee.train_from_iterator((*TEXTS, *TEXTS), trainer)
    model = json.loads(trainee.to_str())["model"]
    return model["vocab"], [tuple(merge) for merge in model["merges"]]


@pytest.fixture(scope="module", params=PRE_TOKENIZERS)
def family(request):
    pre = request.param
    vocab, merges = train(pre)
    words = {**vocab, "qqqzzz": len(vocab)}  # no merges lead to it
    tokens = sorted(words, key=words.get)
    added = [
        (len(tokens) + i, text, special)
        for i, (text, special) in enumerate(
            [("<|im_start|>", True), ("<|im_end|>", True), ("<|im_end|>\nuser", True), ("<tool>", False)]
        )
    ]
    metadata = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens + [text for _, text, _ in added],
        "tokenizer.ggml.token_type": [1] * len(tokens) + [CONTROL if s else USER_DEFINED for *_, s in added],
        "tokenizer.ggml.merges": [" ".join(merge) for merge in merges],
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.ggml.bos_token_id": len(tokens),
        "tokenizer.ggml.eos_token_id": len(tokens) + 1,
    }
    return Family(metadata, reference(pre, words, merges, added))


def test_ids_equal_those_of_the_published_layout(family):
    tokenizer = from_gguf(family.metadata, "tiny")
    for text in (*TEXTS, "qqqzzz", "a qqqzzz", "x<tool>y", "cafe\u0301<tool>"):
        assert tokenizer.encode(text) == family.reference.encode(text).ids, text
    assert tokenizer.vocab_size == family.reference.get_vocab_size()


def test_ids_of_random_texts_equal_those_of_the_published_layout(family):
    tokenizer = from_gguf(family.metadata, "tiny")

    @settings(max_examples=150, deadline=None)
    @given(random_texts)
    def check(text):
        assert tokenizer.encode(text) == family.reference.encode(text).ids

    check()


def test_text_beside_an_added_token_is_cut_as_the_published_layout_cuts_it(family):
    """llama.cpp#7049: it was not."""
    tokenizer = from_gguf(family.metadata, "tiny")
    for text in ("<|im_start|>user", "user", "<|im_start|>", " user", "<|im_end|>\nuser", "<|im_start|> user"):
        assert tokenizer.encode(text) == family.reference.encode(text).ids, text


def test_decoding_returns_the_text(family):
    tokenizer = from_gguf(family.metadata, "tiny")
    normalize = family.reference.normalizer.normalize_str if family.reference.normalizer else str
    for text in TEXTS:
        assert tokenizer.decode(tokenizer.encode(text), skip_special=False) == normalize(text)


def test_special_tokens_typed_by_a_user_are_text(family):
    tokenizer = from_gguf(family.metadata, "tiny")
    for text in ("<|im_start|>user", "<|im_end|>\nuser", "a<tool><|im_end|>"):
        ids = tokenizer.encode(text, parse_special=False)
        assert not tokenizer.special_ids & set(ids)
        assert tokenizer.decode(ids) == text
    tool = tokenizer.id_of("<tool>")
    assert tool in tokenizer.encode("a<tool>", parse_special=False)
    assert tool not in tokenizer.special_ids


@pytest.fixture
def metadata():
    """Letters and their pairs: enough for everything but the splitting rules."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = [*alphabet, "ab", "<s>", "</s>", "<eot>", "<eom>", "secret"]
    n = len(alphabet)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "llama-bpe",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [1] * (n + 1) + [CONTROL] * 5,
        "tokenizer.ggml.merges": ["a b"],
        "tokenizer.ggml.bos_token_id": n + 1,
        "tokenizer.ggml.eos_token_id": n + 2,
        "tokenizer.ggml.eot_token_id": n + 3,
        "tokenizer.ggml.eom_token_id": n + 4,
        "tokenizer.chat_template": "{{ messages }}",
    }


def test_a_control_token_is_no_word_of_the_vocabulary(metadata):
    tokenizer = from_gguf(metadata, "m")
    secret = tokenizer.id_of("secret")
    assert secret in tokenizer.encode("secret")
    assert secret not in tokenizer.encode("secret", parse_special=False)


def test_the_rules_beside_the_vocabulary(metadata):
    tokenizer = from_gguf(metadata, "m")
    ids = [tokenizer.id_of(t) for t in ("<s>", "</s>", "<eot>", "<eom>")]
    assert (tokenizer.bos_id, tokenizer.bos_token, tokenizer.eos_token) == (ids[0], "<s>", "</s>")
    assert tokenizer.eos_ids == set(ids[1:])
    assert tokenizer.special_ids == {*ids, tokenizer.id_of("secret")}
    assert tokenizer.chat_template == "{{ messages }}"
    assert tokenizer.id_of("nothing") is None


@pytest.mark.parametrize("given", [None, True, False])
@pytest.mark.parametrize(("pre", "unless_given"), [("llama-bpe", True), ("gpt-2", False)])
def test_bos_in_front_as_the_file_or_the_family_says(metadata, pre, unless_given, given):
    metadata |= {"tokenizer.ggml.pre": pre, "tokenizer.ggml.add_bos_token": given}
    tokenizer = from_gguf(metadata, "m")
    expected = unless_given if given is None else given
    bare = tokenizer.encode("ab", add_special=False)
    assert tokenizer.add_bos == expected
    assert tokenizer.encode("ab") == ([tokenizer.bos_id, *bare] if expected else bare)


def test_eos_at_the_end_where_the_file_says_so_but_not_of_a_chat(metadata):
    tokenizer = from_gguf(metadata | {"tokenizer.ggml.add_eos_token": True}, "m")
    (eos,) = tokenizer.encode("</s>", add_special=False)
    assert tokenizer.encode("ab")[-1] == eos
    assert tokenizer.encode_chat("ab")[-1] != eos


def test_a_chat_prompt_has_one_bos(metadata):
    tokenizer = from_gguf(metadata, "m")
    bare = tokenizer.encode("ab", add_special=False)
    assert tokenizer.encode_chat("<s>ab") == tokenizer.encode_chat("ab") == [tokenizer.bos_id, *bare]
    without = from_gguf(metadata | {"tokenizer.ggml.add_bos_token": False}, "m")
    assert without.encode_chat("ab") == bare


def test_bytes_of_tokens(metadata):
    tokenizer = from_gguf(metadata, "m")
    assert tokenizer.token_bytes(tokenizer.id_of("Ġ")) == b" "
    assert tokenizer.token_bytes(tokenizer.id_of("Ċ")) == b"\n"
    assert tokenizer.token_bytes(tokenizer.id_of("</s>")) == b"</s>"
    assert sorted(tokenizer.token_bytes(i) for i in range(256)) == [bytes([b]) for b in range(256)]
    for outside in (-1, tokenizer.vocab_size, 2**31, 2**40):
        assert tokenizer.token_bytes(outside) == b""


def test_skipping_special_tokens(metadata):
    tokenizer = from_gguf(metadata, "m")
    ids = tokenizer.encode("<s>ab</s>", add_special=False)
    assert tokenizer.decode(ids) == "ab"
    assert tokenizer.decode(ids, skip_special=False) == "<s>ab</s>"


@pytest.mark.parametrize("text", ["\ud800", "ok \udfff", b"bytes", None])
def test_text_that_is_no_text(metadata, text):
    with pytest.raises(RequestError, match="text"):
        from_gguf(metadata, "m").encode(text)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model", "rwkv"),
        ("model", "x" * 10**6),
        ("pre", "superb"),
        ("add_space_prefix", True),
    ],
)
def test_what_is_not_supported_is_named(metadata, key, value):
    with pytest.raises(UnsupportedError) as caught:
        from_gguf(metadata | {f"tokenizer.ggml.{key}": value}, "m.gguf")
    message = str(caught.value)
    assert "m.gguf" in message
    assert key in message or str(value)[:40] in message
    assert len(message) < 2000


def test_without_a_name_text_is_cut_by_default_and_the_log_says_so(metadata, caplog):
    nameless = from_gguf(metadata | {"tokenizer.ggml.pre": None}, "m.gguf")
    assert "m.gguf: no tokenizer.ggml.pre" in caplog.text
    default = from_gguf(metadata | {"tokenizer.ggml.pre": "default"}, "m.gguf")
    for text in TEXTS:
        assert nameless.encode(text) == default.encode(text)


ALIASES = {"llama-bpe": ["llama3", "llama-v3"], "qwen2": ["deepseek-r1-qwen", "megrez"], "gpt-2": ["phi-2"]}


@pytest.mark.parametrize(("name", "other"), [(name, other) for name in ALIASES for other in ALIASES[name]])
def test_other_names_of_a_splitting_split_alike(metadata, name, other):
    one, two = (from_gguf(metadata | {"tokenizer.ggml.pre": pre}, "m") for pre in (name, other))
    assert one.add_bos == two.add_bos
    for text in TEXTS:
        assert one.encode(text) == two.encode(text)


def without(metadata, data):
    """The metadata without the entries that spell `data`, a byte each."""
    spelled = {byte: char for char, byte in byte_alphabet().items()}
    tokens = list(metadata["tokenizer.ggml.tokens"])
    for byte in data:
        tokens[tokens.index(spelled[byte])] = f"rare{byte}"
    return metadata | {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.merges": []}


def test_bytes_of_ordinary_text_that_the_vocabulary_lacks_are_named_at_load(metadata, caplog):
    from_gguf(metadata, "100%s.gguf")
    assert not caplog.text
    for _ in range(2):
        from_gguf(without(metadata, b"A\x04\n\xf1\xff"), "100%s.gguf")
    (record,) = caplog.records  # one, though the file was opened twice
    assert record.getMessage() == ("100%s.gguf: tokenizer.ggml.tokens has no entry for the bytes 0x0A, 0x41 (A): text "
                                   "loses them")


def test_bytes_that_ordinary_text_has_not_are_named_to_those_who_debug_alone(metadata, caplog):
    """Published vocabularies have no entry for bytes that their training text did not have."""
    ordinary = {byte for code in range(0x40000) if unicodedata.category(chr(code)) not in ("Cc", "Cn", "Co", "Cs")
                for byte in chr(code).encode()} | set(b"\t\n\r")
    from_gguf(without(metadata, {*range(256)} - ordinary), "m.gguf")
    assert not caplog.records
    caplog.set_level("DEBUG")
    from_gguf(without(metadata, b"\x04\xf1"), "m.gguf")
    assert "no entry for the bytes 0x04, 0xF1" in caplog.text
    for byte in sorted(ordinary):
        from_gguf(without(metadata, [byte]), "m.gguf")
        assert f"0x{byte:02X}" in caplog.records[-1].getMessage()
        assert caplog.records[-1].levelname == "WARNING"


def test_one_bos_where_the_template_writes_it_after_white_space(metadata):
    tokenizer = from_gguf(metadata, "m")
    assert tokenizer.encode_chat("\n <s>ab").count(tokenizer.bos_id) == 1
    assert tokenizer.encode_chat("\n <s>ab") == tokenizer.encode("\n <s>ab", add_special=False)
    assert tokenizer.encode_chat("x <s>ab").count(tokenizer.bos_id) == 2


def test_rows_that_fill_a_vocabulary_up_have_no_text(metadata):
    padded = len(metadata["tokenizer.ggml.tokens"])
    metadata["tokenizer.ggml.tokens"] += ["[PAD0]", "[PAD1]"]
    metadata["tokenizer.ggml.token_type"] += [UNUSED] * 2
    tokenizer = from_gguf(metadata, "m")
    assert tokenizer.vocab_size == padded
    assert tokenizer.decode([padded, tokenizer.id_of("ab"), padded + 1], skip_special=False) == "ab"
    assert tokenizer.decode(tokenizer.encode("[PAD0]", add_special=False)) == "[PAD0]"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model", None),
        ("model", 7),
        ("pre", 7),
        ("tokens", None),
        ("tokens", "abc"),
        ("tokens", [1, 2]),
        ("tokens", ["a"]),
        ("token_type", None),
        ("token_type", [1]),
        ("token_type", ["1"]),
        ("merges", None),
        ("merges", ["ab"]),
        ("merges", ["a b c"]),
        ("merges", ["a " + "z" * 10**6]),
        ("merges", ["a c"]),
        ("merges", [["a", "b"]]),
        ("bos_token_id", 10**9),
        ("bos_token_id", -1),
        ("eos_token_id", "2"),
        ("eot_token_id", 2**70),
        ("add_bos_token", 1),
        ("add_eos_token", "yes"),
    ],
)
def test_a_damaged_value_is_one_error_that_names_its_key(metadata, key, value):
    with pytest.raises(ModelFileError) as caught:
        from_gguf(metadata | {f"tokenizer.ggml.{key}": value}, "m.gguf")
    message = str(caught.value)
    assert "m.gguf" in message
    assert f"tokenizer.ggml.{key}" in message
    assert "\n" not in message
    assert len(message) < 300


def test_arrays_are_read_as_the_type_they_declare(tmp_path):
    """llama.cpp#24888: elements were read as another type, past the end of the array."""
    def loaded(item, kinds):
        path = tmp_path / "m.gguf"
        path.write_bytes(tiny.model(tokenizer__ggml__token_type=Typed(ARRAY, kinds, item=item)))
        return open_model(path).tokenizer()

    kinds = [1] * 256 + [CONTROL] * 2
    for item in (U8, I32):
        assert loaded(item, kinds).special_ids == {256, 257}
        with pytest.raises(ModelFileError, match=r"tokenizer\.ggml\.token_type"):
            loaded(item, kinds[:-1])
    with pytest.raises(ModelFileError, match=r"tokenizer\.ggml\.token_type"):
        loaded(GGUF_F32, kinds)


@pytest.mark.parametrize("change", [(0, 7), (0, -1), (-1, 99)])
def test_an_unknown_token_type_is_named(metadata, change):
    metadata["tokenizer.ggml.token_type"][change[0]] = change[1]
    with pytest.raises(ModelFileError, match=f"type {change[1]}"):
        from_gguf(metadata, "m")


def test_a_token_that_stands_twice_is_named(metadata):
    metadata["tokenizer.ggml.tokens"][0] = "ab"
    with pytest.raises(ModelFileError, match=r"tokens has 'ab' twice"):
        from_gguf(metadata, "m")


def test_an_empty_control_token_is_refused(metadata):
    metadata["tokenizer.ggml.tokens"][-1] = ""
    with pytest.raises(ModelFileError, match="is empty"):
        from_gguf(metadata, "m")


def test_a_template_that_is_no_text_is_named(metadata):
    with pytest.raises(ModelFileError, match="chat_template"):
        from_gguf(metadata | {"tokenizer.chat_template": 5}, "m")
