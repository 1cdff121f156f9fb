"""One OpenTelemetry span per request, with its times and token counts as attributes and none of its text. An extra.

Attributes follow the semantic conventions for generative AI. These have no server-side times, which have vLLM's names.
docs/metrics.md lists the attributes, and a test compares.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from drut import __version__
from drut.errors import UnsupportedError
from drut.server.admission.request_record import FAILURES, NullObserver, RequestRecord

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import SpanProcessor, TracerProvider

EXPORT_S = 5.0  # timeout of a batch's export
Value = str | int | float | list[str]


def open_spans(endpoint: str, model: str) -> RequestSpans:
    """Returns an observer whose spans go to an OTLP collector over HTTP, at this URL, in batches from its own thread.

    UnsupportedError if the extra is not installed. The SDK reads its own variables, such as OTEL_SERVICE_NAME.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise UnsupportedError("--otlp-endpoint needs an extra: pip install 'drut[otel]'") from None
    return RequestSpans(model, BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint, timeout=EXPORT_S)))


class RequestSpans(NullObserver):
    """An observer that makes a span of each request that has ended or was rejected."""

    def __init__(self, model: str, processor: SpanProcessor) -> None:
        """`model`: its name for clients. `processor` receives the spans."""
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._model, self._provider = model, _provider()
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("drut.server", __version__)
        self._propagator = TraceContextTextMapPropagator()

    def observe(self, record: RequestRecord) -> None:
        """Exports the span of a request, from arrival to end, as a child of the span that the client named."""
        from opentelemetry.trace import SpanKind, Status, StatusCode

        behind_ns = time.time_ns() - time.monotonic_ns()
        ended = record.finished if record.finished is not None else time.monotonic()
        span = self._tracer.start_span(
            f"{record.operation} {self._model}", self._propagator.extract(record.trace), SpanKind.SERVER,
            attributes=attributes(record, self._model), start_time=int(record.arrived * 1e9) + behind_ns)
        if record.finish_reason in FAILURES:
            span.set_status(Status(StatusCode.ERROR))
        span.end(int(ended * 1e9) + behind_ns)

    def close(self) -> None:
        """Exports the remaining spans. Blocks for up to EXPORT_S if the collector does not answer."""
        self._provider.shutdown()


def _provider() -> TracerProvider:
    """Returns the SDK's provider as its variables configure it; the service name defaults to `drut`."""
    from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
    from opentelemetry.sdk.trace import TracerProvider

    resource = Resource.create({SERVICE_VERSION: __version__})
    if str(resource.attributes[SERVICE_NAME]).startswith("unknown_service"):
        resource = resource.merge(Resource({SERVICE_NAME: "drut"}))
    return TracerProvider(resource=resource, shutdown_on_exit=False)


def attributes(record: RequestRecord, model: str) -> Mapping[str, Value]:
    """Returns the attributes of a request's span; unknown values are left out."""
    known: dict[str, Value | None] = {
        "gen_ai.operation.name": record.operation,
        "gen_ai.provider.name": "drut",
        "gen_ai.request.model": model,
        "gen_ai.response.model": model,
        "gen_ai.response.id": record.id,
        "gen_ai.response.finish_reasons": record.finish_reasons or None,
        "gen_ai.usage.input_tokens": record.prompt_tokens,
        "gen_ai.usage.output_tokens": record.completion_tokens,
        "gen_ai.usage.cache_read.input_tokens": record.cached_tokens or None,
        "gen_ai.request.choice.count": record.choices if record.choices != 1 else None,
        "gen_ai.latency.time_in_queue": record.queue_s,
        "gen_ai.latency.time_in_model_prefill": record.prefill_s,
        "gen_ai.latency.time_in_model_decode": record.decode_s,
        "gen_ai.latency.time_to_first_token": record.ttft_s,
        "gen_ai.latency.e2e": record.e2e_s,
        "error.type": record.finish_reason if record.finish_reason in FAILURES else None,
    }
    if (params := record.params) is not None:
        known |= {
            "gen_ai.request.max_tokens": params.max_tokens,
            "gen_ai.request.temperature": params.temperature,
            "gen_ai.request.top_p": params.top_p,
            "gen_ai.request.top_k": params.top_k or None,
            "gen_ai.request.seed": params.seed,
            "gen_ai.request.presence_penalty": params.presence_penalty or None,
            "gen_ai.request.frequency_penalty": params.frequency_penalty or None,
        }
    return {name: value for name, value in known.items() if value is not None}
