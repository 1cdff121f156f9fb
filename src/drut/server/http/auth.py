"""Authentication: API keys, compared in constant time; host names, if there are no keys."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import logging
import re
from collections.abc import Iterable
from pathlib import Path

from drut.errors import RequestError
from drut.server.config import ServerConfig
from drut.server.openai.protocol.errors import ApiError

log = logging.getLogger("drut.server")

MIN_KEY_CHARS = 8
KEY_ID_CHARS = 12
HOST_NAME = re.compile(r"[a-z0-9._-]+")


class ApiKeys:
    """The SHA-256 digests of the API keys; the keys themselves are not kept. Without any, every client may call."""

    def __init__(self, keys: Iterable[str]) -> None:
        for key in (keys := list(keys)):
            if not key or not (key.isascii() and key.isprintable()) or " " in key:
                raise RequestError("an API key must have characters, all of them printable ASCII and none a space")
        self.shortest = min(map(len, keys), default=0)  # characters
        self._digests = [hashlib.sha256(key.encode()).digest() for key in keys]

    @classmethod
    def of(cls, config: ServerConfig) -> ApiKeys:
        """Returns the keys of flag, environment and file. RequestError if one is invalid or the file is unreadable."""
        keys = config.api_key.split(",") if config.api_key is not None else []
        if config.api_key_file is not None:
            try:
                lines = Path(config.api_key_file).read_text().splitlines()
            except (OSError, UnicodeDecodeError) as error:
                raise RequestError(f"api_key_file: {error}") from None
            keys += [line.strip() for line in lines if line.strip()]
            if not keys:
                raise RequestError(f"api_key_file: {config.api_key_file} holds no key")
        return cls(keys)

    def __bool__(self) -> bool:
        return bool(self._digests)

    def __len__(self) -> int:
        return len(self._digests)

    def caller(self, authorization: str) -> str:
        """Returns the id of the key in `Authorization: Bearer KEY`; empty if no key is needed. ApiError 401."""
        if not self._digests:
            return ""
        scheme, _, key = authorization.partition(" ")
        digest = hashlib.sha256(key.strip().encode("utf-8", "surrogateescape")).digest()
        known = False
        for valid in self._digests:  # no early exit: the time must not depend on which key matches
            known |= hmac.compare_digest(digest, valid)
        if not known or scheme.lower() != "bearer":
            missing = "no API key was given" if not authorization else "the API key is not valid"
            raise ApiError(401, f"{missing}: send it as 'Authorization: Bearer KEY'", code="invalid_api_key")
        return digest.hex()[:KEY_ID_CHARS]


def salt_of(caller: str, salt: str | None) -> str:
    """Returns the cache salt of a request. It keeps cached prefixes of callers apart: no client can name a salt that
    belongs to another key."""
    return f"{caller}/{salt or ''}" if caller or salt else ""


class Hosts:
    """Host names of this server, checked if it has no keys: else a web page could reach it under the page's own name
    (DNS rebinding)."""

    def __init__(self, config: ServerConfig, *, keyless: bool) -> None:
        given = [name.strip().lower() for name in config.allowed_hosts.split(",") if name.strip()]
        if wrong := next((name for name in given if not HOST_NAME.fullmatch(name)), None):
            raise RequestError(f"--allowed-hosts: {wrong!r} is not a host name such as drut (without scheme and port)")
        names = {"localhost", config.host.lower(), *given}
        self._names = names if keyless else None

    def check(self, host: str) -> None:
        """Raises ApiError 403 for a name that is not this server's. Addresses pass: they cannot be rebound."""
        if self._names is None:
            return
        name = host.lower().rsplit(":", 1)[0] if not host.endswith("]") else host.lower()
        if name not in self._names and not is_address(name.strip("[]")):
            shown = "".join(c for c in name if c.isascii() and (c.isalnum() or c in "-._"))[:64]
            raise ApiError(403, f"the header Host names {shown!r}, which is not a name of this server: start it with "
                                f"--allowed-hosts {shown or 'NAME'} if it is", code="host_not_allowed")


def is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Returns whether only this machine can reach `host`. Any name other than localhost counts as public."""
    return host == "localhost" or (is_address(host) and ipaddress.ip_address(host).is_loopback)


def check_exposure(config: ServerConfig, keys: ApiKeys) -> None:
    """Raises RequestError if every machine of the network could use the server without a key, or guess a key. A short
    key is accepted, with a warning, if only this machine can reach the server."""
    if keys and keys.shortest < MIN_KEY_CHARS:
        short = f"an API key of {keys.shortest} characters is easy to guess; give it at least {MIN_KEY_CHARS}"
        if not is_loopback(config.host):
            raise RequestError(f"{short}, since host {config.host} can be reached from outside")
        log.warning("%s", short)
    if not is_loopback(config.host) and not keys and not config.allow_keyless:
        raise RequestError(f"host {config.host} can be reached from outside: set --api-key, DRUT_API_KEY or "
                           "--api-key-file, or --allow-keyless if every client may use it")
