"""Translates requests to llama.cpp's own routes into ours, and our replies into theirs.

Nothing is invented: a field that our reply does not have is missing from the translation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Body = dict[str, Any]
Post = Callable[[str, Body], Any]  # to a route of the server; its reply, decoded

COMPLETION = ("/completion", "/completions")
DROPPED = ("cache_prompt", "id_slot", "return_tokens", "response_fields", "n_predict", "n_probs", "verbose",
           "post_sampling_probs", "backend_sampling", "return_progress", "json_schema", "grammar")
STOP_TYPES = {"length": "limit"}  # theirs for our finish_reason; stop_reason separates a stop string from the end


@dataclass
class Asked:
    """A request to our server. `reply` makes of ours what theirs would be."""

    path: str
    body: Body | None
    reply: Callable[[Any], Any] = field(default=lambda body: body)  # None for an event that theirs does not have


def asked(path: str, body: Body | None, defaults: Body, post: Post) -> Asked:
    """`defaults`: what their server was started with: temperature, seed, n_predict. `post` reaches our server."""
    if path in COMPLETION and isinstance(body, dict):
        return _completion(body, defaults, post)
    if path in ("/chat/completions", "/v1/chat/completions") and isinstance(body, dict):
        return Asked(path, _chat(body, defaults))
    if path == "/v1/completions" and isinstance(body, dict):
        made = {"max_tokens" if key == "n_predict" else key: value for key, value in body.items()}
        return Asked(path, {"temperature": defaults["temperature"], "seed": defaults["seed"]} | made)
    if path == "/tokenize" and isinstance(body, dict):
        return _tokenize(body)
    if path == "/detokenize" and isinstance(body, dict):
        return Asked(path, body, lambda reply: _renamed(reply, "prompt", "content"))
    if path == "/apply-template" and isinstance(body, dict):
        return Asked("/tokenize", _without_none(_reasoning(body, defaults)), lambda reply: _prompt(reply, post))
    if path == "/chat/completions/input_tokens" and isinstance(body, dict):
        return Asked("/tokenize", body, lambda reply: _renamed(reply, "count", "input_tokens"))
    return Asked(path, body)


def _reasoning(body: Body, defaults: Body) -> Body:
    """Their `--reasoning` is a variable of the template."""
    thinks = defaults.get("reasoning")
    return body | {"chat_template_kwargs": {"enable_thinking": thinks != "off"}} if thinks else body


def _common(body: Body, defaults: Body) -> Body:
    made = {key: value for key, value in body.items() if key not in DROPPED}
    made.setdefault("temperature", defaults["temperature"])
    made.setdefault("seed", defaults["seed"])
    if "json_schema" in body:
        made["structured_outputs"] = {"json": body["json_schema"]}
    if "grammar" in body:
        made["structured_outputs"] = {"grammar": body["grammar"]}
    return made


def _chat(body: Body, defaults: Body) -> Body:
    made = _common(body, defaults)
    if "max_tokens" not in made and (defaults["n_predict"] or 0) > 0:
        made["max_tokens"] = defaults["n_predict"]
    return _without_none(_reasoning(made, defaults))


def _completion(body: Body, defaults: Body, post: Post) -> Asked:
    made = _common(body, defaults)
    most = body.get("n_predict", defaults["n_predict"])
    made["max_tokens"] = most if most is not None and most >= 0 else 1 << 20
    made["return_token_ids"] = made["timings_per_token"] = True
    if body.get("stream"):
        made["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
    if body.get("n_probs"):
        made["logprobs"] = body["n_probs"]
    if isinstance(body.get("prompt"), dict):
        made["prompt"] = body["prompt"]["prompt_string"]
        made |= {key: value for key, value in body["prompt"].items() if key != "prompt_string"}
    if "logit_bias" in body:
        made["logit_bias"] = _biases(body["logit_bias"], post)
    several = isinstance(made.get("prompt"), list) and any(isinstance(p, str | list) for p in made["prompt"])
    with_ids = bool(body.get("return_tokens")) or bool(body.get("stream"))

    def reply(ours: Any) -> Any:
        if not isinstance(ours, dict) or "choices" not in ours:
            return ours
        answers = [_answer(choice, ours, with_ids=with_ids) for choice in ours["choices"]]
        return answers if several else answers[0] if answers else None

    return Asked("/v1/completions", made, reply)


def _answer(choice: Body, ours: Body, *, with_ids: bool) -> Body:
    """A reply, or an event, of theirs."""
    reason = choice["finish_reason"]
    made = {"content": choice["text"], "stop": reason is not None, "model": ours["model"], "index": choice["index"],
            "tokens": choice.get("token_ids", []) if with_ids else [], "truncated": False,
            "has_new_line": "\n" in choice["text"]}
    if reason is not None:
        word = isinstance(choice.get("stop_reason"), str)
        made["stop_type"] = STOP_TYPES.get(reason, "word" if word else "eos")
    if usage := ours.get("usage"):
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
        made["timings"] = {"prompt_n": usage["prompt_tokens"] - cached, "cache_n": cached,
                           "predicted_n": usage["completion_tokens"]} | (ours.get("timings") or {})
    return made


def _biases(given: Any, post: Post) -> Body:
    """Biases of texts are biases of their tokens."""
    made: Body = {}
    for key, bias in given.items() if isinstance(given, dict) else given:
        text = isinstance(key, str) and not key.isdigit()
        for token in post("/tokenize", {"prompt": key, "add_special_tokens": False})["tokens"] if text else [key]:
            made[str(token)] = bias
    return made


def _tokenize(body: Body) -> Asked:
    pieces = bool(body.get("with_pieces"))
    made = {"prompt": body["content"], "add_special_tokens": bool(body.get("add_special")), "return_token_strs": pieces}

    def reply(ours: Any) -> Any:
        if not pieces or "token_strs" not in ours:
            return ours
        return {"tokens": [{"id": i, "piece": s} for i, s in zip(ours["tokens"], ours["token_strs"], strict=True)]}

    return Asked("/tokenize", made, reply)


def _prompt(reply: Any, post: Post) -> Any:
    if "tokens" not in reply:
        return reply
    return {"prompt": post("/detokenize", {"tokens": reply["tokens"]})["prompt"]}


def _renamed(reply: Any, ours: str, theirs: str) -> Any:
    return reply | {theirs: reply[ours]} if isinstance(reply, dict) and ours in reply else reply


def _without_none(body: Body) -> Body:
    return {key: value for key, value in body.items() if value is not None}
