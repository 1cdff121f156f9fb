"""HumanEval end to end with scripted answers: real problems, real programs, no model."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from drut.errors import RequestError, UnsupportedError
from drut.quality import sandbox
from drut.quality.tasks import humaneval

RIGHT = [
    """\
```python
def has_close_elements(numbers, threshold):
    numbers = sorted(numbers)
    return any(b - a < threshold for a, b in zip(numbers, numbers[1:]))
```""",
    """\
    groups, depth = [""], 0
    for c in paren_string.replace(" ", ""):
        groups[-1] += c
        depth += 1 if c == "(" else -1
        if depth == 0:
            groups.append("")
    return groups[:-1]

print(separate_paren_groups("()"))""",
    "Take the rest:\n```\n    return number % 1.0\n```",
]
WRONG = ["```python\ndef has_close_elements(numbers, threshold):\n    return True\n```",
         "    import os\n    os._exit(0)\n", "I would rather not."]


@dataclass
class Answer:
    text: str
    finish_reason: str


@dataclass
class Scripted:
    """Answers in their order. Its prompts are texts, or of one token for each question."""

    answers: list[str]
    chats: bool = True
    asked: list[object] = field(default_factory=list)

    def encode_chat(self, messages):
        if not self.chats:
            raise UnsupportedError("no chat template")
        self.asked.append(messages[0]["content"])
        return [len(self.asked)]

    def generate(self, prompts, params):
        assert params.temperature == 0
        if not self.chats:
            self.asked = prompts
        return [Answer(text, "length" if "rather" in text else "stop") for text in self.answers[: len(prompts)]]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs get the time that a busy machine may need; without a sandbox there is nothing to test."""
    try:
        sandbox.trial(sandbox.Bounds(wall_s=300))
    except UnsupportedError as error:
        pytest.skip(str(error))
    once = sandbox.run
    monkeypatch.setattr(sandbox, "run", lambda program, bounds=None: once(program, sandbox.Bounds(wall_s=300)))


def test_right_and_wrong_answers() -> None:
    seen: list[tuple[int, int]] = []
    model = Scripted(RIGHT)
    score = humaneval(model, 3, report=lambda *at: seen.append(at))
    assert (score.task, score.questions, score.correct.value, score.unfinished) == ("humaneval", 3, 1.0, 0)
    assert 0.4 < score.correct.low < 0.5, "Wilson's interval of three of three"
    assert seen == [(1, 3), (2, 3), (3, 3)]
    assert "```python\nfrom typing import List" in model.asked[0]
    assert humaneval(Scripted(WRONG), 3).correct.value == 0
    assert humaneval(Scripted(WRONG), 3).unfinished == 1
    assert humaneval(Scripted([RIGHT[0], *WRONG[1:]]), 3).correct.value == pytest.approx(1 / 3)


def test_a_model_that_does_not_chat_goes_on_with_the_prompt() -> None:
    body = "    numbers.sort()\n    return any(b - a < threshold for a, b in zip(numbers, numbers[1:]))\n"
    model = Scripted([body + "\n\ndef separate("], chats=False)
    assert humaneval(model, 1).correct.value == 1
    assert model.asked[0].startswith("from typing import List\n\n\ndef has_close_elements(")


@pytest.mark.parametrize("questions", [0, 165])
def test_questions_that_there_are_not(questions: int) -> None:
    with pytest.raises(RequestError, match=f"humaneval has 1 to 164 questions here, not {questions}"):
        humaneval(Scripted([]), questions)
