"""What the fields of requests and replies mean, and their defaults: the texts of `/openapi.json` and `/docs`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class FieldNote(NamedTuple):
    """A field in words. `default`: the value of a field that a request does not set; None if there is none."""

    text: str
    default: object = None


STATUSES: Mapping[int, str] = {
    200: "success",
    400: "the request is invalid: `param` names the field, `code` may be `invalid_json`, `unsupported_parameter`, "
         "`unknown_parameter`, `context_length_exceeded` or `reply_too_large`",
    401: "no API key, or a wrong one (`invalid_api_key`)",
    403: "`Host` is not a name of this server (`host_not_allowed`)",
    404: "the path or the model does not exist (`not_found`, `model_not_found`)",
    408: "the body did not arrive in time (`timeout`)",
    413: "the body is too large (`body_too_large`)",
    415: "`Content-Type` is not `application/json` (`unsupported_media_type`)",
    429: "the queue is full (`queue_full`): try again after `Retry-After` seconds",
    500: "a fault of the server (`internal_error`)",
    503: "the model is loading, the server shuts down, or its engine has ended (`loading`, `shutting_down`, "
         "`engine_dead`)",
    504: "the request's `deadline_s` has passed (`deadline_exceeded`)",
}
# By field, or by struct and field where a name has several meanings.
NOTES: Mapping[str, FieldNote] = {
    "model": FieldNote("a name of this server's model; see /v1/models", "the server's"),
    "stream": FieldNote("send the output as server-sent events", False),
    "stream_options": FieldNote("options of a stream; needs `stream`"),
    "include_usage": FieldNote("an event with the usage at the end", False),
    "continuous_usage_stats": FieldNote("the usage so far in every event", False),
    "temperature": FieldNote("above 1 flattens the distribution, below 1 sharpens it, 0 the likeliest token", 1.0),
    "top_p": FieldNote("keep the likeliest tokens whose probabilities add up to this", 1.0),
    "top_k": FieldNote("keep this many of the likeliest tokens", 0),
    "min_p": FieldNote("keep tokens at least this likely, relative to the likeliest", 0.0),
    "n": FieldNote("choices, each sampled on its own", 1),
    "seed": FieldNote("the same seed gives the same output, whatever else runs", "random"),
    "presence_penalty": FieldNote("subtracted from the logit of each token that the output has", 0.0),
    "frequency_penalty": FieldNote("subtracted once for each time that the output has the token", 0.0),
    "repetition_penalty": FieldNote("divides the logits of tokens of prompt and output, if above 1", 1.0),
    "logit_bias": FieldNote("numbers from -100 to 100, by token id, added to the logits"),
    "stop": FieldNote("text, or several, that ends the output and is not part of it"),
    "stop_token_ids": FieldNote("token ids that end the output"),
    "min_tokens": FieldNote("no stop and no end before this many tokens", 0),
    "ignore_eos": FieldNote("go on after the end of text, up to the maximum", False),
    "skip_special_tokens": FieldNote("leave special tokens out of the text", True),
    "include_stop_str_in_output": FieldNote("keep the text that ended the output", False),
    "prompt_logprobs": FieldNote("also the logprobs of the prompt's tokens, and this many likely others"),
    "return_token_ids": FieldNote("also the ids of prompt and output", False),
    "cache_salt": FieldNote("keeps the cached prefixes of requests with different salts apart"),
    "priority": FieldNote("smaller goes first, among the requests of one key", 0),
    "echo": FieldNote("put the prompt before the output; in a conversation, the assistant's last message", False),
    "deadline_s": FieldNote("seconds from its arrival after which the request ends with 504"),
    "response_format": FieldNote("what the output must match: OpenAI's field"),
    "structured_outputs": FieldNote("what the output must match: vLLM's field"),
    "speculation": FieldNote("false: without drafts; the output is the same", True),
    "timings": FieldNote("the reply, or the last chunk of a stream, has `timings`", False),
    "timings_per_token": FieldNote("llama.cpp's name of `timings`", False),
    "max_tokens": FieldNote("maximum tokens of the output; -1: to the end of the context"),
    "CompletionRequest.max_tokens": FieldNote("maximum tokens of the output; 0 with `echo` scores the prompt", 16),
    "ChatRequest.max_tokens": FieldNote("maximum tokens of the output; -1: to the end of the context", -1),
    "max_completion_tokens": FieldNote("OpenAI's newer name of `max_tokens`; it has precedence", -1),
    "ChatRequest.messages": FieldNote("the conversation"),
    "TokenizeRequest.messages": FieldNote("a conversation, in place of `prompt`"),
    "CompletionRequest.prompt": FieldNote("a text, token ids, or a list of several of either"),
    "TokenizeRequest.prompt": FieldNote("a text"),
    "DetokenizeReply.prompt": FieldNote("the text"),
    "ChatRequest.logprobs": FieldNote("the logprobs of the output's tokens", False),
    "CompletionRequest.logprobs": FieldNote("logprobs of the output's tokens, and this many likely others"),
    "top_logprobs": FieldNote("this many likely others for each token; needs `logprobs`", 0),
    "add_special_tokens": FieldNote("put the model's begin token in front, if it has one", True),
    "add_generation_prompt": FieldNote("end the prompt where the assistant's answer begins", True),
    "continue_final_message": FieldNote("end the prompt with the last message: the output continues it", False),
    "chat_template_kwargs": FieldNote("variables of the model's chat template, such as `enable_thinking`"),
    "special_tokens_in_messages": FieldNote("whether text of messages that spells a special token stays text, or is "
                                            "parsed as the token", "text"),
    "tools": FieldNote("functions that the model may call"),
    "tool_choice": FieldNote("`auto`, `none`, `required` or one function", "auto"),
    "parallel_tool_calls": FieldNote("allow several calls", True),
    "reasoning_effort": FieldNote("how much the model reasons, if its template has levels or a switch"),
    "include_reasoning": FieldNote("send the reasoning, as `reasoning_content`", True),
    "thinking_budget": FieldNote("maximum tokens of the reasoning; then its end is forced; -1: no maximum", -1),
    "thinking_token_budget": FieldNote("another name of `thinking_budget`", -1),
    "max_thinking_tokens": FieldNote("another name of `thinking_budget`", -1),
    "return_token_strs": FieldNote("also the text of each token", False),
    "ChatMessage.role": FieldNote("`system`, `developer`, `user`, `assistant` or `tool`"),
    "ChatMessage.content": FieldNote("text, or a list of texts and text parts"),
    "ChatMessage.name": FieldNote("a name for the template; of a tool's result, its function"),
    "ChatMessage.tool_calls": FieldNote("the calls that the assistant made"),
    "ChatMessage.tool_call_id": FieldNote("the call that a tool's result belongs to"),
    "ChatMessage.reasoning_content": FieldNote("the assistant's reasoning"),
    "ChatMessage.reasoning": FieldNote("another name of `reasoning_content`"),
    "ChatMessage.refusal": FieldNote("an assistant's refusal, in place of content"),
    "DetokenizeRequest.tokens": FieldNote("token ids"),
    "TokenizeReply.tokens": FieldNote("token ids"),
    "TokenizeReply.count": FieldNote("their number"),
    "TokenizeReply.token_strs": FieldNote("the text of each, with `return_token_strs`"),
    "max_model_len": FieldNote("the context length: tokens of a prompt and its output together"),
    "choices": FieldNote("the outputs; of prompt p choice i has the index p x n + i"),
    "usage": FieldNote("counts of tokens"),
    "system_fingerprint": FieldNote("the numerics id: while it is the same, the same request gives the same bits"),
    "finish_reason": FieldNote("`stop`, `length` or `tool_calls`"),
    "stop_reason": FieldNote("the stop text or id that ended the output"),
}


def note_of(struct: str, field: str) -> FieldNote | None:
    """Returns the note of a field of a struct, if there is one."""
    return NOTES.get(f"{struct}.{field}") or NOTES.get(field)
