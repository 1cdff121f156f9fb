"""The default model asked to call: every call parses and fits its tool's schema."""

from __future__ import annotations

import json

import jsonschema
import pytest

from drut import LLM, SamplingParams
from drut.bench.workloads.packed import read_jsonl
from drut.parse import ParsedMessage
from drut.parse.calling import Tool, constraint
from drut.parse.choose import tool_format
from drut.parse.offer import OfferedTools
from drut.parse.reading import Reading


@pytest.mark.model
@pytest.mark.slow
@pytest.mark.parametrize("group", ["simple", "multiple"])
def test_calls_fit_their_schema(group: str) -> None:
    rows = [row for row in read_jsonl("bfcl") if row["group"] == group][:60:12]
    with LLM("smollm2-135m-instruct", grammar_timeout_s=60) as llm:
        form, prompts, params = tool_format("auto", llm.templates.with_tools), [], []
        for row in rows:
            functions = [tool["function"] for tool in row["tools"]]
            tools = [Tool(f["name"], f["parameters"]) for f in functions]
            assert llm.tokenizer is not None
            made = constraint(form, tools, "required", llm.tokenizer, parallel=False)
            prompts.append(llm.encode_chat(row["messages"], row["tools"]))
            params.append(SamplingParams(max_tokens=512, constraint=made, frequency_penalty=0.2, temperature=0))
        answers = llm.generate(prompts, params)
    for row, answer in zip(rows, answers, strict=True):
        schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in row["tools"]}
        parser = Reading(None, form, OfferedTools(frozenset(schemas), whole=False), only_calls=True).parser()
        message = ParsedMessage([*parser.push(answer.text), *parser.finish()])
        (call,) = message.calls
        assert message.content == ""
        jsonschema.validate(json.loads(call.arguments), schemas[call.name])
