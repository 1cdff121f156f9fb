"""Inputs that made other servers fail, and what they get here. `waits_for`: refused by name until that is built."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.server.rig import Running, within

CASES = [json.loads(line) for line in (Path(__file__).parent / "cases.jsonl").read_text().splitlines()]


def expanded(value: Any) -> Any:
    """`{"$text": [s, n]}` is s n times over, `{"$list": [x, n]}` a list of n of them."""
    if isinstance(value, dict):
        if "$text" in value or "$list" in value:
            (unit, count), as_list = next(iter(value.values())), "$list" in value
            return [unit] * count if as_list else unit * count
        return {k: expanded(v) for k, v in value.items()}
    return [expanded(v) for v in value] if isinstance(value, list) else value


@pytest.mark.parametrize("case", CASES, ids=[c["id"] for c in CASES])
def test_case(request: pytest.FixtureRequest, case: dict[str, Any]) -> None:
    """Of `finds`: the finish reasons and contents there may be, and whether tools are called."""
    server: Running = request.getfixturevalue(case.get("server", "server"))
    prompts = set()
    for ask in case["asks"]:
        body = ask["raw"].encode() if "raw" in ask else expanded(ask["body"])
        reply = server.post(ask["path"], body)
        assert reply.status == case["status"], (ask, reply.raw)
        if reply.status == 200:
            prompts.add(reply.json["usage"]["prompt_tokens"] if "usage" in reply.json else 0)
            check(reply.json["choices"][0] if "finds" in case else {}, case.get("finds", {}))
            continue
        error = reply.error
        assert error["code"] == case.get("code", error["code"])
        assert "param" not in case or within(error["param"], case["param"])
        for said in case.get("says", ()):
            assert said in error["message"]


    assert len(prompts) <= 1 or "finds" not in case, "the asks of a case are the same in other words"


def check(choice: dict[str, Any], finds: dict[str, Any]) -> None:
    message = choice.get("message", {})
    if "finish_reason" in finds:
        assert choice["finish_reason"] in finds["finish_reason"]
    if "content" in finds:
        assert message["content"] in finds["content"]
    if "calls" in finds:
        assert ("tool_calls" in message) == finds["calls"]
        assert message.get("tool_calls", True), "an empty list misleads"


def test_every_case_has_a_name_and_a_reason() -> None:
    assert len({c["id"] for c in CASES}) == len(CASES)
    assert all(c["source"] and c["why"] and c["asks"] for c in CASES)
    assert all(c.get("code") in ("unsupported_parameter", "not_found") for c in CASES if "waits_for" in c)
