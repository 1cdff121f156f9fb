"""Each workload gives what it declares."""

import dataclasses
import json
import statistics
import subprocess
import sys
from collections import Counter
from itertools import islice, pairwise, takewhile
from pathlib import Path

import msgspec
import pytest
from benchmarks.serving.document_workloads import PAGE, section

from drut.bench.workloads import WORKLOADS, help_text, load
from drut.bench.workloads.azure import read_azure
from drut.bench.workloads.mooncake import ideal_hit_rate, read_mooncake
from drut.bench.workloads.packed import read_jsonl
from drut.errors import RequestError
from tests.bench.tokens.vocabularies import vocabulary

TOKENIZER = vocabulary("gpt-2")
SPECS = [  # of every kind, small
    "synthetic:input=lognormal:60:40,output=uniform:1:9", "chat", "gsm8k", "shared-prefix:prefix=50",
    "multi-turn:turns=3,first=30,later=5,think=2", "agent:system=40", "agent-graph", "tools", "long-context:input=300",
    "reasoning:max_input=100", "azure-code:max_input=100", "azure-conv:max_input=100",
    "mooncake-conversation:block=16,max_input=200", "mooncake-synthetic:block=16,max_input=200",
]
CHAT_ONLY = {"chat", "multi-turn", "agent", "agent-graph", "tools"}
every = pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.partition(":")[0])


def take(spec, n, **settings):
    return list(islice(load(spec, **({"tokenizer": TOKENIZER, "seed": 1} | settings)), n))


def text_of(session):
    return session.turns[0].messages[-1]["content"]


def shared(a, b):
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))


def test_all_kinds_are_tried():
    assert {spec.partition(":")[0] for spec in SPECS} | {"jsonl"} == set(WORKLOADS)


@every
def test_what_holds_of_all(spec):
    sessions = take(spec, 25)
    assert len({s.id for s in sessions}) == len(sessions) == 25
    for session in sessions:
        assert session.turns
        assert session.replies is None or len(session.replies) == len(session.turns)
        for turn in session.turns:
            assert turn.max_tokens >= 1
            assert turn.messages
            assert turn.prompt is None
        first = session.turns[0]
        if first.input_tokens is not None:
            assert [TOKENIZER.count(m["content"]) for m in first.messages] == [first.input_tokens]
    json.dumps(msgspec.to_builtins(sessions), allow_nan=False)


@every
@pytest.mark.slow
def test_seed_fixes_the_list(spec):
    fixed = take(spec, 12)
    assert take(spec, 12) == fixed
    if spec != "agent-graph":  # recorded, all of it
        assert take(spec, 12, seed=2) != fixed


@every
@pytest.mark.slow
def test_the_consumer_does_not_matter(spec):
    """Two lists taken in turns, one of them in leaps, are what they are when taken at once."""
    slow, quick = (load(spec, tokenizer=TOKENIZER, seed=1) for _ in range(2))
    steps = [1, 3, 1, 5]
    leapt = [session for step in steps for session in (list(islice(quick, step)), next(slow))[0]]
    rest = list(islice(slow, sum(steps) - len(steps)))
    assert leapt == take(spec, sum(steps))
    assert rest == leapt[len(steps):]


def test_another_process_makes_the_same_list():
    spec = "shared-prefix:prefix=50"
    script = ("import sys, msgspec\nfrom tests.bench.workloads.test_workloads import take\n"
              f"sys.stdout.buffer.write(msgspec.json.encode(take({spec!r}, 5)))")
    root = Path(__file__).parents[3]
    made = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, check=True)
    assert made.stdout == msgspec.json.encode(take(spec, 5))


@every
def test_description_can_be_written_down(spec):
    sessions = load(spec, tokenizer=TOKENIZER, seed=7)
    next(sessions)
    described = json.loads(json.dumps(sessions.describe(), allow_nan=False))
    assert described["workload"] == spec.partition(":")[0]
    assert described["counts"]["sessions"] == 1
    assert described["seed"] == 7
    if WORKLOADS[described["workload"]].source:
        assert described["source"]["licence"]


@every
def test_completions(spec):
    name = spec.partition(":")[0]
    if name in CHAT_ONLY:
        with pytest.raises(RequestError, match=f"workload '{name}'.*needs the chat endpoint"):
            load(spec, tokenizer=TOKENIZER, seed=1, chat=False)
        return
    texts, ids = (take(spec, 6, chat=False, ids=ids) for ids in (False, True))
    for text, tokens in zip(texts, ids, strict=True):
        assert TOKENIZER.encode(text.turns[0].prompt) == tokens.turns[0].prompt
        assert len(tokens.turns[0].prompt) == tokens.turns[0].input_tokens


@every
def test_without_a_tokenizer(spec):
    if spec.partition(":")[0] in ("chat", "gsm8k", "agent-graph", "tools"):
        assert take(spec, 2, tokenizer=None)[0].turns[0].input_tokens is None
    else:
        with pytest.raises(RequestError, match=r"needs the target's tokenizer \(--tokenizer\)"):
            load(spec, tokenizer=None, seed=1)


@pytest.mark.parametrize("spec", ["synthetic:input=lognormal:60:40,output=uniform:1:9", "shared-prefix:prefix=50",
                                  "azure-conv:max_input=100", "reasoning:max_input=100"])
def test_lengths_and_groups_do_not_depend_on_the_tokenizer(spec):
    def lengths(tokenizer):
        return [(s.id, s.turns[0].input_tokens, s.turns[0].max_tokens, s.at_s)
                for s in take(spec, 20, tokenizer=tokenizer)]

    assert lengths(TOKENIZER) == lengths(vocabulary("llama-2"))


@pytest.mark.parametrize(("spec", "words"), [
    ("sythetic", "unknown workload 'sythetic'; workloads are synthetic, chat, gsm8k"),
    ("", "unknown workload ''"),
    ("gsm8k:tokens=5", "workload 'gsm8k' has no option 'tokens=5'; options are max_tokens=, repeat="),
    ("gsm8k:max_tokens", "no option 'max_tokens'"),
    ("gsm8k:max_tokens=5,", "no option ''"),
    ("gsm8k:max_tokens=5,max_tokens=6", "max_tokens is given twice"),
    ("gsm8k:max_tokens=many", "workload 'gsm8k': max_tokens='many' is not an integer"),
    ("gsm8k:max_tokens=0", "workload 'gsm8k': max_tokens must be from 1 to"),
    ("gsm8k:repeat=perhaps", "repeat='perhaps' is not one of"),
    ("azure-code:stretch=nan", "stretch must be from"),
    ("azure-code:stretch=-1", "stretch must be from"),
    ("tools:group=none", "group must be one of all, simple"),
    ("synthetic:input=zipf:3", "workload 'synthetic': input 'zipf:3': expected N, uniform"),
    ("mooncake-synthetic:max_input=100", "max_input must be at least a block of 512 tokens"),
])
def test_bad_specs_name_what_there_is(spec, words):
    with pytest.raises(RequestError, match=words):
        load(spec, tokenizer=TOKENIZER, seed=1)


def test_bad_settings():
    with pytest.raises(RequestError, match="seed"):
        load("gsm8k", tokenizer=None, seed=-1)
    with pytest.raises(RequestError, match="token ids need the completions endpoint"):
        load("gsm8k", tokenizer=TOKENIZER, seed=1, ids=True)


def test_help_and_docs_are_made_from_the_declarations():
    for kind in WORKLOADS.values():
        assert f"\n{kind.name}: {kind.help}" in "\n" + help_text()
        for field in dataclasses.fields(kind):
            assert f"    {field.name}=" in help_text()
    assert section() in PAGE.read_text(encoding="utf-8"), "run benchmarks/serving/document_workloads.py"


def test_synthetic_draws_its_lengths():
    turns = [s.turns[0] for s in take("synthetic:input=uniform:10:30,output=uniform:1:9", 300)]
    assert {t.input_tokens for t in turns} == set(range(10, 31))
    assert {t.max_tokens for t in turns} == set(range(1, 10))
    assert all(t.exact for t in turns)


def test_unrelated_prompts_share_no_prefix_to_speak_of():
    ids = [TOKENIZER.encode(text_of(s)) for s in take("synthetic:input=200", 150)]
    common = [shared(a, b) for i, a in enumerate(ids) for b in ids[:i]]
    assert statistics.mean(n >= 16 for n in common) < 0.001


def test_workloads_of_one_seed_do_not_warm_the_cache_for_each_other():
    a, b = text_of(take("synthetic:input=100", 1)[0]), text_of(take("multi-turn:first=100", 1)[0])
    assert shared(TOKENIZER.encode(a), TOKENIZER.encode(b)) < 16


@pytest.mark.parametrize("name", ["chat", "gsm8k", "tools", "agent"])
def test_collections_go_round_in_another_order(name):
    rows = read_jsonl({"chat": "mt-bench", "tools": "bfcl", "agent": "tau-bench"}.get(name, name))
    sessions = take(name, 2 * len(rows), tokenizer=None)
    order = [int(s.id.rpartition("-")[2]) for s in sessions]
    first, second = order[: len(rows)], order[len(rows):]
    assert sorted(first) == sorted(second) == list(range(len(rows)))
    assert first != second
    once = list(load(f"{name}:repeat=off", tokenizer=None, seed=1))
    assert [s.turns for s in once] == [s.turns for s in sessions[: len(rows)]]


def test_chat_asks_twice_over_the_servers_answer():
    session = take("chat", 1)[0]
    assert [[m["role"] for m in t.messages] for t in session.turns] == [["user"], ["user"]]
    assert session.replies is None


@pytest.mark.parametrize("name", ["gpt-2", "llama-2", "no words"])
def test_shared_prefix(name):
    tokenizer = vocabulary(name)
    groups = {}
    for s in take("shared-prefix:groups=3,prefix=100,suffix=uniform:20:40", 60, tokenizer=tokenizer):
        ids = tokenizer.encode(text_of(s))
        assert len(ids) == s.turns[0].input_tokens
        assert 120 <= len(ids) <= 140
        groups.setdefault(s.id.rpartition("-")[2], []).append(ids)
    assert set(groups) == {"0", "1", "2"}
    for members in groups.values():
        assert all(100 <= shared(a, b) < 130 for a, b in pairwise(members))
    first = [members[0] for members in groups.values()]
    assert max(shared(first[0], first[1]), shared(first[1], first[2]), shared(first[0], first[2])) < 8


def test_primers_begin_as_the_prompts_of_their_group_and_are_none_of_them():
    for spec, count in (("shared-prefix:groups=3,prefix=100,suffix=20", 3), ("shared-prefix:groups=65", 0),
                        ("synthetic", 0)):
        sessions = load(spec, tokenizer=TOKENIZER, seed=1)
        assert len(sessions.primers()) == count
    sessions = load("shared-prefix:groups=3,prefix=100,suffix=20", tokenizer=TOKENIZER, seed=1)
    primers = [turn.messages[0]["content"] for turn in sessions.primers()]
    for session in islice(sessions, 30):
        own = TOKENIZER.encode(text_of(session))
        alike = [shared(own, TOKENIZER.encode(text)) for text in primers]
        assert [100 <= n < 120 for n in alike].index(True) == int(session.id.rpartition("-")[2])
        assert sorted(alike)[1] < 8


def test_multi_turn():
    for s in take("multi-turn:turns=4,first=40,later=uniform:3:6,output=9,think=2", 20):
        counts = [TOKENIZER.count(t.messages[0]["content"]) for t in s.turns]
        assert counts[0] == s.turns[0].input_tokens == 40
        assert all(3 <= n <= 6 for n in counts[1:])
        assert [t.input_tokens for t in s.turns[1:]] == [None] * 3
        assert s.replies is None
        assert s.turns[0].think_s == 0
        assert all(t.think_s > 0 and t.max_tokens == 9 and t.exact for t in s.turns[1:])
    thinks = [t.think_s for s in take("multi-turn:first=5,later=5,think=2", 300) for t in s.turns[1:]]
    assert statistics.mean(thinks) == pytest.approx(2, rel=0.12)  # 4 standard errors


def test_agent_holds_the_trajectory():
    rows = read_jsonl("tau-bench")
    for s in take("agent:tool_s=3", 69):
        flat = [m for turn, reply in zip(s.turns, s.replies, strict=True) for m in [*turn.messages, *reply]]
        roles = [m["role"] for m in flat]
        assert roles == ["user", "assistant"] * (len(roles) // 2)  # templates insist that they take turns
        row = rows[int(s.id.rpartition("-")[2])]
        for message, (role, text) in zip(flat, row, strict=False):
            assert text == "None" or text in message["content"], role
        for turn in s.turns:
            assert (turn.think_s == 3) == turn.messages[-1]["content"].startswith("Result of the tool:")


def test_agent_system_prompt_is_shared():
    a, b = take("agent:system=77", 2)
    assert a.turns[0].messages[0] == b.turns[0].messages[0]
    assert a.turns[0].messages[0]["role"] == "system"
    assert TOKENIZER.count(a.turns[0].messages[0]["content"]) == 77


def test_agent_graph():
    sessions = list(load("agent-graph:stretch=2,max_output=600", tokenizer=None, seed=1))
    assert len(sessions) == 27
    times = [s.at_s for s in sessions]
    assert times == sorted(times)
    assert (times[0], times[-1]) == (0, 54)
    synthesis = next(s for s in sessions if s.id == "code_review_workflow-span_005_synthesis")
    assert synthesis.at_s == 12
    assert len(synthesis.turns[0].messages) == 8
    assert max(s.turns[0].max_tokens for s in sessions) == 600


def test_tools_have_functions_that_the_api_takes():
    allowed = {"object", "string", "integer", "number", "array", "boolean", "null"}

    def types(schema):
        if "type" in schema:
            yield schema["type"]
        for inner in [*schema.get("properties", {}).values(), *filter(None, [schema.get("items")])]:
            yield from types(inner)

    for s in load("tools:repeat=off", tokenizer=None, seed=1):
        for tool in s.turns[0].body["tools"]:
            function = tool["function"]
            assert tool["type"] == "function"
            assert len(function["name"]) <= 64
            assert function["name"].replace("_", "").replace("-", "").isalnum()
            assert set(types(function["parameters"])) <= allowed
    groups = {name: len(list(load(f"tools:group={name},repeat=off", tokenizer=None, seed=1)))
              for name in ("simple", "multiple", "parallel", "live", "irrelevance")}
    assert groups == {"simple": 400, "multiple": 200, "parallel": 200, "live": 258, "irrelevance": 240}


@pytest.mark.parametrize("depth", [0.0, 0.5, 1.0])
def test_long_context_hides_one_number(depth):
    for s in take(f"long-context:input=2000,depth={depth}", 5):
        text = text_of(s)
        assert TOKENIZER.count(text) == 2000
        before, _, after = text.partition(" The secret number of ")
        assert " The secret number of " not in after
        city = after.partition(" ")[0]
        assert text.endswith(f" What is the secret number of {city}? Answer with the number alone.")
        assert TOKENIZER.count(before) / 2000 == pytest.approx(depth, abs=0.05)


def test_long_context_needs_room_for_its_question():
    with pytest.raises(RequestError, match="10 tokens of input are too few; the question takes"):
        take("long-context:input=10", 1)


def test_reasoning_lengths_are_those_of_the_table():
    sessions = load("reasoning:hour=18,max_input=400", tokenizer=TOKENIZER, seed=1)
    turns = [s.turns[0] for s in islice(sessions, 400)]
    assert sessions.describe()["facts"]["input_mean"] == pytest.approx(1676.8, abs=0.1)
    capped = sum(t.input_tokens == 400 for t in turns)
    assert sessions.describe()["counts"]["capped_input"] == pytest.approx(capped, abs=5)  # some are 400 by themselves
    assert capped / 400 == pytest.approx(0.52, abs=0.1)  # the median is 429
    assert statistics.mean(t.max_tokens for t in turns) == pytest.approx(862, rel=0.2)


def test_azure_replays_times_and_lengths():
    rows = read_azure("azure-code")
    sessions = load("azure-code:stretch=0.5,max_input=200,max_output=10", tokenizer=TOKENIZER, seed=1)
    taken = list(islice(sessions, 60))
    for s, row in zip(taken, rows, strict=False):
        assert s.at_s == row.at_s / 2
        assert s.turns[0].input_tokens == min(200, row.input)
        assert s.turns[0].max_tokens == min(10, row.output)
    described = sessions.describe()
    assert described["counts"]["capped_input"] == sum(row.input > 200 for row in rows[:60])
    assert described["counts"]["capped_output"] == sum(row.output > 10 for row in rows[:60])
    assert described["facts"]["rows_past_max_input"] == sum(row.input > 200 for row in rows)
    assert described["facts"]["rate"] == pytest.approx(2 * 8819 / rows[-1].at_s, rel=1e-3)
    assert described["facts"]["stretch"] == 0.5
    assert described["facts"]["gap_cv"] == pytest.approx(13.2, abs=0.1)


@pytest.mark.slow
@pytest.mark.parametrize(("spec", "block"), [
    ("mooncake-conversation:block=16", 16), ("mooncake-synthetic:block=32,max_input=200", 32),
])
def test_mooncake_prompts_share_what_the_hashes_say(spec, block):
    """Against a prefix tree over the token ids that the prompts really have."""
    rows = read_mooncake(spec.partition(":")[0])[:150]
    sessions = take(spec, 150)
    ids = [TOKENIZER.encode(text_of(s)) for s in sessions]
    assert [len(i) for i in ids] == [s.turns[0].input_tokens for s in sessions]
    for i, (row, session) in enumerate(zip(rows, sessions, strict=True)):
        full = -(-row.input * block // 512)
        assert session.turns[0].input_tokens == (full if full <= 200 or "max" not in spec else 200 // block * block)
        assert session.at_s == row.at_s
        for j in range(max(0, i - 12), i):
            same = shared(row.blocks, rows[j].blocks) * block
            expected = min(same, len(ids[i]), len(ids[j]))
            found = shared(ids[i], ids[j])
            assert expected <= found <= expected + 3


@pytest.mark.slow
def test_mooncake_hit_rate_of_the_prompts():
    """Pages as long as the blocks, kept for ever, hit as often as in the trace."""
    spec, count = "mooncake-conversation:block=16", 150
    tree, hits, total = {}, 0, 0
    for s in take(spec, count):
        ids, node, hit = TOKENIZER.encode(text_of(s)), tree, True
        for start in range(0, len(ids) // 16 * 16, 16):
            page = tuple(ids[start : start + 16])
            hit = hit and page in node
            hits, total, node = hits + hit, total + 1, node.setdefault(page, {})
    rows = [row._replace(blocks=row.blocks[: row.input // 512]) for row in read_mooncake("mooncake-conversation")]
    assert hits / total == pytest.approx(ideal_hit_rate(rows[:count]), abs=0.01)  # rounding fills some last blocks


def test_groups_are_drawn_evenly():
    groups = Counter(s.id.rpartition("-")[2] for s in take("shared-prefix:groups=4,prefix=20,suffix=5", 400))
    assert min(groups.values()) > 60  # 100 expected, standard deviation 9
