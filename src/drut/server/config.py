"""How the server listens, whom it lets in, and what it takes at most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from drut.config import Settings, setting
from drut.parse.choose import FAMILIES
from drut.parse.formats import FORMATS


@dataclass(frozen=True)
class ServerConfig(Settings):
    """Limits are refusals, not hints: what is above one gets an error that names it."""

    TITLE: ClassVar[str] = "server"

    host: str = setting("127.0.0.1", "address to listen on; any but a loopback address needs an API key")
    port: int = setting(8000, "port to listen on; 0: any free one", type=int, least=0, most=65535)
    api_key: str | None = setting(
        None, "keys that clients may use, with commas between them; under 8 characters on a loopback address only",
        env="DRUT_API_KEY")
    api_key_file: str | None = setting(None, "file with one key a line", env="DRUT_API_KEY_FILE")
    allow_keyless: bool = setting(False, "listen on a public address without a key", type=bool)
    allowed_hosts: str = setting("", "names that clients may call this server by where no key is set, with commas "
                                     "between them; localhost, addresses and --host are allowed anyway")
    allowed_origins: str = setting("", "origins of web pages that may call this server from a browser, as "
                                       "http://localhost:3000, with commas between them, or * for all; by default none")
    served_model_name: str | None = setting(None, "the model's name to clients, or several with commas between them; "
                                                  "* takes any name (default: MODEL, or the end of its path)")
    strict_fields: bool = setting(False, "refuse requests with unknown fields instead of naming these in a header",
                                  type=bool)
    engine: str = setting("process", "where the engine runs", choices=("thread", "process"))
    tool_parser: str = setting("auto", "how the model writes calls of tools (auto: as its template does)",
                               choices=("auto", *FORMATS))
    plain_messages: bool = setting(False, "special tokens that messages or tools spell are ordinary text in a prompt",
                                   type=bool)
    tool_string_chars: int = setting(
        0, "most characters of a string in a call that must fit its schema, where that has no maximum; 0: as many as "
           "the model likes", type=int, least=0, most=1 << 14)
    tool_array_items: int = setting(0, "most items of an array, likewise", type=int, least=0, most=1 << 14)
    reasoning_parser: str = setting("auto", f"what its thoughts stand between: {', '.join(FAMILIES)}, tag:NAME for "
                                            "<NAME> and </NAME>, or none (auto: what its template looks for)")
    max_queue: int = setting(256, "most requests that wait for the engine", type=int, least=1, most=1 << 20)
    max_queue_tokens: int | None = setting(None, "most prompt tokens of requests that wait", type=int, least=1,
                                           most=1 << 40)
    max_wait_s: float = setting(60.0, "seconds within which the engine must be expected to take what waits; "
                                      "beyond that requests are refused", type=float, least=0.1, most=86400)
    drain_s: float = setting(60.0, "seconds that requests under way have left after a first SIGTERM", type=float,
                             least=0, most=86400)
    stuck_s: float = setting(120.0, "seconds after which a step of the engine counts as stuck, and the server ends",
                             type=float, least=1, most=86400)
    request_log: bool = setting(True, "a line of JSON on standard output for each request, without its text", type=bool)
    otlp_endpoint: str | None = setting(None, "URL of an OTLP collector that gets a span for each request, as "
                                              "http://127.0.0.1:4318/v1/traces; needs drut[otel]",
                                        env="OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    max_body_mb: float = setting(8.0, "most MB of a request's body", type=float, least=0.001, most=256)
    max_header_kb: int = setting(64, "most KB of a request's line and headers", type=int, least=1, most=1024)
    max_headers: int = setting(100, "most headers of a request", type=int, least=8, most=10_000)
    max_choices: int = setting(256, "most answers of a request, prompts times n", type=int, least=1, most=16384)
    max_reply_mb: float = setting(64.0, "most MB that a reply is expected to have at most: choices times tokens times "
                                        "bytes of text and logprobs; of a stream what it says of prompts",
                                  type=float, least=0.001, most=16384)
    max_text_chars: int = setting(1_000_000, "most characters of a text to tokenize", type=int, least=1, most=1 << 30)
    max_messages: int = setting(4096, "most messages of a conversation", type=int, least=1, most=1 << 20)
    max_tools: int = setting(256, "most tools of a request", type=int, least=1, most=1 << 14)
    max_stop: int = setting(4, "most stop strings", type=int, least=1, most=256)
    max_stop_chars: int = setting(256, "most characters of a stop string", type=int, least=1, most=4096)
    max_backlog_kb: int = setting(1024, "KB of an answer that may wait for a slow reader before it is cut off",
                                  type=int, least=1, most=1 << 20)
    keep_alive_s: float = setting(10.0, "seconds of silence after which a stream sends a comment", type=float,
                                  least=0.05, most=3600)
    head_timeout_s: float = setting(20.0, "most seconds until a connection's next request is read up to its body",
                                    type=float, least=0.1, most=3600)
    body_timeout_s: float = setting(60.0, "most seconds for a body to come", type=float, least=0.1, most=3600)
    write_timeout_s: float = setting(60.0, "most seconds a client may take nothing of what is sent", type=float,
                                     least=0.1, most=3600)
    idle_timeout_s: float = setting(75.0, "most seconds a connection may wait between two requests", type=float,
                                    least=1, most=86400)
    tcp_keepalive_s: int = setting(60, "seconds of silence after which the system asks whether a client is still there",
                                   type=int, least=1, most=32767)
    max_connections: int | None = setting(None, "most open connections (default: 4096, or as many as the limit of open "
                                                "files leaves room for)", type=int, least=1, most=1 << 16)
    max_connections_per_address: int = setting(256, "most open connections of one address; loopback has no such cap",
                                               type=int, least=1, most=1 << 16)
    text_threads: int = setting(2, "threads that read, template and tokenize requests", type=int, least=1, most=64)
