"""Settings, declared once. Flags, environment variables and the docs are derived from the fields' metadata."""

from __future__ import annotations

import argparse
import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from drut.errors import RequestError


def setting(default: Any, help: str, *, type: type = str, env: str | None = None, choices: tuple[str, ...] = ()) -> Any:
    """A dataclass field that is also a flag (its name with dashes) and, where `env` is given, a variable."""
    meta = {"help": help, "type": type, "env": env, "choices": choices}
    return dataclasses.field(default=default, metadata=meta)


@dataclass(frozen=True)
class EngineConfig:
    """How an engine runs. A flag wins over the environment, the environment over the default."""

    kv_dtype: str = setting("bf16", "format of keys and values in the cache", choices=("bf16", "fp32"))
    threads: int | None = setting(None, "worker threads (default: the CPUs this process may use)", type=int,
                                  env="DRUT_THREADS")
    kv_cache_gb: float | None = setting(None, "cap of the KV cache in GB (default: from free memory)", type=float)
    backend: str = setting("auto", "who computes; auto takes native where it is built", env="DRUT_BACKEND",
                           choices=("auto", "native", "numpy"))
    execution: str = setting("replay", "replay a recorded plan, or call op by op", env="DRUT_EXECUTION",
                             choices=("replay", "eager"))
    isa: str = setting("auto", "instruction set of the native kernels (the best the CPU has, unless forced)",
                       env="DRUT_ISA")
    debug_kv: bool = setting(False, "stamp KV slots and poison freed pages, checked on each step", type=bool,
                             env="DRUT_DEBUG_KV")

    def __post_init__(self) -> None:
        for f in dataclasses.fields(self):
            value, choices = getattr(self, f.name), f.metadata["choices"]
            if choices and value not in choices:
                raise RequestError(f"{f.name} must be one of {', '.join(choices)}, not {value!r}")
        if self.threads is not None and not 1 <= self.threads <= 1024:
            raise RequestError(f"threads must be from 1 to 1024, not {self.threads}")
        if self.kv_cache_gb is not None and not 0 < self.kv_cache_gb < 1 << 20:
            raise RequestError(f"kv_cache_gb must be above 0, not {self.kv_cache_gb}")

    @classmethod
    def resolve(cls, given: Mapping[str, Any], environ: Mapping[str, str] | None = None) -> EngineConfig:
        """Settings from `given` (None = not given), then the environment, then defaults."""
        environ = os.environ if environ is None else environ
        unknown = set(given) - {f.name for f in dataclasses.fields(cls)}
        if unknown:
            raise RequestError(f"unknown setting {sorted(unknown)[0]!r}")
        values: dict[str, Any] = {}
        for f in dataclasses.fields(cls):
            env = f.metadata["env"]
            if given.get(f.name) is not None:
                values[f.name] = given[f.name]
            elif env and environ.get(env):
                values[f.name] = _parse(env, environ[env], f.metadata["type"])
        return cls(**values)


def _parse(name: str, text: str, kind: type) -> Any:
    if kind is bool:
        return text.lower() not in ("0", "false", "no", "off")
    try:
        return kind(text)
    except ValueError:
        raise RequestError(f"{name}={text!r} is not {'a number' if kind is not str else 'valid'}") from None


def add_flags(parser: argparse.ArgumentParser, cls: type = EngineConfig) -> None:
    """One flag a setting of `cls`, with help, choices and the variable that also sets it."""
    group = parser.add_argument_group("engine")
    for f in dataclasses.fields(cls):
        meta, flag = f.metadata, "--" + f.name.replace("_", "-")
        text = meta["help"] + (f" [{meta['env']}]" if meta["env"] else "")
        if meta["type"] is bool:
            group.add_argument(flag, action="store_true", default=None, help=text)
        else:
            group.add_argument(flag, type=meta["type"], choices=meta["choices"] or None, default=None, help=text)


def from_flags(args: argparse.Namespace, cls: type[EngineConfig] = EngineConfig) -> EngineConfig:
    """The settings an argument parser with `add_flags` read, completed from environment and defaults."""
    return cls.resolve({f.name: getattr(args, f.name) for f in dataclasses.fields(cls)})
