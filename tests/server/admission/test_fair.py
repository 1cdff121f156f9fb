"""The fair queue beside a naive twin that looks at every request each time."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from drut.server.admission.fair import FairQueue


@dataclass(eq=False)
class Item:
    key: str
    rank: tuple[int, int]
    tokens: int


class NaiveQueue:
    """A list, searched."""

    def __init__(self) -> None:
        self.waiting: list[Item] = []
        self.active: list[str] = []
        self.served: dict[str, float] = {}
        self.least = 0.0

    def enter(self, item: Item) -> None:
        if item.key not in self.active:
            others = [self.served[key] for key in set(self.active)]
            self.served[item.key] = max(self.served.get(item.key, 0.0), min(others, default=self.least))
        self.active.append(item.key)
        self.waiting.append(item)

    def peek(self) -> Item:
        def best_of(key: str) -> tuple[int, int]:
            return min(i.rank for i in self.waiting if i.key == key)

        return min(self.waiting, key=lambda i: (self.served[i.key], best_of(i.key), i.rank))

    def remove(self, item: Item) -> None:
        self.waiting.remove(item)
        self.least = max(self.least, self.served[item.key])

    def charge(self, key: str, tokens: float) -> None:
        self.served[key] += tokens

    def leave(self, key: str) -> None:
        self.active.remove(key)


OPERATIONS = st.lists(st.one_of(
    st.tuples(st.just("enter"), st.sampled_from("abc"), st.integers(0, 2), st.integers(1, 50)),
    st.tuples(st.just("serve"), st.integers(0, 40)), st.tuples(st.just("drop"), st.integers(0, 99)),
    st.tuples(st.just("end"), st.integers(0, 99))), max_size=80)


@settings(max_examples=200, deadline=None)
@given(operations=OPERATIONS)
def test_it_chooses_as_the_naive_twin(operations) -> None:
    queue: FairQueue[Item] = FairQueue()
    twin = NaiveQueue()
    running: list[Item] = []
    for serial, (name, *arguments) in enumerate(operations):
        if name == "enter":
            key, priority, tokens = arguments
            item = Item(key, (priority, serial), tokens)
            queue.enter(item)
            twin.enter(item)
        elif name == "serve" and queue:
            item = queue.peek()
            assert item is twin.peek()
            for q in (queue, twin):
                q.remove(item)
                q.charge(item.key, item.tokens + arguments[0])
            running.append(item)
        elif name == "drop" and twin.waiting:
            item = twin.waiting[arguments[0] % len(twin.waiting)]
            for q in (queue, twin):
                q.remove(item)
                q.leave(item.key)
        elif name == "end" and running:
            item = running.pop(arguments[0] % len(running))
            for q in (queue, twin):
                q.leave(item.key)
        assert len(queue) == len(twin.waiting)
        assert queue.tokens == sum(i.tokens for i in twin.waiting)


def test_idle_keys_are_not_remembered_without_bound() -> None:
    queue: FairQueue[Item] = FairQueue()
    for i in range(5000):
        item = Item(f"k{i}", (0, i), 1)
        queue.enter(item)
        queue.remove(item)
        queue.charge(item.key, 10)
        queue.leave(item.key)
    assert len(queue._shares) <= 1100
