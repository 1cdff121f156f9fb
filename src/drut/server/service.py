"""What the routes share: the model's text side, the way to the engine, limits, and who may call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar

from drut.server.admission import Admission
from drut.server.auth import Hosts, Keys
from drut.server.compiling import Compilers
from drut.server.config import ServerConfig
from drut.server.life import Health
from drut.server.limits import Limits
from drut.server.metrics import Metrics
from drut.server.protocol.errors import ApiError
from drut.server.render.parts import bundles
from drut.server.room import ReplyRoom
from drut.server.texts import Texts

T = TypeVar("T")
SMALL_REPLY = 128 << 10  # bytes of a reply that is made at once, where it is sent
REPLIES = 4  # of the largest size, that may be under way at a time


@dataclass(frozen=True)
class Loaded:
    """A model that can answer."""

    texts: Texts
    admission: Admission
    compilers: Compilers
    fingerprint: str  # the numerics id
    created: int  # seconds since 1970, of loading


class Service:
    """One model behind one address. `loaded` is None until the model can answer."""

    def __init__(self, config: ServerConfig, names: list[str]) -> None:
        self.keys = Keys.of(config)
        self.config, self.names = replace(config, api_key=None), names  # of the keys only digests are kept
        self.limits = Limits.of(config)
        self.hosts = Hosts(config, keyless=not self.keys)
        self.loaded: Loaded | None = None
        self.health, self.metrics = Health(), Metrics(self.name)
        self.reply_room = ReplyRoom(REPLIES * self.limits.reply_bytes, small=SMALL_REPLY)
        self._pool = ThreadPoolExecutor(config.text_threads, thread_name_prefix="drut-text")

    @property
    def name(self) -> str:
        """What replies call the model."""
        return next(n for n in self.names if n != "*")

    def model(self) -> Loaded:
        """ApiError 503 while there is none."""
        if self.loaded is None:
            raise ApiError(503, "the model is being loaded", code="loading", retry_after_s=2)
        return self.loaded

    def check_model(self, name: str | None) -> None:
        """ApiError 404 for a name that is not this model's; none at all is this one."""
        if name is not None and name not in self.names and "*" not in self.names:
            raise ApiError(404, f"the model {name!r} does not exist here; {self.name!r} does",
                           code="model_not_found", param="model")

    async def off_loop(self, work: Callable[[], T]) -> T:
        """Runs what may take long in a thread: reading, templating, tokenizing, writing large replies."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def in_parts(self, made: Iterator[bytes]) -> AsyncIterator[bytes]:
        """Bundles of `made`, each made in a thread when it is asked for; work of other requests comes in between."""
        bundled = bundles(made)
        while part := await self.off_loop(lambda: next(bundled, b"")):
            yield part

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
