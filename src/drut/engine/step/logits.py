"""Raw logits of a prompt: an ordinary request whose prompt rows are all sampled."""

from __future__ import annotations

import numpy as np

from drut.engine.request.request import Request
from drut.engine.request.update import Update
from drut.errors import DrutError
from drut.kernels.ops import F32


class LogitsReader:
    """Collects the logits of one request."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self._parts: list[F32] = []

    def push(self, update: Update) -> bool:
        """Adds the logits of an update. Returns False: it never ends the request."""
        if update.logits is not None:
            self._parts.append(update.logits)
        return False

    def result(self) -> F32:
        """Returns the logits, (prompt tokens, vocab). Raises DrutError if the request failed."""
        if self.request.failure is not None:
            raise self.request.failure
        if len(self._parts) == 0 or sum(map(len, self._parts)) != self.request.prompt_tokens:
            raise DrutError("the logits were not computed: the request was aborted")
        return np.concatenate(self._parts)
