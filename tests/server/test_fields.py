"""Every field has its effect, is refused by name, or is named as ignored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from drut.engine.request.params import SamplingParams
from drut.server.openai.protocol.chat import ChatRequest
from drut.server.openai.protocol.completions import CompletionRequest
from drut.server.openai.protocol.fields import UNSUPPORTED
from tests.server.rig import Reply, Running, serving, within

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
ASKED: dict[str, Any] = {
    "tools": [TOOL], "tool_choice": "required", "functions": [{"name": "f"}], "function_call": {"name": "f"},
    "grammar": "root ::= x",
    "json_schema": {"type": "object"}, "guided_json": {}, "guided_regex": "a", "guided_choice": ["a"],
    "guided_grammar": "a", "regex": "a", "ebnf": "a", "thinking_budget": 5, "thinking_token_budget": 5,
    "max_thinking_tokens": 5, "reasoning_effort": "low", "reasoning": {"effort": "low"},
    "thinking": {"type": "enabled"}, "include_reasoning": False, "audio": {"voice": "x"},
    "modalities": ["text", "audio"],
    "web_search_options": {}, "best_of": 2, "suffix": "end", "use_beam_search": True, "length_penalty": 1.5,
    "truncate_prompt_tokens": 5, "allowed_token_ids": [1], "bad_words": ["x"], "logits_processors": ["x"],
    "prompt_embeds": "AAAA", "mm_processor_kwargs": {}, "chat_template": "{{ 1 }}", "documents": [{}],
    "spaces_between_special_tokens": False, "return_tokens_as_token_ids": True, "kv_transfer_params": {},
    "vllm_xargs": {}, "add_special_tokens": True, "typical_p": 0.5, "mirostat": 2, "top_a": 0.1, "tfs_z": 0.5,
    "dry_multiplier": 0.8, "xtc_probability": 0.5, "dynatemp_range": 0.5, "n_predict": 5, "n_probs": 2,
    "logprob_token_ids": [5],
    "max_new_tokens": 5, "random_seed": 1, "samplers": ["top_k"], "lora": [{"id": 0}], "stop_regex": ["a"],
    "multimodal_data": ["AAAA"], "image_data": [{"data": "AAAA"}],
    "return_hidden_states": True,
}  # fmt: skip
TOP = [name for name in UNSUPPORTED if "." not in name]  # test_forms.py has those inside
HARMLESS = {"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "verbosity",
            "prompt_cache_retention", "prediction", "request_id"}


def test_every_unsupported_field_is_tried() -> None:
    assert set(ASKED) == set(TOP)


@pytest.mark.parametrize("name", TOP)
def test_what_is_known_and_not_built_is_refused_by_name(server: Running, name: str) -> None:
    ways = [(server.chat, ChatRequest), (server.complete, CompletionRequest)]
    for ask in [ask for ask, form in ways if name not in form.__struct_encode_fields__]:
        error = ask(**{name: ASKED[name]}).error
        assert (error["code"], error["param"]) == ("unsupported_parameter", name)
        assert error["type"] == "invalid_request_error"
        assert name in error["message"]
        for neutral in (*UNSUPPORTED[name], None):
            reply = ask(**{name: neutral})
            assert reply.status == 200, (neutral, reply.raw)
            assert "x-drut-ignored" not in reply.headers


def test_what_is_unknown_or_harmless_is_named(server: Running, model_path: Path) -> None:
    fields = dict.fromkeys(sorted(HARMLESS), "x") | {"no_such_field": [1], "bad\r\nname: \u2603": 1, "gone": None}
    for stream in (False, True):
        named = server.chat(stream=stream, **fields).headers["x-drut-ignored"]
        assert set(named.split(", ")) == HARMLESS | {"no_such_field", "bad??name: ?"}
    assert "x-drut-ignored" not in server.chat().headers
    assert server.post("/tokenize", {"prompt": "a", "user": "x"}).headers["x-drut-ignored"] == "user"
    message = {"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {}}], "id": 1, "timestamp": 2}
    inside = server.post("/tokenize", {"messages": [message], "tools": [TOOL | {"x": 1}]})
    assert inside.headers["x-drut-ignored"] == (
        "messages[0].content[0].cache_control, messages[0].id, messages[0].timestamp, tools[0].x")
    with serving(model_path, strict_fields=True) as strict:
        error = strict.chat(user="x").error
        assert (error["code"], error["param"]) == ("unknown_parameter", "user")
        assert strict.chat(user=None).status == 200
        error = strict.post("/v1/chat/completions", {"messages": [message]}).error
        assert (error["code"], error["param"]) == ("unknown_parameter", "messages[0].content[0].cache_control")


BAD: list[tuple[str, Any]] = [
    ("temperature", -0.1), ("temperature", 100.1), ("temperature", "1"), ("temperature", True), ("top_p", 0),
    ("top_p", 1.1), ("top_k", -2), ("top_k", 1.5), ("min_p", -1), ("n", 0),
    ("n", 129), ("n", "2"), ("seed", 1 << 63), ("seed", 0.5),
    ("presence_penalty", 2.5), ("frequency_penalty", -3), ("repetition_penalty", 0), ("stop", ""), ("stop", [""]),
    ("stop", ["a"] * 5), ("stop", "x" * 257), ("stop", 3), ("stop", [None]), ("stop_token_ids", [-1]),
    ("stop_token_ids", [258]), ("stop_token_ids", "a"), ("min_tokens", -1), ("min_tokens", 6), ("ignore_eos", 1),
    ("logit_bias", {"x": 1}), ("logit_bias", {"1": "high"}), ("logit_bias", {"258": 1}), ("logit_bias", {"1": 101}),
    ("logit_bias", {"-1": 0}), ("logit_bias", {"1": True}), ("logit_bias", [1]), ("logit_bias", {"1": None}),
    ("logit_bias", {str(i): 1 for i in range(1025)}), ("prompt_logprobs", 21), ("prompt_logprobs", -1),
    ("cache_salt", ""), ("cache_salt", "x" * 257), ("cache_salt", 3), ("priority", 1 << 31), ("priority", "high"),
    ("deadline_s", 0), ("deadline_s", "soon"), ("stream", "yes"), ("stream_options", {"include_usage": True}),
    ("response_format", {"type": "xml"}), ("response_format", {"type": "json_schema"}), ("response_format", "json"),
    ("response_format", {"type": "json_schema", "json_schema": {"schema": {"not": {}}}}),
    ("response_format", {"type": "structural_tag", "structures": []}), ("structured_outputs", {"regex": "(["}),
    ("structured_outputs", {"regex": "a", "choice": ["a"]}), ("structured_outputs", {"choice": []}),
    ("structured_outputs", {"grammar": "start: nothing"}), ("structured_outputs", {"ebnf": "x"}),
    ("structured_outputs", {"json": "{"}), ("structured_outputs", {"structural_tag": "{}"}),
    ("max_tokens", -2), ("max_tokens", 1.5), ("max_tokens", "5"), ("max_tokens", 1 << 63), ("echo", "yes"),
    ("skip_special_tokens", 0), ("include_stop_str_in_output", "no"), ("return_token_ids", 1), ("model", 5),
]


@pytest.mark.parametrize(("name", "value"), BAD, ids=[f"{name}{i}" for i, (name, _) in enumerate(BAD)])
def test_bad_values_are_errors_that_name_the_field(server: Running, name: str, value: Any) -> None:
    for ask in (server.chat, server.complete):
        reply = ask(**{name: value})
        assert (reply.status, reply.error["type"]) == (400, "invalid_request_error")
        assert within(reply.error["param"], name)
        assert reply.error["param"] in reply.error["message"]
        assert len(reply.error["message"]) < 300


def test_numbers_json_does_not_have(server: Running) -> None:
    for text in ("NaN", "Infinity", "-Infinity", "1e999", "9" * 5000):
        reply = server.post("/v1/completions", b'{"prompt":"x","temperature":%b}' % text.encode())
        assert reply.status == 400
        assert reply.error["code"] in ("invalid_json", None)


@pytest.mark.parametrize("field", [f for f in CompletionRequest.__struct_encode_fields__ if f != "prompt"])
def test_null_is_as_good_as_absent(server: Running, field: str) -> None:
    assert server.complete(**({"max_tokens": 5} | {field: None})).status == 200


@pytest.mark.parametrize("field", [f for f in ChatRequest.__struct_encode_fields__ if f != "messages"])
def test_null_is_as_good_as_absent_in_chat(server: Running, field: str) -> None:
    assert server.chat(**({"max_tokens": 5} | {field: None})).status == 200


def test_every_sampling_parameter_of_the_engine_can_be_asked_for() -> None:
    asked = set(CompletionRequest.__struct_encode_fields__)
    of_a_chat = {"reasoning", "shown_special_ids"}  # made of several fields
    assert set(SamplingParams.__dataclass_fields__) - asked - of_a_chat == {"constraint"}
    assert {"response_format", "structured_outputs"} <= asked  # which say it


@pytest.mark.parametrize(("name", "value"), [
    ("temperature", 0.1), ("top_p", 0.1), ("top_k", 2), ("min_p", 0.5), ("seed", 4), ("presence_penalty", 2),
    ("frequency_penalty", 2), ("repetition_penalty", 50), ("logit_bias", {"122": 100}),
])  # fmt: skip
def test_sampling_fields_reach_the_engine(server: Running, name: str, value: Any) -> None:
    def text(reply: Reply) -> str:
        return reply.json["choices"][0]["text"]

    base = {"seed": 3, "temperature": 2, "max_tokens": 60, "ignore_eos": True}
    assert text(server.complete(**base)) == text(server.complete(**base))
    assert text(server.complete(**base)) != text(server.complete(**base | {name: value}))


def test_min_tokens_holds_the_end_off(server: Running) -> None:
    force = {"logit_bias": {"257": 100}, "temperature": 0, "max_tokens": 9}
    assert server.complete(**force).json["usage"]["completion_tokens"] == 1
    assert server.complete(**force, min_tokens=4).json["usage"]["completion_tokens"] == 5


def test_several_prompts_have_a_largest_number(server: Running) -> None:
    for prompt, n in ((["a"] * 257, 1), (["a"] * 129, 2), (["a"] * 200_000, 1)):
        reply = server.complete(prompt, n=n, max_tokens=1)
        assert (reply.status, reply.error["param"]) == (400, "prompt")
        assert "--max-choices" in reply.error["message"]


BAD_PROMPTS = ["", [], [[]], ["a", 5], [5, "a"], [[1], 2], [[1], "a"], 5, {}, None, True, [None], [-1], [258],
               [1 << 70], [True], [1.5], [["a"]], ["a", ""]]


@pytest.mark.parametrize("prompt", BAD_PROMPTS, ids=range(len(BAD_PROMPTS)))
def test_bad_prompts(server: Running, prompt: Any) -> None:
    reply = server.complete(prompt)
    assert reply.status == 400
    assert within(reply.error["param"], "prompt")


def test_model_names(server: Running, model_path: Path) -> None:
    for path in ("/v1/completions", "/tokenize"):
        error = server.post(path, {"prompt": "a", "model": "gpt-4"}).error
        assert (error["code"], error["param"], error["type"]) == ("model_not_found", "model", "not_found_error")
        assert server.post(path, {"prompt": "a", "model": "tiny"}).status == 200
    with serving(model_path, served_model_name="a,b,*") as running:
        assert running.complete(model="anything").json["model"] == "a"
        assert [m["id"] for m in running.get("/v1/models").json["data"]] == ["a", "b"]


def test_streams_have_no_prompt_logprobs(server: Running) -> None:
    assert server.complete(stream=True, prompt_logprobs=1).error["param"] == "prompt_logprobs"
    assert server.complete(echo=True, logprobs=1, prompt_logprobs=1).error["param"] == "prompt_logprobs"
    ignored = server.complete(stream=True, stream_options={"include": 1}).headers["x-drut-ignored"]
    assert ignored == "stream_options.include"
    assert server.chat(top_logprobs=3).error["param"] == "top_logprobs"
    for bad in (-7, 21, "2x"):
        assert server.chat(logprobs=True, top_logprobs=bad).error["param"] == "top_logprobs"


def test_bodies_that_are_no_object(server: Running) -> None:
    for raw in (b"", b"[1]", b"42", b'"text"', b"null", b"true", b"{", b'{"prompt":"a"}x', b"\xff",
                b'{"prompt":"\xff"}', b'{"prompt":"\\ud800"}', b'{"a":' * 5000 + b"1" + b"}" * 5000, b"[" * 100_000):
        for path in ("/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"):
            assert server.post(path, raw).status == 400
            assert server.post(path, raw).error["type"] == "invalid_request_error"


def test_the_document_lists_the_fields_that_are_read(server: Running) -> None:
    document = server.get("/openapi.json").json
    for name, form in (("CompletionRequest", CompletionRequest), ("ChatRequest", ChatRequest)):
        properties = document["components"]["schemas"][name]["properties"]
        assert set(properties) == {f.encode_name for f in msgspec.structs.fields(form)}
    assert document == json.loads(msgspec.json.encode(document))
