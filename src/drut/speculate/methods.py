"""The methods of speculation: one table of their names, options and drafters. A new method is a new entry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from drut.errors import RequestError
from drut.speculate.choice import ChoosingDrafter
from drut.speculate.drafter import Drafter
from drut.speculate.ngram import NgramDrafter
from drut.speculate.suffix import SuffixDrafter

NONE = "none"
MAX_DRAFTS = 64


@dataclass(frozen=True)
class DraftOption:
    """A number that a method takes: its default, bounds and meaning. An integer if the default is one."""

    default: float
    least: float
    most: float
    about: str


@dataclass(frozen=True)
class DraftMethod:
    """A way to make drafts; `make` returns a drafter for a value of each option. None if it runs a model, for which the
    engine loads the weights: `files` are options that name them, each required, with their meaning."""

    about: str
    options: Mapping[str, DraftOption]
    make: Callable[[Mapping[str, float]], Drafter] | None
    files: Mapping[str, str] = field(default_factory=dict)
    every_row: bool = False  # it reads taps of every row, so no steps run without the host


@dataclass(frozen=True)
class Speculate:
    """A chosen method with a value for each of its options."""

    method: str
    values: Mapping[str, float]
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def max_drafts(self) -> int:
        """The maximum number of drafts in a verification."""
        return int(self.values["k"])

    @property
    def adaptive(self) -> bool:
        """True if drafts are verified only where that is expected to pay."""
        return bool(self.values["adaptive"])

    @property
    def every_row(self) -> bool:
        return METHODS[self.method].every_row

    def drafter(self) -> Drafter | None:
        """Returns the drafter; None for a method that runs a model."""
        make = METHODS[self.method].make
        return None if make is None else make(self.values)


COMMON = {
    "k": DraftOption(16, 1, MAX_DRAFTS, "maximum number of drafts of a sequence in a step"),
    "adaptive": DraftOption(1, 0, 1, "1: draft only where it is expected to pay, and as much; 0: always draft"),
}
NGRAM = {
    "min": DraftOption(2, 1, 16, "shortest n-gram that must match"),
    "max": DraftOption(4, 1, 16, "longest n-gram that is looked up"),
}
SUFFIX = {
    "depth": DraftOption(24, 2, 256, "maximum tokens of a match and its drafts"),
    "tokens": DraftOption(100_000, 0, 10_000_000, "maximum tokens of past outputs that drafts may come from"),
    "factor": DraftOption(2.0, 0.1, 16.0, "number of drafts for each token of a match"),
    "least": DraftOption(0.3, 0.0, 1.0, "minimum probability of a draft, by the counts of the tree"),
}
MODEL = COMMON | {"k": DraftOption(5, 1, MAX_DRAFTS, "maximum number of drafts of a sequence in a step")}


def _ngram(values: Mapping[str, float]) -> NgramDrafter:
    shortest, longest = int(values["min"]), int(values["max"])
    if shortest > longest:
        raise RequestError(f"speculate: min={shortest} is more than max={longest}")
    return NgramDrafter(shortest, longest)


def _suffix(values: Mapping[str, float]) -> SuffixDrafter:
    return SuffixDrafter(depth=int(values["depth"]), capacity=int(values["tokens"]), factor=values["factor"],
                         least=values["least"])


def _auto(values: Mapping[str, float]) -> ChoosingDrafter:
    return ChoosingDrafter({"suffix": _suffix(values), "ngram": _ngram(values)}, int(values["k"]))


METHODS = {
    "auto": DraftMethod("the better of suffix and ngram for each request", COMMON | SUFFIX | NGRAM, _auto),
    "ngram": DraftMethod("what followed the last tokens earlier in the request", COMMON | NGRAM, _ngram),
    "suffix": DraftMethod("what most often followed the last tokens, in the request and in past outputs",
                          COMMON | SUFFIX, _suffix),
    "medusa": DraftMethod("Medusa heads on the model's last hidden state", MODEL, None,
                          {"model": "the heads: a directory with config.json and safetensors files"}),
    "eagle3": DraftMethod("an EAGLE-3 layer over the model's residual streams", MODEL, None,
                          {"model": "the layer: a directory with config.json and safetensors files"}, every_row=True),
    "draft": DraftMethod("a small model with the same token ids", MODEL, None,
                         {"model": "the draft model: a known name, a file or a directory"}),
}


def chosen_method(text: str) -> Speculate | None:
    """Returns the method of a setting like `ngram:k=8,min=2`; None for `none`. Raises RequestError, which names what is
    wrong."""
    name, _, rest = text.partition(":")
    if name == NONE and rest:
        raise RequestError("speculate: none takes no options")
    if name == NONE:
        return None
    if name not in METHODS:
        names = (NONE, *METHODS)
        raise RequestError(f"speculate: unknown method {name!r}; methods are {', '.join(names)}")
    options, files = METHODS[name].options, dict[str, str]()
    values = {key: option.default for key, option in options.items()}
    for pair in rest.split(",") if rest else ():
        key, _, given = pair.partition("=")
        if key in METHODS[name].files:
            files[key] = given
        elif key in options:
            values[key] = _number(f"speculate: {name}:{key}", given, options[key])
        else:
            known = ", ".join((*METHODS[name].files, *options))
            raise RequestError(f"speculate: {name} has no option {key!r}; options are {known}")
    for key, about in METHODS[name].files.items():
        if not files.get(key):
            raise RequestError(f"speculate: {name} needs {key}=, {about}")
    chosen = Speculate(name, values, files)
    chosen.drafter()  # an error of two values together, before weights are read
    return chosen


def _number(name: str, text: str, option: DraftOption) -> float:
    whole = isinstance(option.default, int)
    try:
        value = int(text) if whole else float(text)
    except ValueError:
        raise RequestError(f"{name}={text} is not {'an integer' if whole else 'a number'}") from None
    if not option.least <= value <= option.most:
        raise RequestError(f"{name} must be from {option.least:g} to {option.most:g}, not {value}")
    return value
