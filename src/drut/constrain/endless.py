"""Rules of a grammar that never end: none of their alternatives is done without the rule itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from drut.errors import RequestError

Needs = Mapping[str, Sequence[Iterable[str]]]  # of each rule, by alternative, the rules that it needs


def check_ends(field: str, start: str, uses: Mapping[str, Iterable[str]], needs: Needs,
               where: Callable[[str], str]) -> None:
    """RequestError where a rule that `start` leads to never ends.

    `uses`: the rules in each rule; `where`: its place in the text.
    """
    ending = _ending(needs)
    reached, waiting = set[str](), [start]
    while waiting:
        name = waiting.pop()
        if name in reached or name not in needs:
            continue
        reached.add(name)
        if name not in ending:
            raise RequestError(f"{field}: the rule {name!r} never ends, since each of its alternatives needs a rule "
                               f"that does not ({where(name)})")
        waiting += uses[name]


def _ending(needs: Needs) -> set[str]:
    """The rules of which an alternative needs none but such rules. Names without a rule are taken to end."""
    ending, ready = set[str](), list[str]()
    users: dict[str, list[tuple[str, int]]] = {}
    missing: dict[tuple[str, int], int] = {}
    for name, alternatives in needs.items():
        for i, needed in enumerate(alternatives):
            known = {other for other in needed if other in needs}
            missing[name, i] = len(known)
            ready += [] if known else [name]
            for other in known:
                users.setdefault(other, []).append((name, i))
    while ready:
        name = ready.pop()
        if name in ending:
            continue
        ending.add(name)
        for user in users.get(name, ()):
            missing[user] -= 1
            ready += [] if missing[user] else [user[0]]
    return ending
