"""Who may call: keys, compared without telling by time how much of one was right; hosts, where there are no keys."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import logging
from collections.abc import Iterable
from pathlib import Path

from drut.errors import RequestError
from drut.server.config import ServerConfig
from drut.server.protocol.errors import ApiError

log = logging.getLogger("drut.server")

MIN_KEY_CHARS = 8
KEY_ID_CHARS = 12


class Keys:
    """The keys' SHA-256 digests; the keys themselves are not kept. Without any, everybody may call."""

    def __init__(self, keys: Iterable[str]) -> None:
        for key in (keys := list(keys)):
            if not key or not (key.isascii() and key.isprintable()) or " " in key:
                raise RequestError("an API key must have characters, all of them printable ASCII and none a space")
        self.shortest = min(map(len, keys), default=0)  # characters
        self._digests = [hashlib.sha256(key.encode()).digest() for key in keys]

    @classmethod
    def of(cls, config: ServerConfig) -> Keys:
        """Those of flag, environment and file. RequestError where one is no good or the file cannot be read."""
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
        """The id of the key in a header `Authorization: Bearer KEY`; empty where none is needed. ApiError 401."""
        if not self._digests:
            return ""
        scheme, _, key = authorization.partition(" ")
        digest = hashlib.sha256(key.strip().encode("utf-8", "surrogateescape")).digest()
        known = False
        for right in self._digests:  # all of them, whichever fits
            known |= hmac.compare_digest(digest, right)
        if not known or scheme.lower() != "bearer":
            missing = "no API key was given" if not authorization else "the API key is not valid"
            raise ApiError(401, f"{missing}: send it as 'Authorization: Bearer KEY'", code="invalid_api_key")
        return digest.hex()[:KEY_ID_CHARS]


def salt_of(caller: str, salt: str | None) -> str:
    """What keeps one caller's cached prefixes from another's: nobody can name a salt of another key's space."""
    return f"{caller}/{salt or ''}" if caller or salt else ""


class Hosts:
    """Names this server goes by. A page in a browser can reach a keyless server under its own name (DNS rebinding)."""

    def __init__(self, config: ServerConfig, *, keyless: bool) -> None:
        names = {"localhost", config.host.lower(), *(n.strip().lower() for n in config.allowed_hosts.split(","))}
        self._names = names - {""} if keyless else None

    def check(self, host: str) -> None:
        """ApiError 403 for a name that is not ours; addresses cannot be rebound."""
        if self._names is None:
            return
        name = host.lower().rsplit(":", 1)[0] if not host.endswith("]") else host.lower()
        if name not in self._names and not is_address(name.strip("[]")):
            raise ApiError(403, "this server does not go by the name in the header Host; see --allowed-hosts",
                           code="host_not_allowed")


def is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`. A name that is not an address or localhost may be public."""
    return host == "localhost" or (is_address(host) and ipaddress.ip_address(host).is_loopback)


def check_exposure(config: ServerConfig, keys: Keys) -> None:
    """RequestError where everybody on the network could use the server unasked, or guess a key. Where only this machine
    can reach it a short key is taken, with a warning."""
    if keys and keys.shortest < MIN_KEY_CHARS:
        short = f"an API key of {keys.shortest} characters is easy to guess; give it at least {MIN_KEY_CHARS}"
        if not is_loopback(config.host):
            raise RequestError(f"{short}, since host {config.host} can be reached from outside")
        log.warning("%s", short)
    if not is_loopback(config.host) and not keys and not config.allow_keyless:
        raise RequestError(f"host {config.host} can be reached from outside: set --api-key, DRUT_API_KEY or "
                           "--api-key-file, or --allow-keyless if everybody may use it")
