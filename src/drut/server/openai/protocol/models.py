"""Structs of `/v1/models`, `/tokenize`, `/detokenize`, `/version`, `/health` and `/ready`."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from drut.server.openai.protocol.chat import ChatMessage, Kwargs, TokensInMessages
from drut.server.openai.protocol.sampling import Name
from drut.server.openai.protocol.tools import OfferedTool


class SamplingDefaults(msgspec.Struct, kw_only=True):
    """The values of fields that a request does not set: a flag's, else the model's own, else 1 or off."""

    temperature: float
    top_p: float
    top_k: int
    min_p: float
    repetition_penalty: float


class ModelCard(msgspec.Struct, kw_only=True):
    """A model. `max_model_len`: the context length, tokens of a prompt and its output together."""

    id: str
    object: str = "model"
    created: int
    owned_by: str = "drut"
    max_model_len: int
    sampling_defaults: SamplingDefaults


class ModelList(msgspec.Struct, kw_only=True):
    object: str = "list"
    data: list[ModelCard]


class TokenizeRequest(msgspec.Struct, kw_only=True):
    """A prompt, or a conversation."""

    model: Name | None = None
    prompt: str | None = None
    messages: Annotated[list[ChatMessage], Meta(min_length=1)] | None = None
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: Kwargs | None = None
    special_tokens_in_messages: TokensInMessages | None = None
    tools: list[OfferedTool] | None = None


class TokenizeReply(msgspec.Struct, kw_only=True):
    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | UnsetType = UNSET


class DetokenizeRequest(msgspec.Struct, kw_only=True):
    model: Name | None = None
    tokens: Annotated[list[int], Meta(max_length=1 << 20)]


class DetokenizeReply(msgspec.Struct):
    prompt: str


class Version(msgspec.Struct):
    version: str
    numerics_id: str | None
    model: str


class ServerState(msgspec.Struct):
    """The state of the server. `reason`: why it is not alive or not ready."""

    status: str
    reason: str | UnsetType = UNSET
