"""The state that all routes share: text processing, admission, limits, API keys and metrics."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar

from drut.server.admission import AdmissionControl
from drut.server.config import ServerConfig
from drut.server.grammars import Compilers
from drut.server.http.auth import ApiKeys, Hosts
from drut.server.http.failures import FailureLog
from drut.server.http.limits import RequestLimits
from drut.server.life import Health
from drut.server.metrics import Metrics
from drut.server.openai.prompts import PromptProcessor
from drut.server.openai.protocol.errors import ApiError
from drut.server.openai.render.parts import bundles
from drut.server.stream.reply_memory import ReplyMemory

T = TypeVar("T")
SMALL_REPLY = 128 << 10  # bytes of a reply that the event loop encodes in one call
REPLIES = 4  # maximum number of replies of the largest size at a time


@dataclass(frozen=True)
class Loaded:
    """A loaded model."""

    texts: PromptProcessor
    admission: AdmissionControl
    compilers: Compilers
    fingerprint: str  # the numerics id
    created: int  # time of the load, seconds since 1970


class Service:
    """One model at one address. `loaded` is None until the model is loaded."""

    def __init__(self, config: ServerConfig, names: list[str], failures: FailureLog | None = None) -> None:
        self.keys = ApiKeys.of(config)
        self.config, self.names = replace(config, api_key=None), names  # only digests of the keys are kept
        self.limits = RequestLimits.of(config)
        self.hosts = Hosts(config, keyless=not self.keys)
        self.failures = failures or FailureLog(None)
        self.loaded: Loaded | None = None
        self.health, self.metrics = Health(), Metrics(self.name)
        self.reply_memory = ReplyMemory(REPLIES * self.limits.reply_bytes, small=SMALL_REPLY)
        self._pool = ThreadPoolExecutor(config.text_threads, thread_name_prefix="drut-text")

    @property
    def name(self) -> str:
        """The name of the model in replies."""
        return next(n for n in self.names if n != "*")

    def model(self) -> Loaded:
        """Returns the loaded model. ApiError 503 while it is loading."""
        if self.loaded is None:
            raise ApiError(503, "the model is being loaded", code="loading", retry_after_s=2)
        return self.loaded

    def check_model(self, name: str | None) -> None:
        """Raises ApiError 404 for a name that is not this model's; None passes."""
        if name is not None and name not in self.names and "*" not in self.names:
            raise ApiError(404, f"the model {name!r} does not exist here; {self.name!r} does",
                           code="model_not_found", param="model")

    async def off_loop(self, work: Callable[[], T]) -> T:
        """Runs long work in a text thread: parsing, templating, tokenizing, encoding large replies."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def in_parts(self, made: Iterator[bytes]) -> AsyncIterator[bytes]:
        """Yields bundles of `made`, each made in a text thread on demand, so that other requests get their turns."""
        bundled = bundles(made)
        while part := await self.off_loop(lambda: next(bundled, b"")):
            yield part

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
