"""Settings. Flags, environment variables and their documentation are derived from the fields' metadata."""

from __future__ import annotations

import argparse
import dataclasses
import os
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypedDict

from drut.errors import RequestError
from drut.foreign import SETTINGS, unknown

SWITCH = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
INTERNALS = "internals"  # the end of the title of a group of flags that a command's short help leaves out
METAVARS = {int: "N", float: "X", str: "NAME"}


def setting(default: Any, help: str, *, type: type = str, env: str | None = None, choices: tuple[str, ...] = (),
            least: float | None = None, most: float | None = None, flag: bool = True,
            short: str | None = None, internal: bool = False, several: bool = False) -> Any:
    """Returns a dataclass field that is also a flag (its name with dashes, or `short`) and, if `env` is given, a
    variable. The flag of an `internal` one is in a group of internals.

    A value that is not None must be in `least`..`most`, and one of `choices` if there are any. `several`: values
    separated by commas; the flag may be repeated, and a file may have a list.
    """
    meta = {"help": help, "type": type, "env": env, "choices": choices, "least": least, "most": most, "flag": flag,
            "short": short, "internal": internal, "several": several}
    return dataclasses.field(default=default, metadata=meta)


@dataclass(frozen=True)
class Settings:
    """The base of all groups of settings. Precedence: flag, environment variable, file, default."""

    TITLE: ClassVar[str]  # the title of the group of flags in a command's help

    def __post_init__(self) -> None:
        for f in dataclasses.fields(self):
            value = getattr(self, f.name)
            if value is not None or f.default is not None:
                typed_value(f.name, value, f.metadata["type"])
            check_value(f.name, value, f.metadata)

    @classmethod
    def names(cls) -> list[str]:
        return [f.name for f in dataclasses.fields(cls)]

    @classmethod
    def resolve(cls, given: Mapping[str, Any], environ: Mapping[str, str] | None = None,
                file: Mapping[str, Any] | None = None) -> Self:
        """Returns settings from `given` (None: not given), the environment, `file` (typed values) and the defaults, in
        this order of precedence."""
        environ, file = os.environ if environ is None else environ, file or {}
        for name in given:
            if name not in cls.names():
                raise unknown("there is no setting", name, SETTINGS, cls.names())
        values: dict[str, Any] = {}
        for f in dataclasses.fields(cls):
            env = f.metadata["env"]
            if given.get(f.name) is not None:
                values[f.name] = given[f.name]
            elif env and environ.get(env):
                values[f.name] = parse_value(env, environ[env], f.metadata["type"])
                check_value(env, values[f.name], f.metadata)
            elif f.name in file:
                value = joined(file[f.name]) if f.metadata["several"] else file[f.name]
                values[f.name] = typed_value(f.name, value, f.metadata["type"])
        return cls(**values)

    @classmethod
    def chosen(cls, whole: Self | None, given: Mapping[str, Any]) -> Self:
        """Returns `whole`, or else the settings `given`. Raises RequestError for both, and for another type."""
        if whole is None:
            return cls.resolve(given)
        if not isinstance(whole, cls):
            raise RequestError(f"config must be {cls.__name__}, not {type(whole).__name__}")
        if given:
            raise RequestError(f"config has all settings: set {sorted(given)[0]} in it")
        return whole

    @classmethod
    def from_args(cls, args: argparse.Namespace, file: Mapping[str, Any] | None = None) -> Self:
        """Returns the settings that an argument parser with `add_flags` read, completed from environment, `file` and
        defaults."""
        return cls.resolve({name: joined(getattr(args, name, None)) for name in cls.names()}, file=file)


@dataclass(frozen=True)
class EngineConfig(Settings):
    """The settings of an engine."""

    TITLE: ClassVar[str] = "engine"

    kv_dtype: str = setting("bf16", "format of keys and values in the cache", choices=("bf16", "int8", "fp32"))
    kv_cache_gb: float | None = setting(None, "maximum size of the KV cache in GB (default: from free memory)",
                                        type=float, least=1e-6, most=1 << 20)
    max_model_len: int | None = setting(
        None, "maximum tokens of a prompt and its output (default: the model's context)", type=int, least=2,
        most=1 << 30)
    generation_config: str = setting("auto", "sampling defaults of requests: those that the model's publisher "
                                     "recommends (auto), or none", choices=("auto", "none"))
    prefix_cache: bool = setting(True, "share the KV of common prefixes between requests", type=bool)
    window_pages: bool = setting(True, "for layers with a sliding window, keep only the pages inside the window",
                                 type=bool, internal=True)
    max_batch_tokens: int = setting(512, "maximum tokens of one step", type=int, least=1, most=1 << 20, internal=True)
    max_seqs: int = setting(128, "maximum sequences computed at a time", type=int, least=1, most=1 << 14)
    continuous_batching: bool = setting(True, "admit requests while others run; off: static batches, each after the "
                                        "previous one is complete", type=bool, internal=True)
    chunk_tokens: int | None = setting(
        None, "maximum prompt tokens of a request in a step; 0: whole prompts (default: as many as stall no stream)",
        type=int, least=0, most=1 << 20, internal=True)
    policy: str = setting("fcfs", "scheduling policy: order of admission and of preemption",
                          choices=("fcfs", "priority", "aging", "least-served", "longest-prefix"), internal=True)
    aging_s: float = setting(10.0, "seconds of waiting that count as much as one level of priority (policies aging and "
                             "least-served)", type=float, least=0.001, most=1e6, internal=True)
    reserve_quantile: float = setting(
        0.0, "quantile of output lengths for which admission reserves KV pages; 1: each request's maximum",
        type=float, least=0.0, most=1.0, internal=True)
    overlap: bool = setting(True, "schedule and detokenize while a step runs", type=bool, internal=True)
    multi_step: int = setting(16, "maximum decoding steps in one native call; only with overlap",
                              type=int, least=1, most=1024, internal=True)
    forced_tokens: bool = setting(True, "append tokens that a grammar forces at once, instead of sampling each",
                                  type=bool, internal=True)
    speculate: str = setting("none", "speculative decoding: a method with options, as in ngram:k=8,min=2; methods are "
                             "none, auto, ngram, suffix, medusa, eagle3 and draft")
    threads: int | None = setting(None, "worker threads (default: the CPUs this process may use)", type=int,
                                  env="DRUT_THREADS", least=1, most=1024, short="-t")
    backend: str = setting("auto", "backend of the computation; auto: native if it is built", env="DRUT_BACKEND",
                           choices=("auto", "native", "numpy"), internal=True)
    execution: str = setting("replay", "replay a recorded plan, or call each operation from Python (eager)",
                             env="DRUT_EXECUTION", choices=("replay", "eager"), internal=True)
    fusion: bool = setting(True, "fuse operations; off: norms, projections, activations and sums are separate",
                           type=bool, internal=True)
    isa: str = setting("auto", "instruction set of the native kernels; auto: the best that the CPU has",
                       env="DRUT_ISA", internal=True)
    pack_cache: bool = setting(False, "keep packed weights on disk (models from 256 MB), for faster loads", type=bool,
                               env="DRUT_PACK_CACHE")
    pack_cache_gb: float = setting(20.0, "maximum disk space of packed weights in GB; the least recently used are "
                                   "removed first", type=float, least=0.0, most=1 << 20, internal=True)
    grammar_cache_mb: float = setting(64.0, "memory for compiled grammars in MB; the least recently used are removed "
                                      "first", type=float, least=0.0, most=1 << 20, internal=True)
    grammar_timeout_s: float = setting(8.0, "maximum seconds for compiling a grammar, waiting included", type=float,
                                       least=0.01, most=3600.0, internal=True)
    debug_kv: bool = setting(False, "stamp KV slots, poison freed pages and check both on each step", type=bool,
                             env="DRUT_DEBUG_KV", internal=True)


class EngineSettings(TypedDict, total=False):
    """The fields of EngineConfig, as keyword arguments of LLM and AsyncEngine."""

    kv_dtype: str
    kv_cache_gb: float | None
    max_model_len: int | None
    generation_config: str
    prefix_cache: bool
    window_pages: bool
    max_batch_tokens: int
    max_seqs: int
    continuous_batching: bool
    chunk_tokens: int | None
    policy: str
    aging_s: float
    reserve_quantile: float
    overlap: bool
    multi_step: int
    forced_tokens: bool
    speculate: str
    threads: int | None
    backend: str
    execution: str
    fusion: bool
    isa: str
    pack_cache: bool
    pack_cache_gb: float
    grammar_cache_mb: float
    grammar_timeout_s: float
    debug_kv: bool


def check_value(name: str, value: Any, meta: Mapping[str, Any]) -> None:
    """Raises RequestError, which names the setting, if `value` is not one of its choices or outside its bounds."""
    if meta["choices"] and value not in meta["choices"]:
        raise RequestError(f"{name} must be one of {', '.join(meta['choices'])}, not {value!r}")
    if meta["least"] is not None and value is not None and not meta["least"] <= value <= meta["most"]:
        raise RequestError(f"{name} must be from {meta['least']:g} to {meta['most']:g}, not {value}")


def joined(value: Any) -> Any:
    """Returns a list of strings as one string with commas, and any other value unchanged."""
    is_list = isinstance(value, list) and all(isinstance(item, str) for item in value)
    return ",".join(value) if is_list else value


def parse_value(name: str, text: str, kind: type) -> Any:
    """Returns a setting's value from text. Raises RequestError, which names the setting, if `text` is invalid."""
    if kind is bool:
        if text.lower() not in SWITCH:
            raise RequestError(f"{name}={text!r} is not one of {', '.join(SWITCH)}")
        return SWITCH[text.lower()]
    try:
        return kind(text)
    except ValueError:
        raise RequestError(f"{name}={text!r} is not {'an integer' if kind is int else 'a number'}") from None


def typed_value(name: str, value: Any, kind: type) -> Any:
    """Returns a setting's value as its type. Raises RequestError, which names the setting, if its type is wrong."""
    fits = isinstance(value, int | float if kind is float else kind) and (kind is bool or not isinstance(value, bool))
    if not fits:
        wanted = {bool: "true or false", int: "an integer", float: "a number", str: "a string"}[kind]
        raise RequestError(f"{name} must be {wanted}, not {reprlib.repr(value)}")
    return kind(value)


def add_flags(parser: argparse.ArgumentParser, cls: type[Settings] = EngineConfig) -> None:
    """Adds a flag for each setting of `cls`, with help, choices and environment variable."""
    plain, internals = (parser.add_argument_group(title) for title in (cls.TITLE, f"{cls.TITLE} {INTERNALS}"))
    for f in dataclasses.fields(cls):
        meta, flags = f.metadata, ["--" + f.name.replace("_", "-")]
        if not meta["flag"]:
            continue
        group = internals if meta["internal"] else plain
        flags = [meta["short"], *flags] if meta["short"] else flags
        shown = ("on" if f.default else "off") if meta["type"] is bool else f.default
        text = meta["help"] + (f" (default: {shown})" if shown not in (None, "") else "")
        text += f" [{meta['env']}]" if meta["env"] else ""
        if meta["type"] is bool:
            group.add_argument(*flags, action=argparse.BooleanOptionalAction, default=None, help=text)
        else:
            metavar = None if meta["choices"] else METAVARS[meta["type"]]
            group.add_argument(*flags, action="append" if meta["several"] else "store", type=meta["type"],
                               choices=meta["choices"] or None, default=None, help=text, metavar=metavar)


def from_flags(args: argparse.Namespace) -> EngineConfig:
    """Returns the engine's settings, from an argument parser with `add_flags`."""
    return EngineConfig.from_args(args)
