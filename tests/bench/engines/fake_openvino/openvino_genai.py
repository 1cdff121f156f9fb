"""A pipeline that answers with the prompt, over and over, a byte a token; id 0 ends it, "fail" breaks it."""

from __future__ import annotations

import enum
import time
from types import SimpleNamespace
from typing import Any

__version__ = "0 (fake)"


class GenerationStatus(enum.Enum):
    RUNNING, FINISHED, CANCEL = range(3)


class SchedulerConfig:
    pass


class GenerationConfig:
    def set_eos_token_id(self, id: int) -> None:
        self.eos = id


class StructuredOutputConfig:
    def __init__(self, json_schema: str) -> None:
        self.json_schema = json_schema


class Tokenizer:
    def encode(self, text: str, add_special_tokens: bool) -> Any:
        assert not add_special_tokens
        return SimpleNamespace(input_ids=SimpleNamespace(data=[list(text.encode())]))

    def decode(self, ids: list[int]) -> str:
        return bytes(ids).decode(errors="replace")

    def apply_chat_template(self, messages: list[dict[str, str]], add_generation_prompt: bool) -> str:
        assert add_generation_prompt
        return "".join(f"<{m['role']}>{m['content']}" for m in messages)

    def get_eos_token_id(self) -> int:
        return 0


class Handle:
    def __init__(self, prompt: list[int], config: GenerationConfig) -> None:
        schema = getattr(config, "structured_output_config", None)
        self.config, self.count, self.unread = config, 0, []
        self.answer = list(schema.json_schema.encode()) if schema else prompt
        self.status = GenerationStatus.RUNNING

    def advance(self) -> None:
        id = self.answer[self.count % len(self.answer)]
        self.count += 1
        if id == self.config.eos and not self.config.ignore_eos:
            self.status = GenerationStatus.FINISHED
            return
        self.unread.append(id)
        if self.count >= self.config.max_new_tokens:
            self.status = GenerationStatus.FINISHED

    def can_read(self) -> bool:
        return bool(self.unread)

    def read(self) -> Any:
        ids, self.unread = self.unread, []
        return {0: SimpleNamespace(generated_ids=ids)}

    def get_status(self) -> GenerationStatus:
        return self.status

    def cancel(self) -> None:
        self.status = GenerationStatus.CANCEL


class ContinuousBatchingPipeline:
    def __init__(self, model: str, scheduler: SchedulerConfig, device: str, properties: dict[str, int]) -> None:
        print(f"{model} on {device}, {properties}, {vars(scheduler)}", flush=True)
        self._handles: list[Handle] = []

    def get_tokenizer(self) -> Tokenizer:
        return Tokenizer()

    def add_request(self, number: int, prompt: Any, config: GenerationConfig) -> Handle:
        self._handles.append(Handle([int(id) for id in prompt.data[0]], config))
        return self._handles[-1]

    def step(self) -> None:
        time.sleep(0.001)
        self._handles = [handle for handle in self._handles if handle.status is GenerationStatus.RUNNING]
        if any(handle.answer == list(b"fail") for handle in self._handles):
            self._handles.clear()
            raise RuntimeError("the device is gone")
        for handle in self._handles:
            handle.advance()
