"""Tokenizers from names, files and folders."""

import pytest

from drut.bench.tokens import LocalTokenizer, open_tokenizer
from drut.errors import ModelFileError, RequestError
from tests.bench.tokens.vocabularies import BUILDS
from tests.model.gguf_writer import gguf
from tests.model.test_tokenizer_hf import ADDED, ALPHABET


@pytest.fixture
def folder(tmp_path):
    tokenizer, trainer = BUILDS["gpt-2"]()
    tokenizer.train_from_iterator(["to be or not to be"], trainer)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def test_folder_and_file_are_the_same(folder):
    one, other = (LocalTokenizer.open(str(path)) for path in (folder, folder / "tokenizer.json"))
    assert one.encode("to be") == other.encode("to be") != []
    assert one.decode(one.encode("to be, or")) == "to be, or"
    assert one.count("to be") == len(one.encode("to be"))


def test_special_tokens_in_a_text_are_text(folder):
    tokenizer = LocalTokenizer.open(str(folder))
    assert tokenizer.count("<s>") > 1
    assert tokenizer.decode(tokenizer.encode("<s>")) == "<s>"


def test_gguf_of_an_unknown_architecture(tmp_path):
    """Only the tokenizer's keys are looked at: there is not one tensor."""
    tokens = [*ALPHABET, "ab", *(text for _, text, _ in ADDED)]
    types = [1] * (len(ALPHABET) + 1) + [3 if special else 4 for _, _, special in ADDED]
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf({
        "general.architecture": "no-such", "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "llama-bpe",
        "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": types, "tokenizer.ggml.merges": ["a b"]}))
    assert LocalTokenizer.open(str(path)).encode("ab") == [len(ALPHABET)]


@pytest.mark.parametrize(("reference", "error", "words"), [
    ("hf:no/such", RequestError, "is not on this machine"),
    ("{}/none", ModelFileError, "No such file"),
    ("~nobody-of-that-name/x", RequestError, "home"),
    ("x" * 300, RequestError, "name too long"),
    ("{}/other.json", ModelFileError, "a tokenizer's file must be called tokenizer.json"),
    ("{}/empty.gguf", ModelFileError, "the file is empty"),
])
def test_what_is_no_tokenizer(tmp_path, monkeypatch, reference, error, words):
    monkeypatch.setenv("DRUT_HOME", str(tmp_path))
    (tmp_path / "empty.gguf").touch()
    with pytest.raises(error, match=words):
        LocalTokenizer.open(reference.format(tmp_path))


def test_a_path_as_the_model_is_its_tokenizer(folder):
    assert open_tokenizer(model=str(folder)).name == str(folder)


def test_what_was_given_wins(folder):
    assert open_tokenizer(str(folder), model="anything", url="http://127.0.0.1:1").name == str(folder)


def test_none_names_the_remedy():
    with pytest.raises(RequestError, match=r"no tokenizer for model 'm/x'.*--tokenizer"):
        open_tokenizer(model="m/x")
    for model in ("~nobody-of-that-name", "x" * 300):
        with pytest.raises(RequestError, match="no tokenizer for model"):
            open_tokenizer(model=model)
    with pytest.raises(RequestError, match=r"no tokenizer for model 'm/x'.*refused.*--tokenizer"):
        open_tokenizer(model="m/x", url="http://127.0.0.1:1")
