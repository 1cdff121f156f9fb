"""Counts for Prometheus."""

from __future__ import annotations

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, generate_latest


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.replies = Counter("drut_http_replies", "Replies by status sent", ["status"], registry=self.registry)

    def replied(self, status: int) -> None:
        """Counts an HTTP reply."""
        self.replies.labels(status).inc()

    def render(self) -> tuple[str, bytes]:
        """Content type and text."""
        return CONTENT_TYPE_LATEST, generate_latest(self.registry)
