"""Settings of the server: address, API keys, parsers, and the limits of queue, requests and connections."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from drut.config import Settings, setting
from drut.engine.request.params import MODEL_FIELDS, SamplingParams
from drut.parse.choose import FAMILIES
from drut.parse.formats import FORMATS


@dataclass(frozen=True)
class ServerConfig(Settings):
    """Settings of `drut serve`. Limits are strict: a request above one gets an error that names it."""

    TITLE: ClassVar[str] = "server"

    host: str = setting("127.0.0.1", "address to listen on; any but a loopback address needs an API key",
                        env="DRUT_HOST")
    port: int = setting(8000, "port to listen on; 0: any free port", type=int, least=0, most=65535,
                        env="DRUT_PORT")
    api_key: str | None = setting(
        None, "API keys that clients may use, separated by commas; under 8 characters on a loopback address only",
        env="DRUT_API_KEY")
    api_key_file: str | None = setting(None, "file with one API key per line", env="DRUT_API_KEY_FILE")
    allow_keyless: bool = setting(False, "listen on a public address without a key", type=bool)
    allowed_hosts: str = setting(
        "", "host names that clients may use for this server if no key is set, such as drut or host.docker.internal, "
            "separated by commas; localhost, addresses and --host are always allowed", several=True)
    cors_origins: str = setting(
        "", "origins of web pages that may call this server from a browser, such as http://localhost:3000, separated "
            "by commas; * for all, which needs an API key (default: none)", several=True)
    served_model_name: str | None = setting(None, "model name for clients, or several separated by commas; "
                                                  "* accepts any name (default: MODEL, or the end of its path)",
                                          several=True)
    strict_fields: bool = setting(False, "refuse requests with unknown fields instead of naming these in a header",
                                  type=bool)
    engine: str = setting("process", "where the engine runs", choices=("thread", "process"), internal=True)
    tool_parser: str = setting("auto", "how the model writes tool calls (auto: as its chat template does)",
                               choices=("auto", *FORMATS))
    temperature: float | None = setting(None, "default of requests that do not set it (default: the model's, else 1)",
                                        type=float, least=0, most=100)
    top_p: float | None = setting(None, "the same for top_p (default: the model's, else 1)", type=float, least=1e-6,
                                  most=1)
    top_k: int | None = setting(None, "the same for top_k (default: the model's, else 0, off)", type=int, least=0,
                                most=1 << 30)
    min_p: float | None = setting(None, "the same for min_p (default: the model's, else 0, off)", type=float, least=0,
                                  most=1)
    repetition_penalty: float | None = setting(None, "the same for repetition_penalty (default: the model's, else 1, "
                                                     "off)", type=float, least=0.01, most=100)
    special_tokens_in_messages: str = setting(
        "text", "what text of messages and tools that spells a special token becomes: ordinary text, or (parse) that "
                "token", choices=("text", "parse"))
    tool_string_chars: int = setting(
        0, "maximum characters of a string in a tool call that must match its schema, if the schema sets no maximum; "
           "0: no limit", type=int, least=0, most=1 << 14, internal=True)
    tool_array_items: int = setting(0, "maximum items of an array in such a tool call; 0: no limit", type=int, least=0,
                                    most=1 << 14, internal=True)
    reasoning_parser: str = setting("auto", f"marks around the model's reasoning: {', '.join(FAMILIES)}, tag:NAME for "
                                            "<NAME> and </NAME>, or none (auto: those of its chat template)")
    max_queue: int = setting(256, "maximum requests in the queue before the engine", type=int, least=1, most=1 << 20)
    max_queue_tokens: int | None = setting(None, "maximum prompt tokens in that queue", type=int, least=1,
                                           most=1 << 40, internal=True)
    max_wait_s: float = setting(60.0, "maximum expected wait in the queue, seconds; "
                                      "a request that would wait longer is refused", type=float, least=0.1, most=86400,
                                internal=True)
    drain_s: float = setting(60.0, "seconds that accepted requests may still run after a first SIGTERM", type=float,
                             least=0, most=86400, internal=True)
    stuck_s: float = setting(120.0, "seconds after which an engine step counts as stuck and the server ends",
                             type=float, least=1, most=86400, internal=True)
    request_log: bool = setting(True, "write a JSON line to standard output for each request, without its text",
                                type=bool)
    failure_log: str = setting(
        "errors", "failed requests as lines on standard error, without their text: errors, all (those too whose client "
                  "disconnected), or none", choices=("errors", "all", "none"))
    otlp_endpoint: str | None = setting(None, "URL of an OTLP collector that receives a span for each request, such as "
                                              "http://127.0.0.1:4318/v1/traces; needs drut[otel]",
                                        env="OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    max_body_mb: float = setting(8.0, "maximum MB of a request's body", type=float, least=0.001, most=256,
                                 internal=True)
    max_header_kb: int = setting(64, "maximum KB of a request's line and headers", type=int, least=1, most=1024,
                                 internal=True)
    max_headers: int = setting(100, "maximum headers of a request", type=int, least=8, most=10_000, internal=True)
    max_choices: int = setting(256, "maximum choices of a request, prompts times n", type=int, least=1, most=16384,
                               internal=True)
    max_reply_mb: float = setting(64.0, "maximum MB of a reply, estimated before it is computed: choices times tokens "
                                        "times bytes of text and logprobs; of a stream only its prompt fields",
                                  type=float, least=0.001, most=16384, internal=True)
    max_text_chars: int = setting(1_000_000, "maximum characters of a text to tokenize", type=int, least=1,
                                  most=1 << 30, internal=True)
    max_messages: int = setting(4096, "maximum messages of a conversation", type=int, least=1, most=1 << 20,
                                internal=True)
    max_tools: int = setting(256, "maximum tools of a request", type=int, least=1, most=1 << 14, internal=True)
    max_stop: int = setting(4, "maximum stop strings", type=int, least=1, most=256, internal=True)
    max_stop_chars: int = setting(256, "maximum characters of a stop string", type=int, least=1, most=4096,
                                  internal=True)
    max_backlog_kb: int = setting(1024, "maximum KB of output buffered for a slow client before its request is aborted",
                                  type=int, least=1, most=1 << 20, internal=True)
    keep_alive_s: float = setting(10.0, "seconds of silence after which a stream sends a comment", type=float,
                                  least=0.05, most=3600, internal=True)
    head_timeout_s: float = setting(20.0, "maximum seconds to receive a request's line and headers",
                                    type=float, least=0.1, most=3600, internal=True)
    body_timeout_s: float = setting(60.0, "maximum seconds to receive a request's body", type=float, least=0.1,
                                    most=3600, internal=True)
    write_timeout_s: float = setting(60.0, "maximum seconds in which a client reads nothing of what is sent",
                                     type=float, least=0.1, most=3600, internal=True)
    idle_timeout_s: float = setting(75.0, "maximum seconds of a connection without a request", type=float,
                                    least=1, most=86400, internal=True)
    tcp_keepalive_s: int = setting(60, "seconds of silence after which TCP keep-alive probes a client",
                                   type=int, least=1, most=32767, internal=True)
    max_connections: int | None = setting(None, "maximum open connections (default: 4096, or fewer if the limit of "
                                                "open files is too low)", type=int, least=1, most=1 << 16,
                                          internal=True)
    max_connections_per_address: int = setting(256, "maximum open connections of one address, except loopback",
                                               type=int, least=1, most=1 << 16, internal=True)
    text_threads: int = setting(2, "threads that parse, template and tokenize requests", type=int, least=1, most=64,
                                internal=True)

    def sampling(self, model: SamplingParams) -> SamplingParams:
        """Returns the defaults of requests: these settings, else the `model`'s."""
        own = {name: getattr(self, name) for name in MODEL_FIELDS}
        return SamplingParams(**{n: getattr(model, n) if value is None else value for n, value in own.items()})
