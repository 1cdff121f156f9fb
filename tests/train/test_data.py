"""Prompts, answers and batches: what a drafter learns from. Nothing here needs torch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from drut import LLM, SamplingParams
from drut.errors import RequestError
from drut.train import answers as answers_of
from drut.train.answers import TOP, AnswerSet, generate
from drut.train.batches import Batches
from drut.train.prompts import TrainPrompt, digest, read_prompts, split


@pytest.fixture(scope="module")
def llm(tiny: Path) -> Iterator[LLM]:
    with LLM(tiny, threads=1, kv_cache_gb=0.01) as opened:
        yield opened


def test_prompts_are_rendered(llm: LLM, prompts: Path) -> None:
    read = read_prompts(prompts, llm, 12)
    assert len(read) == 24
    assert read[0].ids == llm.encode_chat([{"role": "user", "content": "question 0"}])
    assert read[20].ids == llm.encode_chat([{"role": "user", "content": "message 0"}])
    assert (read[23].ids, read[23].max_tokens, read[23].line) == ([104, 105, 98], 3, 24)
    assert read[0].max_tokens == 12


@pytest.mark.parametrize(("text", "why"), [
    ('{"prompt": "a"}\n{"prompt": 3}\n', "line 2"), ('{"prompt": "a"}\n{}\n', "line 2: exactly one of"),
    ('{"prompt": "a"}\n', "one prompt; at least 2"), ("", "no line"), ("nothing\n", "line 1"),
    ('{"prompt": "%s"}\n' % ("x" * 400), r"line 1: 4\d\d tokens; a prompt may have 1 to 159"),
    ('{"prompt": []}\n', "line 1: 0 tokens"), ('{"prompt": [300]}\n', "line 1: token id 300 is not in the vocabulary"),
    ('{"messages": [{"role": "user", "content": 3}]}\n', "line 1: ")])
def test_an_error_names_the_line(llm: LLM, tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text(text)
    with pytest.raises(RequestError, match=why) as caught:
        read_prompts(path, llm, 8)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("count", [2, 3, 19, 20, 41, 5000])
def test_each_prompt_is_in_one_part(count: int) -> None:
    lines = [TrainPrompt(i, [i], 8) for i in range(count)]
    training, held_out = split(lines)
    assert sorted(p.line for p in (*training, *held_out)) == list(range(count))
    assert len(held_out) == min(max(1, count // 20), 64)
    assert training


def test_the_digest_sees_ids_and_limits() -> None:
    lines = [TrainPrompt(1, [1, 2], 8), TrainPrompt(2, [3], 8)]
    others = [[lines[0], replace(lines[1], ids=[4])], [lines[0], replace(lines[1], max_tokens=9)], lines[:1]]
    assert digest(lines) not in map(digest, others)


@pytest.fixture(scope="module")
def stored(llm: LLM, prompts: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[TrainPrompt]]:
    """Answers in shards of ten prompts."""
    folder = tmp_path_factory.mktemp("answers")
    read = read_prompts(prompts, llm, 12)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(answers_of, "SHARD", 10)
        generate(llm, read, folder, temperature=0.8, seed=5, report=lambda line: None)
    return folder, read


def test_the_answers_are_those_of_the_target(llm: LLM, stored: tuple[Path, list[TrainPrompt]]) -> None:
    folder, read = stored
    params = [SamplingParams(max_tokens=p.max_tokens, temperature=0.8, seed=5 + i, logprobs=TOP)
              for i, p in enumerate(read)]
    completions = llm.generate([p.ids for p in read], params)
    kept = AnswerSet(folder)
    assert [answer.tokens.tolist() for answer in kept] == [
        [*p.ids, *c.token_ids] for p, c in zip(read, completions, strict=True) if c.token_ids]
    assert kept.answer_tokens == sum(len(c.token_ids) for c in completions)
    for answer, c in zip(kept, [c for c in completions if c.token_ids], strict=True):
        assert answer.top_ids.shape == (len(c.token_ids), TOP)
        for ids, logprobs, row in zip(answer.top_ids, answer.top_logprobs, c.logprobs or (), strict=True):
            assert [row[int(i)].rank for i in ids] == list(range(1, TOP + 1))
            assert [row[int(i)].logprob for i in ids] == pytest.approx(logprobs.tolist(), abs=1e-6)


def test_only_missing_shards_are_generated(llm: LLM, stored: tuple[Path, list[TrainPrompt]], tmp_path: Path,
                                           monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that was cut off leaves whole shards and perhaps a partial one, which counts for nothing."""
    whole, read = stored
    monkeypatch.setattr(answers_of, "SHARD", 10)
    asked: list[int] = []

    def interrupted(prompts: list[list[int]], params: list[SamplingParams]) -> object:
        asked.append(len(prompts))
        if len(asked) == 2:
            (tmp_path / ".00001.partial").mkdir()
            raise KeyboardInterrupt
        return llm.generate(prompts, params)

    class Interrupted:
        generate = staticmethod(interrupted)

    for _ in range(2):
        try:
            generate(Interrupted(), read, tmp_path, temperature=0.8, seed=5,  # type: ignore[arg-type]
                     report=lambda line: None)
        except KeyboardInterrupt:
            continue
    assert asked == [10, 10, 10, 4]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["00000", "00001", "00002"]
    for shard in tmp_path.iterdir():
        for path in shard.iterdir():
            assert path.read_bytes() == (whole / shard.name / path.name).read_bytes()


@pytest.mark.parametrize("how", ["cut", "gone", "mixed"])
def test_a_damaged_shard_is_named(stored: tuple[Path, list[TrainPrompt]], tmp_path: Path, how: str) -> None:
    for path in (stored[0] / "00001").iterdir():
        (tmp_path / "00001").mkdir(exist_ok=True)
        (tmp_path / "00001" / path.name).write_bytes(path.read_bytes())
    harmed = tmp_path / "00001" / "top_ids.npy"
    if how == "cut":
        harmed.write_bytes(harmed.read_bytes()[:-5])
    elif how == "gone":
        harmed.unlink()
    else:
        harmed.write_bytes((stored[0] / "00002" / "top_ids.npy").read_bytes())
    with pytest.raises(RequestError, match=r"00001: .*remove it, and it is generated again"):
        AnswerSet(tmp_path)


@pytest.mark.parametrize("size", [1, 3, 100])
def test_an_epoch_has_each_answer_once(stored: tuple[Path, list[TrainPrompt]], size: int) -> None:
    answers = AnswerSet(stored[0])
    batches = Batches(answers, size, seed=3)
    count = -(-len(answers) // size)
    for epoch in range(2):
        seen = []
        for step in range(epoch * count, (epoch + 1) * count):
            batch = batches[step]
            flat = batch.tokens.reshape(-1)
            assert len(batch.rows) == len(batch.top_ids) == len(batch.top_logprobs)
            seen.append(flat[batch.rows])  # the tokens before each answer token
        wanted = np.concatenate([a.tokens[a.prompt - 1 : -1] for a in answers])
        assert sorted(np.concatenate(seen)) == sorted(wanted)


def test_targets_stand_in_the_rows_that_predict_them(stored: tuple[Path, list[TrainPrompt]]) -> None:
    answers = AnswerSet(stored[0])
    by_prefix = {tuple(a.tokens[:at].tolist()): a.top_ids[at - a.prompt].tolist()
                 for a in answers for at in range(a.prompt, len(a.tokens))}
    batch = Batches(answers, 4, seed=0)[1]
    for row, top in zip(batch.rows, batch.top_ids, strict=True):
        sequence, at = divmod(int(row), batch.tokens.shape[1])
        assert by_prefix[tuple(batch.tokens[sequence, : at + 1].tolist())] == top.tolist()


def test_a_step_has_the_same_batch_in_any_order(stored: tuple[Path, list[TrainPrompt]]) -> None:
    answers = AnswerSet(stored[0])
    forward, fresh = Batches(answers, 3, seed=1), Batches(answers, 3, seed=1)
    wanted = {step: forward[step].tokens.tolist() for step in range(20)}
    for step in (19, 0, 7):
        assert fresh[step].tokens.tolist() == wanted[step]
    assert Batches(answers, 3, seed=2)[0].tokens.tolist() != wanted[0]
