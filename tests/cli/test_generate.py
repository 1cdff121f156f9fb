from __future__ import annotations

import argparse
import io
import json
import os
import re
import subprocess
import sys
import time
from dataclasses import fields

import pytest

from drut import LLM, SamplingParams
from drut.cli import sampling, stdin
from drut.cli.main import main
from drut.cli.terminal import Writer
from tests.engine.models import write_poisoned_model

JSON_KEYS = {
    "reasoning_tokens",
    "text",
    "token_ids",
    "finish_reason",
    "prompt_tokens",
    "cached_tokens",
    "completion_tokens",
    "seed",
    "index",
    "why",
    "stop_reason",
    "timings",
}


@pytest.fixture
def answer(tiny):
    """What the Python surface answers."""

    def ask(prompt, chat=False, **params):
        given = {"temperature": 0, **params}
        with LLM(tiny) as llm:
            if chat:
                return llm.chat([{"role": "user", "content": prompt}], SamplingParams(**given))[0]
            return llm.generate(prompt, SamplingParams(**given))[0]

    return ask


@pytest.mark.parametrize("flag", [(), ("--json",)])
def test_answers_are_shown_before_the_failure_of_one(tmp_path, capsys, flag):
    model = str(write_poisoned_model(tmp_path, token=ord("!")))
    prompts = [word for prompt in ("hello", "oh!", "a") for word in ("--prompt", prompt)]
    assert main(["generate", "--temperature", "0", model, *prompts, "--max-tokens", "5", *flag]) == 2
    out, err = capsys.readouterr()
    assert "error: prompt 2 of 3: the model's logits are not finite" in err.splitlines()[-1]
    if flag:
        assert [json.loads(line)["finish_reason"] for line in out.splitlines()] == ["length", "error", "length"]
    else:
        assert "[3] a" in out


def pipe_in(monkeypatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def flags(*argv) -> SamplingParams:
    parser = argparse.ArgumentParser()
    sampling.add_flags(parser)
    return sampling.from_flags(parser.parse_args(argv))


def test_a_single_answer_is_the_text_and_speed_is_told_beside_it(tiny, answer, capsys):
    assert main(["generate", "--temperature", "0", tiny, "--prompt", "Asha", "--max-tokens", "20"]) == 0
    out, err = capsys.readouterr()
    assert out == answer("Asha", max_tokens=20).text + "\n"
    first, last = err.splitlines()
    assert "tiny.gguf: " in first
    assert " numerics drut-" in first
    assert last.startswith("20 tokens, the first after ")
    assert last.endswith(" tokens/s (ended by length)")


def test_json_is_one_object_a_prompt_and_a_batch_changes_no_answer(tiny, answer, capsys):
    argv = ["generate", tiny, "--temperature", "0",
            "--prompt", "one", "--prompt", "twenty two", "--json", "--max-tokens", "9"]
    assert main([*argv, "--temperature", "0.8", "--seed", "5"]) == 0
    objects = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [set(o) for o in objects] == [JSON_KEYS] * 2
    for prompt, got in zip(("one", "twenty two"), objects, strict=True):
        alone = answer(prompt, max_tokens=9, temperature=0.8, seed=5)
        assert got["token_ids"] == alone.token_ids
        assert got["text"] == alone.text
        assert got["prompt_tokens"] == len(prompt)
        assert (got["completion_tokens"], got["finish_reason"], got["cached_tokens"]) == (9, "length", 0)
        assert {"load_s", "ttft_s", "decode_tokens_per_s"} <= set(got["timings"])


def test_several_answers_come_in_order_under_their_prompts(tiny, answer, capsys):
    argv = ["generate", tiny, "--temperature", "0", "--prompt", "a\nb", "--prompt", "c", "--max-tokens", "5"]
    assert main(argv) == 0
    out, err = capsys.readouterr()
    first, second = (answer(p, max_tokens=5).text for p in ("a\nb", "c"))
    assert out == f"[1] a b\n{first}\n\n[2] c\n{second}\n"
    assert "2 answers, 10 tokens in " in err


def test_chat_puts_the_prompt_into_the_template(tiny, answer, capsys):
    assert main(["generate", "--temperature", "0", tiny, "--chat", "--prompt", "Namaste", "--max-tokens", "8"]) == 0
    assert capsys.readouterr().out == answer("Namaste", chat=True, max_tokens=8).text + "\n"


def test_a_stop_text_ends_the_answer(tiny, answer, capsys):
    text = answer("Asha", max_tokens=20).text
    stop = text[7:9]
    argv = ["generate", tiny, "--temperature", "0",
            "--prompt", "Asha", "--max-tokens", "20", "--stop", "NEVER", "--stop", stop]
    assert main(argv) == 0
    out, err = capsys.readouterr()
    assert out == text[: text.index(stop)] + "\n"
    assert "(ended by stop)" in err


def test_a_prompt_out_of_a_pipe_loses_its_last_line_end_only(tiny, answer, capsys, monkeypatch):
    pipe_in(monkeypatch, "दो\nlines\n\n".encode())
    assert main(["generate", "--temperature", "0", tiny, "--prompt", "-", "--max-tokens", "6"]) == 0
    assert capsys.readouterr().out == answer("दो\nlines\n", max_tokens=6).text + "\n"


@pytest.mark.parametrize(
    ("data", "words"), [(b"ab\xff", "not UTF-8 text (byte 2)"), (b"long", "longer than 3 bytes")]
)
def test_a_pipe_that_holds_no_prompt_is_one_line(tiny, capsys, monkeypatch, data, words):
    monkeypatch.setattr(stdin, "MAX_BYTES", 3)
    pipe_in(monkeypatch, data)
    assert main(["generate", "--temperature", "0", tiny, "--prompt", "-"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("drut: error: --prompt -: standard input is ")
    assert err.endswith(f"{words}\n")


def test_sampling_flags_are_the_fields_of_sampling_params():
    assert flags() == SamplingParams()
    given = SamplingParams(max_tokens=7, temperature=0.25, top_p=0.5, top_k=4, min_p=0.125, seed=11, stop=("x", "y"),
                           min_tokens=2, repetition_penalty=1.5, presence_penalty=0.5, frequency_penalty=-0.5)
    argv = ("--max-tokens 7 --temperature .25 --top-p .5 --top-k 4 --min-p .125 --seed 11 --stop x --stop y "
            "--min-tokens 2 --repetition-penalty 1.5 --presence-penalty .5 --frequency-penalty -.5")
    assert flags(*argv.split()) == given
    untold = {f.name for f in fields(given) if getattr(given, f.name) == getattr(SamplingParams(), f.name)}
    # Every other field has a flag, which this test gives; what an answer must look like has flags of its own.
    assert untold == {"ignore_eos", "include_stop_str_in_output", "skip_special_tokens", "n", "stop_token_ids",
                      "logit_bias", "logprobs", "prompt_logprobs", "constraint", "reasoning", "shown_special_ids",
                      "speculation"}


def test_a_model_s_words_cannot_steer_a_terminal(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    text = "a\x1b[2Jb\rc\x9b\td\n‍क्‍ष\u200d"
    for stream, shown in ((Terminal(), "a[2Jbc\td\n‍क्‍ष\u200d\n"), (io.StringIO(), text + "\n")):
        monkeypatch.setattr(sys, "stdout", stream)
        with Writer() as out:
            for character in text:
                out.write(character)
        assert stream.getvalue() == shown


@pytest.mark.serial
@pytest.mark.model
def test_the_default_model_answers_within_three_seconds_of_its_start(capsys):
    model = "smollm2-135m-instruct"
    argv = ["generate", model, "--temperature", "0", "--chat", "--prompt", "What is the capital of India?"]
    assert main([*argv, "--max-tokens", "20"]) == 0
    assert "Delhi" in capsys.readouterr().out

    def start_to_first_token() -> float:
        started = time.monotonic()
        command = [sys.executable, "-m", "drut", *argv]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=os.environ
        ) as process:
            assert process.stdout is not None
            assert process.stdout.read(1)
            seconds = time.monotonic() - started
            process.kill()
        return seconds

    assert any(start_to_first_token() < 3 for _ in range(3))  # a busy machine may be slow once


def test_an_answer_can_be_made_to_fit(tiny, tmp_path, capsys):
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 2}')
    common = ["generate", tiny, "--temperature", "0", "--prompt", "a", "--max-tokens", "40"]
    assert main([*common, "--json-schema", str(schema)]) == 0
    values = json.loads(capsys.readouterr().out)
    assert [type(value) for value in values] == [bool, bool]
    assert main([*common, "--regex", "[xy]{3}!"]) == 0
    assert re.fullmatch("[xy]{3}!", capsys.readouterr().out.strip())


@pytest.mark.parametrize(("flags", "named"), [
    (["--json-schema", "/nowhere.json"], "--json-schema /nowhere.json: No such file"), (["--regex", "(["], "regex")])
def test_what_it_cannot_be_made_to_fit_is_named(tiny, capsys, flags, named):
    assert main(["generate", "--temperature", "0", tiny, "--prompt", "a", *flags]) == 2
    assert named in capsys.readouterr().err


def test_the_streams_of_a_pipeline_hold_no_terminals_codes_and_no_traceback(tiny):
    """As in `... | drut generate MODEL --prompt - > out 2> err`, and where the reader goes before the end."""
    command = [sys.executable, "-m", "drut", "generate", tiny, "--temperature", "0", "--prompt", "-",
               "--max-tokens", "60"]
    done = subprocess.run(command, input=b"The capital of France is\n", capture_output=True, timeout=120)
    assert done.returncode == 0
    assert len(done.stdout.strip()) > 8
    assert b"\x1b" not in done.stdout + done.stderr
    assert b"\r" not in done.stderr
    read, written = os.pipe()
    os.close(read)
    broken = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=written, stderr=subprocess.PIPE)
    os.close(written)
    _, err = broken.communicate(b"The capital of France is\n", timeout=120)
    assert broken.returncode != 0
    assert b"Traceback" not in err
    assert b"\x1b" not in err
