"""Limits of the contents of a request. Each limit is a flag, and its error names the flag."""

from __future__ import annotations

from dataclasses import dataclass

from drut.server.config import ServerConfig
from drut.server.openai.protocol.errors import ApiError
from drut.server.stream.reply_size import ReplySize


@dataclass(frozen=True)
class RequestLimits:
    """Maximum sizes of requests and replies, from `ServerConfig`."""

    body_bytes: int
    reply_bytes: int
    choices: int
    messages: int
    tools: int
    stop: int
    stop_chars: int

    @classmethod
    def of(cls, config: ServerConfig) -> RequestLimits:
        return cls(int(config.max_body_mb * 1e6), int(config.max_reply_mb * 1e6), config.max_choices,
                   config.max_messages, config.max_tools, config.max_stop, config.max_stop_chars)

    def check_choices(self, prompts: int, n: int, field: str) -> None:
        if prompts * n > self.choices:
            raise ApiError(400, f"{field}: {prompts} prompts with n {n} make {prompts * n} choices; at most "
                                f"{self.choices} are allowed (--max-choices)", param=field)

    def check_reply(self, size: ReplySize) -> None:
        if size.bytes > self.reply_bytes:
            scores = f" with {size.scores + 1} logprobs each" if size.scores >= 0 else ""
            raise self._too_large(
                size.field, f"the reply may have {size.bytes / 1e6:.0f} MB: {size.choices} choices of up to "
                f"{size.answer_tokens} tokens, and {size.prompt_tokens} tokens of prompts shown in each,{scores}")

    def check_text(self, size: int) -> None:
        """Checks a decoded text of `size` bytes."""
        if size > self.reply_bytes:
            raise self._too_large("tokens", f"their text has {size / 1e6:.1f} MB")

    def _too_large(self, field: str, why: str) -> ApiError:
        return ApiError(400, f"{field}: {why}; at most {self.reply_bytes / 1e6:g} MB are allowed (--max-reply-mb)",
                        code="reply_too_large", param=field)

    def check_messages(self, count: int) -> None:
        if count > self.messages:
            raise ApiError(400, f"messages: {count} messages; at most {self.messages} are allowed (--max-messages)",
                           param="messages")

    def stop_strings(self, stop: str | list[str] | None) -> list[str]:
        strings = [stop] if isinstance(stop, str) else stop or []
        if len(strings) > self.stop:
            raise ApiError(400, f"stop: {len(strings)} strings; at most {self.stop} are allowed (--max-stop)",
                           param="stop")
        for text in strings:
            if not text:
                raise ApiError(400, "stop: an empty string stops nothing", param="stop")
            if len(text) > self.stop_chars:
                raise ApiError(400, f"stop: a string of {len(text)} characters; at most {self.stop_chars} are allowed "
                                    "(--max-stop-chars)", param="stop")
        return strings
