"""Sampling parameters, which are checked when they are made."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING

from drut.constrain import Constraint
from drut.constrain.reasoning import ReasoningSpec
from drut.errors import RequestError
from drut.foreign import SAMPLING, unknown
from drut.kernels.descriptor import MAX_TOP_LOGPROBS

SEED_BITS = 64
MAX_CHOICES = 128
MAX_IDS = 1024  # of stop_token_ids, and of logit_bias
HIGHEST_ID = (1 << 31) - 1
MAX_TEMPERATURE = 100.0
MAX_TOKENS = 1 << 30
TEXT_TOKENS = 256  # maximum tokens of the continuation of a text, if a request does not set one
PENALTY_RANGE = 0.01, 100.0  # of repetition_penalty: logits stay finite
MODEL_FIELDS = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")  # for which a model may have defaults
INTEGERS = {"max_tokens": (1, MAX_TOKENS), "top_k": (0, MAX_TOKENS),
            "seed": (-(1 << SEED_BITS - 1), (1 << SEED_BITS) - 1), "logprobs": (0, MAX_TOP_LOGPROBS),
            "prompt_logprobs": (0, MAX_TOP_LOGPROBS)}
NUMBERS = {"temperature": (0.0, MAX_TEMPERATURE), "top_p": (0.0, 1.0), "min_p": (0.0, 1.0),
           "repetition_penalty": PENALTY_RANGE}


@dataclass(frozen=True)
class SamplingParams:
    """How the tokens of a request are sampled, and when it stops. Temperature 0 is greedy.

    A field that is None has the model's default (docs/sampling.md); without one, temperature is 1 and filters and
    penalty are off. `max_tokens` None: for a conversation to the end of the context, for a text 256.

    Logits processors (penalties and `logit_bias`) change the logits first; then `constraint` excludes ids; then the
    filters top-k, top-p and min-p apply in this order, and 0, 1 and 0 switch them off (docs/numerics.md). Logprobs are
    of the raw logits. Raises RequestError with the field and the value.
    """

    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None  # None: drawn at random
    n: int = 1  # choices: number of outputs for the prompt
    stop: Sequence[str] = ()
    stop_token_ids: Sequence[int] = ()
    min_tokens: int = 0  # no stop token is drawn before this number of output tokens
    ignore_eos: bool = False
    include_stop_str_in_output: bool = False  # the text includes the stop string, stop id or EOS that ended it
    skip_special_tokens: bool = True  # the text leaves out special tokens such as <|im_start|>
    shown_special_ids: Sequence[int] = ()  # special tokens that the text shows anyway
    repetition_penalty: float | None = None  # divides positive, multiplies negative logits of ids in prompt or output
    presence_penalty: float = 0.0  # subtracted from the logits of ids in the output
    frequency_penalty: float = 0.0  # the same, times the number of occurrences
    logit_bias: Mapping[int, float] | None = field(default=None, hash=False)  # added to logits, by id
    logprobs: int | None = None  # number of most likely ids reported with each token; None: no logprobs
    prompt_logprobs: int | None = None  # the same for the prompt
    constraint: Constraint | None = None  # what the output must match
    speculation: bool = True  # False: no drafts, if the engine has a drafter; tokens are the same either way
    reasoning: ReasoningSpec | None = None  # how the model thinks before it answers; stop strings do not count in it

    if not TYPE_CHECKING:

        def __new__(cls, *_: object, **given: object) -> SamplingParams:
            for name in given:
                if name not in cls.__dataclass_fields__:
                    raise unknown("SamplingParams has no field", name, SAMPLING, cls.__dataclass_fields__)
            return super().__new__(cls)

    def __repr__(self) -> str:
        """Returns the fields that differ from their defaults."""
        shown = (f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if getattr(self, f.name) != f.default)
        return f"{type(self).__name__}({', '.join(shown)})"

    def __post_init__(self) -> None:
        object.__setattr__(self, "stop", _strings("stop", self.stop))
        for name in ("stop_token_ids", "shown_special_ids"):
            object.__setattr__(self, name, _ids(name, getattr(self, name)))
        for name, bounds in INTEGERS.items():
            if (value := getattr(self, name)) is not None:
                _integer(name, value, *bounds)
        for name, (low, high) in NUMBERS.items():
            if (value := getattr(self, name)) is not None:
                _number(name, value, low, high)
        if self.top_p == 0.0:
            raise RequestError("top_p must be above 0 and at most 1, not 0.0")
        _integer("n", self.n, 1, MAX_CHOICES)
        _integer("min_tokens", self.min_tokens, 0, MAX_TOKENS if self.max_tokens is None else self.max_tokens)
        for name in ("ignore_eos", "include_stop_str_in_output", "skip_special_tokens", "speculation"):
            _boolean(name, getattr(self, name))
        _number("presence_penalty", self.presence_penalty, -2.0, 2.0)
        _number("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        if self.logit_bias is not None:
            object.__setattr__(self, "logit_bias", _biases("logit_bias", self.logit_bias))
        if self.constraint is not None and not isinstance(self.constraint, Constraint):
            raise RequestError(f"constraint must be a Constraint, not {_shown(self.constraint)}")
        if not (self.reasoning is None or isinstance(self.reasoning, ReasoningSpec)):
            raise RequestError(f"reasoning must be a {ReasoningSpec.__name__}, not {_shown(self.reasoning)}")

    def for_text(self) -> SamplingParams:
        """Returns these parameters for the continuation of a text: with a maximum of tokens."""
        most = max(TEXT_TOKENS, self.min_tokens)
        return self if self.max_tokens is not None else replace(self, max_tokens=most)

    def filled(self, defaults: SamplingParams) -> FilledParams:
        """Returns a value for every field: this one's, else that of the model's `defaults`, else that of
        FilledParams."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        values |= {name: getattr(defaults, name) for name in MODEL_FIELDS if values[name] is None}
        return FilledParams(**{name: value for name, value in values.items() if value is not None})


@dataclass(frozen=True, repr=False)
class FilledParams(SamplingParams):
    """Sampling parameters of a request in the engine, with a value for each field that has a default of the model."""

    max_tokens: int = MAX_TOKENS
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0

    def filled(self, defaults: SamplingParams) -> FilledParams:
        """Returns these parameters: nothing is left to fill or to check again."""
        return self

    @property
    def draws_from_all(self) -> bool:
        """True if no filter (top-k, top-p, min-p) excludes ids."""
        return self.temperature == 0.0 or (self.top_k == 0 and self.top_p == 1.0 and self.min_p == 0.0)

    @property
    def top_logprobs(self) -> int:
        """Number of most likely ids to report in addition to each token's logprob; -1 for no logprob."""
        return -1 if self.logprobs is None else self.logprobs


def _boolean(name: str, value: bool) -> None:
    if not isinstance(value, bool):
        raise RequestError(f"{name} must be true or false, not {_shown(value)}")


def _number(name: str, value: float, low: float, high: float) -> None:
    finite = isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))
    if isinstance(value, bool) or not finite:
        raise RequestError(f"{name} must be a finite number, not {_shown(value)}")
    if not low <= value <= high:
        raise RequestError(f"{name} must be from {low:g} to {high:g}, not {_shown(value)}")


def _integer(name: str, value: int, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise RequestError(f"{name} must be an integer, not {_shown(value)}")
    if not low <= value <= high:
        raise RequestError(f"{name} must be from {low} to {high}, not {_shown(value)}")


def _shown(value: object) -> str:
    """Returns any value that a client may send as one short line."""
    if isinstance(value, int) and value.bit_length() > 64:
        return f"an integer of {value.bit_length()} bits"
    try:
        text = reprlib.repr(value)
    except ValueError:  # an integer inside is too long for decimal digits
        text = type(value).__name__
    return text if len(text) <= 60 else text[:57] + "..."


def _strings(name: str, values: str | Iterable[str]) -> tuple[str, ...]:
    strings = (values,) if isinstance(values, str) else tuple(values) if isinstance(values, Iterable) else (None,)
    if not all(isinstance(s, str) and s for s in strings):
        raise RequestError(f"{name} must hold strings that are not empty, not {_shown(values)}")
    return strings


def _ids(name: str, values: Iterable[int]) -> tuple[int, ...]:
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise RequestError(f"{name} must be a list of token ids, not {_shown(values)}")
    ids = tuple(values)
    if len(ids) > MAX_IDS:
        raise RequestError(f"{name} must hold at most {MAX_IDS} ids, not {len(ids)}")
    for i in ids:
        _integer(f"an id of {name}", i, 0, HIGHEST_ID)
    return ids


def _biases(name: str, values: Mapping[int, float]) -> dict[int, float]:
    if not isinstance(values, Mapping):
        raise RequestError(f"{name} must map token ids to numbers, not be {_shown(values)}")
    _ids(name, values)
    for i, bias in values.items():
        _number(f"{name} of {i}", bias, -100.0, 100.0)
    return dict(values)


NEUTRAL = SamplingParams()  # no defaults of a model


def checked_params(params: SamplingParams | None) -> SamplingParams:
    """Returns `params`; None: no field is set. Raises RequestError, which names the type, for anything else."""
    if params is None:
        return NEUTRAL
    if not isinstance(params, SamplingParams):
        hint = ": use SamplingParams(**params)" if isinstance(params, Mapping) else ""
        raise RequestError(f"params must be SamplingParams, not {type(params).__name__}{hint}")
    return params
