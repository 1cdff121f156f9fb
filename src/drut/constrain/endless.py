"""Finds rules of a grammar that never end, because each of their alternatives needs the rule itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from drut.constrain.fixpoint import least_fixpoint
from drut.errors import RequestError

Needs = Mapping[str, Sequence[Iterable[str]]]  # for each rule, by alternative, the rules that it needs


def check_ends(field: str, start: str, uses: Mapping[str, Iterable[str]], needs: Needs,
               where: Callable[[str], str]) -> None:
    """Raises RequestError if a rule that `start` leads to never ends.

    `uses`: the rules in each rule; `where`: its place in the text.
    """
    # A name without a rule is assumed to end.
    ending = least_fixpoint({name: [{other for other in needed if other in needs} for needed in alternatives]
                             for name, alternatives in needs.items()})
    reached, waiting = set[str](), [start]
    while waiting:
        name = waiting.pop()
        if name in reached or name not in needs:
            continue
        reached.add(name)
        if name not in ending:
            raise RequestError(f"{field}: the rule {name!r} never ends, because each of its alternatives needs a rule "
                               f"that does not ({where(name)})")
        waiting += uses[name]
