"""Whatever a user or a file does wrong is one line that names the thing, exit code 2, nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from drut.cli.main import main
from drut.kernels.native import library
from drut.plan.roof import OPERANDS, Roof
from tests.cli.tiny import CONTEXT, metadata, model, tensors
from tests.golden.weights import write_checkpoint
from tests.model.gguf_writer import Tensor, gguf

IQ3_S = 21


def bad_tensor(name: str, **changes: object) -> bytes:
    """The tiny model with one tensor changed; without changes it is left out."""
    made = []
    for t in tensors():
        if t.name != name:
            made.append(t)
        elif changes:
            made.append(Tensor(**(vars(t) | changes)))
    return gguf(metadata(), made)


FILES = {
    "gone.gguf": (None, "gone.gguf"),
    "text.gguf": (b"once upon a time", "text.gguf: not a GGUF file"),
    "empty.gguf": (b"", "empty.gguf: not a GGUF file"),
    "cut.gguf": (model()[:-100], "'blk.1.ffn_norm.weight' ends at byte"),
    "cut_header.gguf": (model()[:300], "tensor count of 20 is more than the file can hold"),
    "architecture.gguf": (model(general__architecture="mamba9"), "architecture 'mamba9' is not supported"),
    "no_architecture.gguf": (gguf({"a": 1}), "key 'general.architecture' is missing"),
    "no_heads.gguf": (
        model(llama__attention__head_count=None),
        "key 'llama.attention.head_count' is missing",
    ),
    "missing.gguf": (bad_tensor("blk.0.attn_q.weight"), "tensor 'blk.0.attn_q.weight' is missing"),
    "shape.gguf": (
        bad_tensor("output_norm.weight", dims=(8, 4)),
        "tensor 'output_norm.weight' has shape [4, 8]",
    ),
}
FOR_ANSWERS = {  # `drut show` describes these
    "tokenizer.gguf": (model(tokenizer__ggml__model="rwkv"), "tokenizer 'rwkv' is not supported"),
    "pre.gguf": (model(tokenizer__ggml__pre="klingon"), "tokenizer.ggml.pre 'klingon' is not supported"),
    "quantization.gguf": (
        bad_tensor("token_embd.weight", dims=(256, 258), kind=IQ3_S, data=bytes(258 * 110)),
        "token_embd.weight",
    ),
}
PROMPT = ["--prompt", "x"]
SETTINGS = [
    (["--max-tokens", "0"], "max_tokens"),
    (["--temperature", "-1"], "temperature"),
    (["--temperature", "nan"], "temperature"),
    (["--temperature", "hot"], "--temperature"),
    (["--top-p", "0"], "top_p"),
    (["--top-p", "1.5"], "top_p"),
    (["--top-k", "-1"], "top_k"),
    (["--top-k", "2.5"], "--top-k"),
    (["--min-p", "2"], "min_p"),
    (["--seed", str(1 << 64)], "seed"),
    (["--seed", "lucky"], "--seed"),
    (["--stop", ""], "stop"),
    (["--threads", "0"], "threads"),
    (["--threads", "all"], "--threads"),
    (["--kv-cache-gb", "nan"], "kv_cache_gb"),
    (["--kv-cache-gb", "1e-9"], "kv_cache_gb"),
    (["--kv-cache-gb", "1e6"], "set kv_cache_gb, max_batch_tokens or max_seqs lower"),
    (["--kv-cache-gb", "1e6", "--backend", "numpy"], "set kv_cache_gb, max_batch_tokens or max_seqs lower"),
    (["--kv-dtype", "int3"], "--kv-dtype"),
    (["--backend", "abacus"], "--backend"),
    (["--speed", "11"], "--speed"),
]
REQUESTS = [
    (["--prompt", "x" * CONTEXT], f"the prompt has {CONTEXT} tokens; the context of {CONTEXT}"),
    (["--prompt", ""], "the prompt is empty"),
    (["--prompt", "\udcff"], "U+DCFF"),
    ([], "--prompt"),
]


def one_error(capsys, argv) -> str:
    assert main(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert [line for line in lines if line.startswith("drut: error: ")] == lines[-1:]
    assert len(lines) < 3  # the first may say what computes
    return lines[-1]


@pytest.fixture
def write(tiny, tmp_path):
    def write(name: str, data: bytes | None) -> str:
        path: Path = tmp_path / name
        if data is not None:
            path.write_bytes(data)
        return str(path)

    return write


@pytest.mark.parametrize("command", [["generate", *PROMPT], ["chat"], ["show"]], ids=lambda c: c[0])
@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_no_model(write, capsys, command, name):
    data, words = FILES[name]
    assert words in one_error(capsys, [command[0], write(name, data), *command[1:]])


@pytest.mark.parametrize("command", [["generate", *PROMPT], ["chat"]], ids=lambda c: c[0])
@pytest.mark.parametrize("name", FOR_ANSWERS)
def test_a_model_that_is_not_supported(write, capsys, command, name):
    data, words = FOR_ANSWERS[name]
    assert words in one_error(capsys, [command[0], write(name, data), *command[1:]])


@pytest.mark.parametrize("command", [["generate", *PROMPT], ["chat"]], ids=lambda c: c[0])
@pytest.mark.parametrize(("argv", "words"), SETTINGS)
def test_a_setting_that_cannot_be(tiny, capsys, command, argv, words):
    assert words in one_error(capsys, [command[0], tiny, *command[1:], *argv])


@pytest.mark.parametrize(("argv", "words"), REQUESTS)
def test_a_prompt_that_cannot_be_answered(tiny, capsys, argv, words):
    assert words in one_error(capsys, ["generate", tiny, *argv])


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("DRUT_THREADS", "many", "DRUT_THREADS='many' is not an integer"),
        ("DRUT_THREADS", "0", "DRUT_THREADS must be from 1 to 1024, not 0"),
        ("DRUT_BACKEND", "abacus", "DRUT_BACKEND must be one of auto, native, numpy"),
        ("DRUT_DEBUG_KV", "maybe", "DRUT_DEBUG_KV='maybe' is not one of 1, true"),
    ],
)
def test_a_setting_of_the_environment(tiny, capsys, monkeypatch, name, value, words):
    monkeypatch.setenv(name, value)
    assert words in one_error(capsys, ["generate", tiny, *PROMPT])


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("", "the name of the model is empty"),
        ("org/model", "for the Hugging Face hub write hf:org/model"),
        ("https://huggingface.co/org/model", "write hf:ORG/REPO"),
    ],
)
def test_a_name_that_is_no_model(capsys, model, words):
    assert words in one_error(capsys, ["show", model])


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--batch", "129"], "--batch must be numbers from 1 to 128 (--max-seqs)"),
        (["--batch", "2,"], "--batch must be numbers"),
        (["--batch", "100"], "a batch of 100 needs 500 pages, the KV cache has 40"),
        (["--prompt-tokens", "0"], "--prompt-tokens must be from 1 to"),
    ],
)
@pytest.mark.skipif(library.load() is None, reason="the native kernels are not built")
def test_a_profile_that_cannot_be(tiny, tmp_path, capsys, monkeypatch, argv, words):
    monkeypatch.setenv("DRUT_HOME", str(tmp_path))
    roof = Roof("cpu", "isa", {1: {1: 1.0}}, {name: {1: 1.0} for name in OPERANDS})
    monkeypatch.setattr("drut.plan.probe.measure", lambda _: roof)
    assert words in one_error(capsys, ["profile", tiny, "--prompt-tokens", "16", *argv])


@pytest.mark.parametrize("command", [["generate", *PROMPT, "--chat"], ["chat"]], ids=lambda c: c[0])
def test_a_model_that_only_continues_text_does_not_chat(write, capsys, command):
    path = write("plain.gguf", model(tokenizer__chat_template=None))
    assert "plain.gguf has no chat template" in one_error(capsys, [command[0], path, *command[1:]])


def test_a_model_without_a_tokenizer_takes_no_text(write, capsys, tmp_path):
    path = write_checkpoint("llama_tied", tmp_path / "bare")
    assert "bare has no tokenizer" in one_error(capsys, ["generate", str(path), *PROMPT])


@pytest.mark.parametrize("name", ["gone.gguf", "cut.gguf", "tokenizer.gguf"])
def test_the_command_itself_leaves_no_traceback(write, name):
    data, words = (FILES | FOR_ANSWERS)[name]
    command = [sys.executable, "-m", "drut", "generate", write(name, data), *PROMPT]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("drut: error: ")
    assert done.stderr.count("\n") == 1
    assert words in done.stderr
