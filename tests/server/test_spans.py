"""One span per request: its parent, its attributes, and no cost without an endpoint."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from drut.engine.request.params import FilledParams
from drut.errors import UnsupportedError
from drut.server.admission.request_record import RequestRecord
from drut.server.spans import RequestSpans, attributes, open_spans
from tests.server.rig import serving, until

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARAMS = FilledParams(max_tokens=9, temperature=0.5, seed=4, n=2, top_k=3, presence_penalty=0.5,
                        frequency_penalty=0.25, stop=["secret stop"])


def record(**fields: Any) -> RequestRecord:
    """A record of a request that waited for 1 s, was prefilled for 2 s and decoded for 4 s."""
    times = {"admitted": 101.0, "first_token": 103.0, "last_token": 107.0, "finished": 108.0}
    return RequestRecord("r1", "somebody", 0, 2, 100.0, **{
        **times, "prompt_tokens": 7, "cached_tokens": 3, "completion_tokens": 5, "finish_reason": "stop",
        "finish_reasons": ["stop", "length"], "operation": "chat", "params": PARAMS, **fields})


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def spans(exporter: InMemorySpanExporter) -> RequestSpans:
    return RequestSpans("tiny", SimpleSpanProcessor(exporter))


def test_the_attributes_of_a_span(spans: RequestSpans, exporter: InMemorySpanExporter) -> None:
    spans.observe(record(trace={"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "a=b"}))
    (span,) = exporter.get_finished_spans()
    assert (span.name, span.kind) == ("chat tiny", SpanKind.SERVER)
    assert span.status.status_code is StatusCode.UNSET
    assert span.parent is not None
    assert (f"{span.parent.trace_id:032x}", f"{span.parent.span_id:016x}") == (TRACE, PARENT)
    assert span.context.trace_state.get("a") == "b"
    assert span.start_time is not None
    assert span.end_time is not None
    assert span.end_time - span.start_time == pytest.approx(8e9, abs=1e3)
    told = dict(span.attributes or {})
    assert told == {
        "gen_ai.operation.name": "chat", "gen_ai.provider.name": "drut", "gen_ai.request.model": "tiny",
        "gen_ai.response.model": "tiny", "gen_ai.response.id": "r1",
        "gen_ai.response.finish_reasons": ("stop", "length"),
        "gen_ai.usage.input_tokens": 7, "gen_ai.usage.output_tokens": 5, "gen_ai.usage.cache_read.input_tokens": 3,
        "gen_ai.request.choice.count": 2, "gen_ai.request.max_tokens": 9, "gen_ai.request.temperature": 0.5,
        "gen_ai.request.top_p": 1.0, "gen_ai.request.top_k": 3, "gen_ai.request.seed": 4,
        "gen_ai.request.presence_penalty": 0.5, "gen_ai.request.frequency_penalty": 0.25,
        "gen_ai.latency.time_in_queue": 1.0, "gen_ai.latency.time_in_model_prefill": 2.0,
        "gen_ai.latency.time_in_model_decode": 4.0, "gen_ai.latency.time_to_first_token": 3.0,
        "gen_ai.latency.e2e": 8.0}
    assert "secret" not in str(told)


def test_a_request_that_got_no_place(spans: RequestSpans, exporter: InMemorySpanExporter) -> None:
    spans.observe(RequestRecord("r1", "", 0, 1, 100.0, finished=100.5, finish_reason="rejected", operation="chat"))
    (span,) = exporter.get_finished_spans()
    assert span.parent is None
    assert span.status.status_code is StatusCode.ERROR
    assert (span.attributes or {})["error.type"] == "rejected"
    assert not any(name.startswith("gen_ai.latency.time") for name in span.attributes or {})


PARENTS = st.from_regex(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}", fullmatch=True)


def test_whatever_a_client_sends_is_survived(spans: RequestSpans, exporter: InMemorySpanExporter) -> None:
    """One that asks for no sample gets none, which only a well-formed header can."""
    @given(parent=st.text(max_size=80) | PARENTS, state=st.text(max_size=80))
    @settings(deadline=None, max_examples=50)
    def check(parent: str, state: str) -> None:
        exporter.clear()
        spans.observe(record(trace={"traceparent": parent, "tracestate": state}))
        sampled = not re.fullmatch(r"(?!ff)\w\w-(?!0{32})\w{32}-(?!0{16})\w{16}-\w[02468ace]", parent)
        assert len(exporter.get_finished_spans()) == sampled

    check()


def test_the_docs_list_the_attributes() -> None:
    text = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
    section = text.partition("\n## Spans\n")[2].partition("\n## ")[0]
    listed = set(re.findall(r"`([a-z_.]+\.[a-z_.0-9]+)`", section))
    told = attributes(record(), "m") | attributes(record(finish_reason="error"), "m")
    assert listed == set(told)


class Collector(BaseHTTPRequestHandler):
    """Keeps what it is sent, in its server's `got`."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append((self.path, ExportTraceServiceRequest.FromString(body)))  # type: ignore[attr-defined]
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def collecting() -> Iterator[tuple[str, list[tuple[str, ExportTraceServiceRequest]]]]:
    """A collector's URL, and what it got."""
    server = HTTPServer(("127.0.0.1", 0), Collector)
    server.got = got = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1/traces", got
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_server_sends_them_to_a_collector(model_path: Path) -> None:
    with collecting() as (url, got):
        with serving(model_path, otlp_endpoint=url) as server:
            headers = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
            assert server.post("/v1/completions", {"prompt": ["hidden", "words"], "max_tokens": 3, "ignore_eos": True},
                               headers=headers).status == 200
            assert server.chat("hidden", max_tokens=3).status == 200
        # What was not sent yet is sent at the end.
        until(lambda: sum(len(s.spans) for _, r in got for x in r.resource_spans for s in x.scope_spans) == 3, 60)
        (path,) = {p for p, _ in got}
        assert path == "/v1/traces"
        resources = [r for _, request in got for r in request.resource_spans]
        assert {a.value.string_value for r in resources for a in r.resource.attributes if a.key == "service.name"} == {
            "drut"}
        sent = [span for r in resources for scope in r.scope_spans for span in scope.spans]
        assert sorted(s.name for s in sent) == ["chat tiny", "text_completion tiny", "text_completion tiny"]
        for span in sent:
            known = {a.key: a.value for a in span.attributes}
            assert known["gen_ai.usage.output_tokens"].int_value == 3
            assert (span.trace_id.hex() == TRACE) == (span.name == "text_completion tiny")
        assert all(b"hidden" not in r.SerializeToString() for _, r in got)


def test_without_a_collector_requests_are_answered(model_path: Path) -> None:
    with serving(model_path, otlp_endpoint="http://127.0.0.1:9/v1/traces") as server:
        assert server.complete("x", max_tokens=2).status == 200


def test_without_the_extra_it_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace.export", None)
    with pytest.raises(UnsupportedError, match=r"--otlp-endpoint needs an extra: pip install 'drut\[otel\]'"):
        open_spans("http://127.0.0.1:9/v1/traces", "tiny")


def test_nothing_of_it_is_imported_unless_asked_for() -> None:
    code = "import sys, drut.server.life.serve; sys.exit(any(m.startswith('opentelemetry') for m in sys.modules))"
    subprocess.run([sys.executable, "-c", code], check=True)
