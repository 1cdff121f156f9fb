"""The message that a server prints once it is ready: what it serves, where, and a request to try."""

from __future__ import annotations

import ipaddress
import json
import shlex
from collections.abc import Iterator

from drut.engine.service.messages import EngineReady
from drut.server.http.auth import is_address

QUESTION = "Why is the sky blue?"


def greeting(url: str, model: str, ready: EngineReady, *, keyed: bool, kv_dtype: str, chats: bool,
             texts: bool) -> Iterator[str]:
    """Yields its parts, of one line or several. `keyed`: clients need a key; `chats`: the model has a chat template;
    `texts`: it has a tokenizer."""
    address = reachable(url)
    yield f"  model     {model}: {ready.weights}; {ready.description}"
    yield (f"  context   {ready.room:,} tokens; KV cache of {ready.kv_tokens:,} tokens, {ready.kv_bytes / 1e9:.2f} GB "
           f"in {kv_dtype}")
    yield f"  numerics  {ready.numerics_id}"
    yield f"  API       {address}/v1 for OpenAI's clients; documentation at {address}/docs"
    yield "try, with a key in DRUT_API_KEY:" if keyed else "try:"
    yield example(address, keyed=keyed, chats=chats, texts=texts)


def example(address: str, *, keyed: bool, chats: bool, texts: bool) -> str:
    """Returns a curl command of one request that works when pasted, with the key in DRUT_API_KEY."""
    if chats:
        path, body = "chat/completions", {"messages": [{"role": "user", "content": QUESTION}], "max_tokens": 64}
    else:
        path, body = "completions", {"prompt": "Once upon a time" if texts else [1, 2, 3], "max_tokens": 64}
    key = ['-H "Authorization: Bearer $DRUT_API_KEY"'] if keyed else []
    return " \\\n     ".join([f"curl {address}/v1/{path}", *key, "-H 'Content-Type: application/json'",
                            f"-d {shlex.quote(json.dumps(body))}"])


def reachable(url: str) -> str:
    """Returns a server's URL with an address that this machine can connect to in place of `every address`."""
    scheme, _, rest = url.partition("://")
    host, _, port = rest.rpartition(":")
    name = host.strip("[]")
    if not (is_address(name) and ipaddress.ip_address(name).is_unspecified):
        return url
    return f"{scheme}://{'[::1]' if ':' in name else '127.0.0.1'}:{port}"
