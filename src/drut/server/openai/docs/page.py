"""The page of `/docs`: every route with fields, examples and errors, from the OpenAPI document, in one file."""

from __future__ import annotations

import json
import re
import shlex
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2.sandbox import ImmutableSandboxedEnvironment
from markupsafe import Markup, escape

from drut.server.openai.docs.schema import fields_of
from drut.server.openai.protocol.errors import ApiError, encode_error

MAX_DEPTH = 4  # of structs in structs


def page(document: dict[str, Any], *, model: str, address: str) -> bytes:
    """Returns the page. `document`: the OpenAPI document, as data; `address`: the server's URL."""
    schemas = document["components"]["schemas"]
    keyed = "securitySchemes" in document["components"]
    operations = [operation(method, path, spec, address, keyed=keyed)
                  for path, methods in document["paths"].items() for method, spec in methods.items()]
    error = json.dumps(json.loads(encode_error(ApiError(
        400, "temperature: expected `float` <= 100.0", param="temperature"))), indent=2)
    text: str = template().render(
        model=model, address=address, keyed=keyed, operations=operations, error=error,
        version=document["info"]["version"], depth=MAX_DEPTH, fields=lambda name: list(fields_of(name, schemas)),
        about=lambda name: schemas[name].get("description", ""))
    return text.encode()


def operation(method: str, path: str, spec: dict[str, Any], address: str, *, keyed: bool) -> dict[str, Any]:
    """Returns a route as the template takes it."""
    body = spec.get("requestBody", {}).get("content", {}).get("application/json", {})
    content = spec["responses"]["200"]["content"]
    return {"method": method.upper(), "path": path, "summary": spec["summary"], "request": name_of(body),
            "id": f"{method}-{re.sub('[^a-z]+', '-', path.lower()).strip('-')}",
            "reply": name_of(content.get("application/json", {})), "media": next(iter(content)),
            "parameters": spec.get("parameters", []), "example": curl(method, path, body, address, keyed=keyed),
            "errors": {status: reply["description"] for status, reply in sorted(spec["responses"].items())
                       if status != "200"}}


def curl(method: str, path: str, body: dict[str, Any], address: str, *, keyed: bool) -> str:
    """Returns a command that sends the example of a request."""
    lines = [f"curl {address}{path.replace('{name}', 'NAME')}"]
    if keyed and path not in ("/health", "/ready"):
        lines.append('-H "Authorization: Bearer $DRUT_API_KEY"')
    if method == "post":
        lines += ["-H 'Content-Type: application/json'", f"-d {shlex.quote(json.dumps(body['example']))}"]
    return " \\\n  ".join(lines)


def name_of(content: dict[str, Any]) -> str:
    """Returns the name of the struct of a body."""
    return str(content.get("schema", {}).get("$ref", "")).rpartition("/")[2]


def marked(text: str) -> Markup:
    """Returns text with `code` as HTML."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


@cache
def template() -> Any:
    environment = ImmutableSandboxedEnvironment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["marked"] = marked
    return environment.from_string(files(__package__).joinpath("page.html").read_text(encoding="utf-8"))
