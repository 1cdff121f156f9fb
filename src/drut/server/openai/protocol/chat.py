"""Structs of `/v1/chat/completions`: requests, replies and chunks."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from drut.constrain.reasoning import MAX_BUDGET
from drut.model.special_tokens import SpecialTokens
from drut.server.openai.protocol.replies import PromptLogprobs, Timings, Usage
from drut.server.openai.protocol.sampling import Int64, MaxTokens, SamplingFields, TopLogprobs
from drut.server.openai.protocol.tools import OfferedTool, ToolCall, ToolChoice

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
Budget = Annotated[int, Meta(ge=-1, le=MAX_BUDGET,
                             description="maximum reasoning tokens; then the end mark is forced; -1: no budget")]


ROLES = ("system", "developer", "user", "assistant", "tool")
PARTS = ("text", "input_text", "output_text", "refusal")


class ContentPart(msgspec.Struct, kw_only=True):
    """A part of a message's content. All types in `PARTS` are text, under the names of different clients; any other
    type is an error that names it."""

    type: str
    text: str | None = None
    refusal: str | None = None


class ChatMessage(msgspec.Struct, kw_only=True):
    role: str
    content: str | list[str | ContentPart] | None = None
    refusal: str | None = None
    name: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


TokensInMessages = Annotated[SpecialTokens, Meta(
    description="what text of messages and tools that spells a special token becomes: ordinary text, or the token; "
                "default: --special-tokens-in-messages")]
Kwargs = Annotated[dict[str, bool | Int64 | float | str | None], Meta(
    max_length=32, description="variables of the model's chat template, such as enable_thinking")]


class ChatRequest(SamplingFields, kw_only=True):
    messages: Annotated[list[ChatMessage], Meta(min_length=1)]
    max_tokens: MaxTokens | None = None
    max_completion_tokens: MaxTokens | None = None
    logprobs: bool | None = None
    top_logprobs: TopLogprobs | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: Kwargs | None = None
    special_tokens_in_messages: TokensInMessages | None = None
    tools: list[OfferedTool] | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: Effort | None = None
    include_reasoning: bool | None = None
    thinking_budget: Budget | None = None
    thinking_token_budget: Budget | None = None
    max_thinking_tokens: Budget | None = None


class TopLogprob(msgspec.Struct):
    """A likely token and its logprob. `bytes` is null for a special token that adds nothing to the text."""

    token: str
    logprob: float
    bytes: list[int] | None


class TokenLogprob(msgspec.Struct):
    token: str
    logprob: float
    bytes: list[int] | None
    top_logprobs: list[TopLogprob]


class ChatLogprobs(msgspec.Struct):
    content: list[TokenLogprob]
    refusal: None = None


class ReplyMessage(msgspec.Struct, kw_only=True):
    """The message of a reply. Fields that are always null exist because OpenAI's and vLLM's replies have them."""

    role: str = "assistant"
    content: str | None
    refusal: None = None
    annotations: None = None
    audio: None = None
    function_call: None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[ToolCall] | UnsetType = UNSET


class ChatChoice(msgspec.Struct, kw_only=True):
    index: int
    message: ReplyMessage
    logprobs: ChatLogprobs | None
    finish_reason: str
    stop_reason: str | int | None = None
    token_ids: list[int] | None = None


class ChatReply(msgspec.Struct, kw_only=True):
    id: str
    object: str = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    service_tier: None = None
    system_fingerprint: str
    prompt_logprobs: PromptLogprobs | None = None
    prompt_token_ids: list[int] | None = None
    kv_transfer_params: None = None
    timings: Timings | UnsetType = UNSET


class FunctionDelta(msgspec.Struct, kw_only=True):
    name: str | UnsetType = UNSET
    arguments: str


class CallDelta(msgspec.Struct, kw_only=True):
    """A part of a tool call: the first has id and name, later ones have parts of the arguments."""

    index: int
    id: str | UnsetType = UNSET
    type: str | UnsetType = UNSET
    function: FunctionDelta


class ChatDelta(msgspec.Struct, kw_only=True):
    role: str | UnsetType = UNSET
    content: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET
    tool_calls: list[CallDelta] | UnsetType = UNSET


class ChunkChoice(msgspec.Struct, kw_only=True):
    index: int
    delta: ChatDelta
    logprobs: ChatLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: str | int | UnsetType | None = UNSET
    token_ids: list[int] | UnsetType = UNSET


class ChatChunk(msgspec.Struct, kw_only=True):
    id: str
    object: str = "chat.completion.chunk"
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: Usage | UnsetType | None = UNSET
    system_fingerprint: str
    prompt_token_ids: list[int] | UnsetType = UNSET
    timings: Timings | UnsetType = UNSET
