"""What `/health` and `/ready` tell."""

from __future__ import annotations


class Health:
    def __init__(self) -> None:
        self.dead: str | None = None
        self.waits_for: str | None = "the model is being loaded"

    def alive(self) -> bool:
        """Whether the engine has not ended."""
        return self.dead is None

    def ready(self) -> tuple[bool, str]:
        """Whether a request would be taken now, else why not."""
        reason = self.dead or self.waits_for
        return reason is None, reason or ""
