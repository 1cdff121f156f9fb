"""The real scheduler, cache and runner over an executor without a model.

What the fake keeps in a slot is a hash of the whole history up to it, in each KV group. What it samples is a hash of
all slots the row sees, read through the block tables, and of the edits that came with the sample. So one wrong page,
slot, position, order, count or bias shows in the tokens, and `expected` says what they must be.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from drut.cache.cache import KvCache
from drut.cache.kinds import FullGroup, WindowGroup
from drut.cache.pool import Canary, PagePool
from drut.constrain.reasoning import ReasoningTracker
from drut.engine.engine import Engine
from drut.engine.request.params import SamplingParams
from drut.engine.request.request import Request
from drut.engine.request.update import ScoredTokens, Update
from drut.engine.schedule.policy import make_policy
from drut.engine.schedule.prefill_pacer import PrefillPacer
from drut.engine.schedule.reserve import Reserve
from drut.engine.schedule.scheduler import Scheduler
from drut.engine.schedule.static_batching import StaticBatching
from drut.engine.schedule.work import StepLimits
from drut.engine.step.runner import Runner
from drut.engine.step.speculation import Speculation
from drut.kernels.backend import Backend, Executable, StepOutput
from drut.kernels.cost import Cost, CostRate
from drut.kernels.descriptor import HOLE, RELAY, StepDescriptor
from drut.kernels.kv import PAGE_TOKENS
from drut.kernels.ops import Op
from drut.kernels.pending import Finished, Pending
from drut.kernels.plan import Plan, Segment
from drut.kernels.pool import HostPool
from drut.kernels.predictor import MULTIPLE, Predictor
from drut.observe.ledger import Macs, Peaks
from drut.speculate import Drafter, DraftInput, VerifiedDrafts
from drut.speculate.controller import Proposal, SpeculationController
from tests.engine.chance import ChancePreemption
from tests.engine.scripted import Script, right

VOCAB = 50
EOS = frozenset({7})
M = (1 << 64) - 1

Edit = tuple[int, float, int, int]  # id, bias, times generated, seen


def mix(a: int, b: int) -> int:
    """A hash of two words."""
    x = (a * 0x9E3779B97F4A7C15 + b * 0xC2B2AE3D27D4EB4F + 0x165667B19E3779F9) & M
    x ^= x >> 29
    x = x * 0xBF58476D1CE4E5B9 & M
    return x ^ x >> 32


def draw(seen: int, seed: int, choice: int, edits: Iterable[Edit]) -> int:
    """The token of a row that saw `seen`: never one whose bias is -inf."""
    state, forbidden = mix(mix(seen, seed & M), choice), set()
    for token, bias, count, before in edits:
        state = mix(state, token * 1_000_003 + count * 31 + before + (0 if math.isinf(bias) else int(bias * 64)))
        if bias == -math.inf:
            forbidden.add(token)
    token = state % VOCAB
    while token in forbidden:
        token = (token + 1) % VOCAB
    return token


def score(seen: int, token: int, top: int) -> ScoredTokens:
    """Logprob and rank of `token` after a row that saw `seen`."""
    h = mix(seen, token)
    best = tuple(((token + 1 + i) % VOCAB, -float(i)) for i in range(top))
    return ScoredTokens(token, -(h % 1000) / 8, h % VOCAB + 1, best)


class Expected(NamedTuple):
    """What a request must say."""

    tokens: list[int]
    scored: list[ScoredTokens]
    prompt_scored: list[ScoredTokens]


def expected(prompt: Sequence[int], params: SamplingParams, seed: int, choice: int, room: int,
             windows: Sequence[int] = (0,)) -> Expected:
    """One token at a time, with no engine. `windows`: positions that a row sees in each KV group; 0: all."""
    out, scored, prompt_scored = [], [], []
    ends = {*EOS, *params.stop_token_ids}
    states, total = [0], 0

    def see(token: int) -> int:
        states.append(mix(states[-1], token))
        return sum(sum(states[-window:]) for window in windows) & M

    for i, t in enumerate(prompt):
        if i and params.prompt_logprobs is not None and choice == 0:
            prompt_scored.append(score(total, t, params.prompt_logprobs))
        total = see(t)
    while True:
        t = expected_force(out, params)
        if t is None:
            t = draw(total, seed, choice, expected_edits(prompt, out, params, ends))
        if params.logprobs is not None:
            scored.append(score(total, t, params.logprobs))
        out.append(t)
        ended = t in params.stop_token_ids or (t in EOS and not params.ignore_eos)
        if (ended and len(out) >= params.min_tokens) or len(out) == params.max_tokens or len(prompt) + len(out) >= room:
            return Expected(out, scored, prompt_scored)
        total = see(t)


def spell(token: int) -> bytes:
    """A token is one capital or small letter, or a sign between them."""
    return bytes([65 + token])


def unspell(text: str) -> list[int]:
    return [c - 65 for c in text.encode()]


def expected_force(out: list[int], params: SamplingParams) -> int | None:
    """What the next token must be, worked out from all that was said."""
    reasoning = params.reasoning
    if reasoning is None or reasoning.budget is None:
        return None
    said = b"".join(map(spell, out)).decode()
    if not reasoning.begun and not said.startswith(reasoning.opens):
        return None
    at, left = 0 if reasoning.begun else len(reasoning.opens), reasoning.budget
    while at >= 0:  # in a thought that begins at `at`
        until = at + left
        closed = said.find(reasoning.closes, at, until)
        if closed >= 0:
            closed += len(reasoning.closes)
            left -= closed - at
        elif len(said) < until:
            return None
        elif len(said) < until + len(reasoning.closing):
            return unspell(reasoning.closing)[len(said) - until]
        else:
            closed, left = until + len(reasoning.closing), 0
        more = said.find(reasoning.opens, closed) if params.constraint is None else -1
        at = more + len(reasoning.opens) if more >= 0 else -1
    return None


def expected_edits(prompt: Sequence[int], out: list[int], params: SamplingParams, ends: set[int]) -> list[Edit]:
    penal = (params.repetition_penalty, params.presence_penalty, params.frequency_penalty) != (1.0, 0.0, 0.0)
    bias = dict(params.logit_bias or {})
    if len(out) < params.min_tokens:
        bias |= dict.fromkeys(ends, -math.inf)
    listed = {*bias, *(prompt if penal else ()), *(out if penal else ())}
    return [(i, bias.get(i, 0.0), out.count(i) if penal else 0, int(penal and (i in prompt or i in out)))
            for i in sorted(listed)]


class FakeExecutable(Executable):
    def __init__(self, pools: Sequence[HostPool], windows: Sequence[int]) -> None:
        self.slots = [pool.data.view(np.uint64).reshape(-1) for pool in pools]  # one word a slot
        self.windows = windows
        self.relay = np.zeros(1 << 12, np.int32)
        self.steps = self.rows = 0

    def launch(self, step: StepDescriptor, host=None) -> Pending:
        self.steps += 1
        self.rows += step.rows
        seen: dict[int, int] = {}
        for s in range(step.seqs):
            self._sequence(step, s, seen)
        n = step.samples
        out = StepOutput.zeros(n)
        for i in range(n):
            self._sample(step, i, seen[int(step["sample_row"][i])], out)
        return Finished(out)

    def _sequence(self, step: StepDescriptor, s: int, seen: dict[int, int]) -> None:
        first, count = int(step["first_row"][s]), int(step["row_count"][s])
        start = int(step["position"][first])
        for row in range(first, first + count):
            token = int(step["token"][row])
            if token == RELAY:
                token = int(self.relay[step["relay_slot"][s]])
            seen[row] = 0
            for group, window in enumerate(self.windows):
                table = int(step.tables(group)[s])
                blocks = step["blocks"][table : table + -(-(start + count) // PAGE_TOKENS)]
                seen[row] = (seen[row] + self._see(step, group, row, blocks, token, window)) & M

    def _see(self, step: StepDescriptor, group: int, row: int, blocks: np.ndarray, token: int, window: int) -> int:
        slots, position, slot = self.slots[group], int(step["position"][row]), int(step.slots(group)[row])
        assert slot == blocks[position // PAGE_TOKENS] * PAGE_TOKENS + position % PAGE_TOKENS
        before = 0
        if position:
            p = position - 1
            assert blocks[p // PAGE_TOKENS] != HOLE
            before = int(slots[blocks[p // PAGE_TOKENS] * PAGE_TOKENS + p % PAGE_TOKENS])
        slots[slot] = mix(before, token)
        begin = max(0, position + 1 - window) if window else 0
        skip = begin // PAGE_TOKENS
        assert (blocks[skip : position // PAGE_TOKENS + 1] != HOLE).all()
        visible = slots.reshape(-1, PAGE_TOKENS)[blocks[skip:]].reshape(-1)[begin - skip * PAGE_TOKENS :]
        return int(visible[: position + 1 - begin].sum(dtype=np.uint64))

    def _sample(self, step: StepDescriptor, i: int, seen: int, out: StepOutput) -> None:
        listed = slice(step["edit_first"][i], step["edit_first"][i] + step["edit_count"][i])
        edits = zip(*(step[name][listed].tolist() for name in ("edit_id", "edit_bias", "edit_count_out", "edit_seen")),
                    strict=True)
        seed = (int(step["seed_hi"][i]) & 0xFFFFFFFF) << 32 | int(step["seed_lo"][i]) & 0xFFFFFFFF
        token = int(step["target"][i])
        if token < 0:
            token = draw(seen, seed, int(step["choice"][i]), edits)
        if step["relay"][i] >= 0:
            self.relay[step["relay"][i]] = token
        out.tokens[i] = token
        top = int(step["top_logprobs"][i])
        if top >= 0:
            scored = score(seen, token, top)
            out.logprobs[i], out.ranks[i] = scored.logprob, scored.rank
            out.top_ids[i, :top] = [b[0] for b in scored.top]
            out.top_logprobs[i, :top] = [b[1] for b in scored.top]

    def redraw(self, step: StepDescriptor, samples: Sequence[int]) -> None:
        raise AssertionError("nobody is guided here")

    def logits(self, count: int) -> np.ndarray:
        return np.zeros((count, VOCAB), np.float32)


class FakeBackend(Backend):
    name = "fake"

    def __init__(self, windows: Sequence[int]) -> None:
        self.windows = windows

    def describe(self) -> str:
        return "no model"

    def matrix(self, *args, **kwargs):
        raise AssertionError

    stack = vector = pool = packed_bytes = matrix

    def load(self, plan, pools, limits, shared_with=None) -> FakeExecutable:
        return FakeExecutable(pools, self.windows)

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class Costs(Op):
    """An operation of any rate."""

    any_rate: CostRate

    @property
    def rate(self) -> CostRate:
        return self.any_rate


def predicting(**seconds: float) -> Predictor:
    """One that knows what steps take: seconds by what they hold, in the words of `CostRate`."""
    rate = CostRate(**{name: Cost(round(1e6 * each)) for name, each in seconds.items()})
    return Predictor(Plan((Segment((Costs(rate),), None),)), Peaks(lambda _: MULTIPLE * 1e6, Macs(1.0, 1.0, 1.0)), 0.0)


def make_engine(*, pages: int = 64, seqs: int = 8, tokens: int = 64, chunk: int | None = None, policy: str = "fcfs",
                overlap: bool = False, burst: int = 1, prefix_cache: bool = True, force_preempt: float = 0.0,
                canary: bool = False, context: int = 1 << 12, eos: frozenset[int] = EOS,
                reserve_quantile: float = 0.0, aging_s: float = 10.0, windows: Sequence[int] = (0,),
                window_pages: int = 64, continuous: bool = True, drafter: Drafter | None = None,
                samples: int | None = None, max_drafts: int = 64,
                controller: SpeculationController | None = None) -> Engine:
    """`windows`: of the KV groups, 0 for the whole context, else at least 2, as a slot depends on the one before;
    `pages`: of the first, `window_pages`: of the others."""
    memory = [HostPool(np.zeros((window_pages if i else pages, PAGE_TOKENS * 8), np.uint8))
              for i in range(len(windows))]
    watch = [Canary(m, window) for m, window in zip(memory, windows, strict=True)] if canary else []
    limits = StepLimits(seqs, max(tokens, seqs, context if chunk == 0 else 0), samples or seqs, chunk, burst)
    groups = [WindowGroup(window, limits.tokens) if window else FullGroup() for window in windows]
    pools = [PagePool(m, watch[i] if watch else None) for i, m in enumerate(memory)]
    cache = KvCache(*pools, prefix_cache=prefix_cache, groups=groups)
    runner = Runner(FakeBackend(windows), Plan(()), memory, limits, context=context, vocab=VOCAB, overlap=overlap,
                    canaries=watch)
    rules = make_policy(policy, aging_s=aging_s)
    rules = rules if continuous else StaticBatching(rules, seqs)
    rules = ChancePreemption(rules, force_preempt) if force_preempt else rules
    scheduler = Scheduler(cache, limits, rules, PrefillPacer(Predictor(Plan(()))), reserve=Reserve(reserve_quantile))
    return Engine(runner, scheduler, vocab=VOCAB, context=context, eos_ids=eos, overlap=overlap,
                  speculation=drafter and Speculation(drafter, vocab=VOCAB, max_drafts=max_drafts,
                                                      controller=controller))


class Guesser:
    """A drafter that knows the answers, and errs with a chance at each token, or as its script has it. It counts what
    was accepted."""

    def __init__(self, errs: float, drafts: int = 5, seed: int = 0, script: Script = right) -> None:
        self.errs, self.drafts, self.dice, self.script = errs, drafts, random.Random(seed), script
        self.answers: dict[int, list[int]] = {}  # prompt and output of each sequence
        self.accepted = self.drafted = 0

    def learn(self, engine: Engine, request: Request) -> None:
        prompt = request.tokens[: request.prompt_tokens]
        self.answers[request.order] = prompt + expected(prompt, request.params, request.seed, request.choice,
                                                        engine.room, engine.runner.executable.windows).tokens

    def propose(self, inputs: Sequence[DraftInput]) -> list[list[int]]:
        return [self._propose(a) for a in inputs]

    def _propose(self, a: DraftInput) -> list[int]:
        made = [token if self.dice.random() >= self.errs else self.dice.randrange(VOCAB)
                for token in self.answers[a.sequence][len(a.tokens) :][: self.drafts]]
        drafts: list[int] = self.script(self.dice, made, VOCAB)
        return drafts

    def commit(self, verified: Sequence[VerifiedDrafts]) -> None:
        for one in verified:
            assert len(one.tokens) == one.accepted + 1
            self.accepted += one.accepted
            self.drafted += one.drafted

    def method(self, sequence: int) -> str:
        return "guess"

    def forget(self, sequence: int) -> None:
        del self.answers[sequence]


class Erratic(SpeculationController):
    """A controller that takes any number of the drafts, and none half of the time."""

    def __init__(self, seed: int) -> None:
        super().__init__(Predictor(Plan(())), 64, overlap=True)
        self.dice = random.Random(seed)

    def lengths(self, proposals: Sequence[Proposal], streams: int, context: int) -> list[int]:
        super().lengths(proposals, streams, context)
        return [self.dice.randrange(p.drafts + 1) if self.dice.random() < 0.5 else 0 for p in proposals]


def submit(engine: Engine, prompt: list[int], **params: object) -> Request:
    """One request; it does not stop before `max_tokens`."""
    rank = {key: params.pop(key) for key in ("priority", "salt") if key in params}
    settings = SamplingParams(**{"max_tokens": 4, "temperature": 0, "seed": 1, "ignore_eos": True, **params})  # type: ignore[arg-type]
    return engine.submit(prompt, settings, **rank, reasoning=watch_of(settings))[0]  # type: ignore[arg-type]


def watch_of(params: SamplingParams) -> ReasoningTracker | None:
    return params.reasoning and ReasoningTracker(params.reasoning, [], unspell(params.reasoning.closing), spell,
                                           again=params.constraint is None)


def text(seed: int, tokens: int) -> list[int]:
    dice = random.Random(seed)
    return [dice.randrange(VOCAB) for _ in range(tokens)]


@dataclass
class Said:
    """What the updates of one request said."""

    tokens: list[int] = field(default_factory=list)
    scored: list[ScoredTokens] = field(default_factory=list)
    prompt_scored: list[ScoredTokens] = field(default_factory=list)


Log = dict[Request, Said]


def make_log() -> Log:
    return defaultdict(Said)


def step(engine: Engine, log: Log) -> list[Update]:
    """One step, its updates noted in `log`."""
    updates = engine.step()
    take_down(updates, log)
    return updates


def take_down(updates: Iterable[Update], log: Log) -> None:
    """Notes in `log` what each request said."""
    for update in updates:
        said = log[update.request]
        said.prompt_scored += update.prompt_scored
        if update.token is not None:
            said.tokens.append(update.token)
        if update.scored is not None:
            said.scored.append(update.scored)


def finish_all(engine: Engine, log: Log | None = None, limit: int = 100_000) -> int:
    """Steps until nothing is left; returns how many."""
    log = make_log() if log is None else log
    for n in range(limit):
        if not engine.busy:
            return n
        step(engine, log)
    raise AssertionError(f"not done after {limit} steps")


def check_answer(engine: Engine, request: Request, said: Said | None = None) -> None:
    """The request said exactly what it must; one that was aborted said the beginning of it."""
    prompt = request.tokens[: request.prompt_tokens]
    want = expected(prompt, request.params, request.seed, request.choice, engine.room,
                    engine.runner.executable.windows)
    whole = request.finish_reason in ("stop", "length")
    assert request.output_ids == (want.tokens if whole else want.tokens[: len(request.output_ids)])
    if said is not None:
        for got, wanted in zip((said.tokens, said.scored, said.prompt_scored), want, strict=True):
            assert got == (wanted if whole else wanted[: len(got)])


def check_idle(engine: Engine) -> None:
    """Nothing is left, every page is free or cached, and every sequence slot is free."""
    engine.check_idle()
    assert not engine.busy
    for pool in engine.cache.pools:
        assert pool.private == 0
        assert pool.free + pool.cached == pool.total
    engine.cache.clear()
    assert all(pool.free == pool.total for pool in engine.cache.pools)
    assert len(engine.scheduler._slots) == engine.scheduler.limits.seqs
