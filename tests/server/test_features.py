"""Any two features that an answer can be asked with work together: the bits are those of the request alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

import jsonschema
import pytest

from drut.engine import build
from drut.engine.schedule.policy import Policy, make_policy
from tests.cli import tiny
from tests.engine.chance import ChancePreemption
from tests.engine.pairwise import Row, all_pairs
from tests.server.conftest import CALLER
from tests.server.rig import Reply, Running, serving

SCHEMA = {"type": "object", "properties": {"a": {"enum": ["x", "y", "z"]}, "b": {"type": "boolean"}},
          "required": ["a", "b"], "additionalProperties": False}
TOOL = {"type": "function", "function": {"name": "look", "parameters": SCHEMA, "strict": True}}
THINKER = CALLER + ("{% if enable_thinking is defined and not enable_thinking %}<think></think>{% else %}<think>"
                    "{% endif %}")
SHAPES: dict[str, dict[str, Any]] = {
    "free": {}, "schema": {"response_format": {"type": "json_schema", "json_schema": {"name": "r", "schema": SCHEMA}}},
    "regex": {"structured_outputs": {"regex": "[a-c]{3,9}"}},
    "required": {"tools": [TOOL], "tool_choice": "required", "logit_bias": {str(tiny.EOS): 100}},
    "named": {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "look"}}},
    "auto": {"tools": [TOOL], "logit_bias": {str(ord("<")): 3}},
}
THOUGHTS: dict[str, dict[str, Any]] = {"off": {"reasoning_effort": "none"}, "cut at once": {"thinking_budget": 0},
                                       "cut": {"thinking_budget": 6}}
FACTORS = {"stream": (False, True), "n": (1, 2), "logprobs": (False, True), "stop": (None, ["q", "zz"]),
           "seed": (1, 2), "penalty": (0, 0.5), "shape": tuple(SHAPES), "thought": tuple(THOUGHTS),
           "prefix": ("cold", "warm"), "preempt": (0.0, 0.3), "abort": (False, True)}
ROWS = all_pairs({name: tuple(json.dumps(v) for v in values) for name, values in FACTORS.items()})


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[object, Running]]:
    """By how often they preempt; "alone" computes a request at a time, in the plainest way."""
    path: Path = tmp_path_factory.mktemp("features") / "thinker.gguf"
    path.write_bytes(tiny.model(tokenizer__chat_template=THINKER, llama__context_length=1024))
    plain = {"max_seqs": 1, "chunk_tokens": 0, "prefix_cache": False, "execution": "eager", "overlap": False}
    with ExitStack() as stack:
        def start(preempt: float = 0.0, **engine: Any) -> Running:
            def policy(*args: Any, **settings: Any) -> Policy:
                return ChancePreemption(make_policy(*args, **settings), preempt)

            with patch.object(build, "make_policy", policy if preempt else make_policy):
                return stack.enter_context(serving(path, engine={"grammar_timeout_s": 60, **engine}))

        yield {"alone": start(**plain), 0.0: start(), 0.3: start(0.3, debug_kv=True)}


def fields_of(row: Row) -> dict[str, Any]:
    value = {name: json.loads(str(text)) for name, text in row.items()}
    fields = {"n": value["n"], "seed": value["seed"], "temperature": 1, "presence_penalty": value["penalty"],
              "max_tokens": 60, "stop": value["stop"], "stream": value["stream"], "logprobs": value["logprobs"]}
    return fields | SHAPES[value["shape"]] | THOUGHTS[value["thought"]]


Told = list[tuple[Any, ...]]


def told(reply: Reply, stream: bool) -> Told:
    """Of each choice: thought, content, calls, logprobs, and why it ended."""
    assert reply.status == 200, reply.raw
    if not stream:
        return [(c["message"].get("reasoning_content", ""), c["message"]["content"] or "",
                 [(t["function"]["name"], t["function"]["arguments"]) for t in c["message"].get("tool_calls", [])],
                 (c["logprobs"] or {}).get("content", []), c["finish_reason"]) for c in reply.json["choices"]]
    made: dict[int, list[Any]] = {}
    for event in reply.events[:-1]:
        for c in event["choices"]:
            said = made.setdefault(c["index"], ["", "", [], [], None])
            said[0] += c["delta"].get("reasoning_content", "")
            said[1] += c["delta"].get("content", "")
            for call in c["delta"].get("tool_calls", []):
                if "id" in call:
                    said[2].append([call["function"]["name"], ""])
                said[2][call["index"]][1] += call["function"]["arguments"]
            said[3] += (c["logprobs"] or {}).get("content", [])
            said[4] = c["finish_reason"] or said[4]
    return [(thought, content, [tuple(call) for call in calls], scores, end)
            for _, (thought, content, calls, scores, end) in sorted(made.items())]


def check_shape(row: Row, answers: Told) -> None:
    """What was asked for is there, unless a stop string came into it."""
    shape, stop = json.loads(str(row["shape"])), json.loads(str(row["stop"]))
    for thought, content, calls, _, end in answers:
        assert not (row["thought"] == '"off"' and thought)
        if end == "length" or (stop and shape in ("free", "auto", "regex")):
            continue
        if shape == "schema" and not stop:
            jsonschema.validate(json.loads(content), SCHEMA)
        for _, arguments in calls:
            jsonschema.validate(json.loads(arguments), SCHEMA)
        assert bool(calls) == (shape in ("required", "named")) or shape == "auto" or stop
        assert end == ("tool_calls" if calls and shape != "named" else "stop")


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=range(len(ROWS)))
def test_features_meet(servers: dict[object, Running], row: Row) -> None:
    value, fields = {name: json.loads(str(text)) for name, text in row.items()}, fields_of(row)
    wanted = told(servers["alone"].chat("hi there", **fields), value["stream"])
    check_shape(row, wanted)
    server = servers[value["preempt"]]
    if value["prefix"] == "warm":
        server.chat("hi there", **fields | {"max_tokens": 1, "stream": False})
    company = []
    for i in range(3):
        others = SHAPES[("free", "schema", "required")[i]] | THOUGHTS["cut"]
        company.append(server.open_stream("/v1/chat/completions", {
            "messages": [{"role": "user", "content": "hi"}], "max_tokens": 50, "stream": True, "temperature": 1,
            **others}))
    if value["abort"]:
        company.pop().close()
    got = told(server.chat("hi there", **fields), value["stream"])
    for sock in company:
        sock.close()
    server.until_idle()
    assert got == wanted
