"""The user's own file, right and wrong."""

import os
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drut.bench.work import ConversationTurn
from drut.bench.workloads import jsonl, load
from drut.errors import RequestError
from tests.bench.tokens.vocabularies import vocabulary


@pytest.fixture
def own(tmp_path):
    """Loads a file of these bytes."""
    def make(data, options="", **settings):
        path = tmp_path / "own.jsonl"
        path.write_bytes(data)
        return load(f"jsonl:path={path}{options}", **({"tokenizer": None, "seed": 1} | settings))

    return make


def test_rows(own):
    sessions = list(own(b'''
{"prompt": "a", "max_tokens": 5, "exact": true}
{"messages": [{"role": "user", "content": "b"}], "body": {"temperature": 0}}
''', ",repeat=off"))
    assert [s.turns for s in sessions] == [
        [ConversationTurn([{"role": "user", "content": "a"}], None, 5, True)],
        [ConversationTurn([{"role": "user", "content": "b"}], body={"temperature": 0})]]
    assert [s.id for s in sessions] == ["jsonl-0-line-2", "jsonl-0-line-3"]


def test_exact_outputs(own):
    (session,) = own(b'{"prompt": "a", "output_tokens": 7, "id": 3}', ",repeat=off")
    assert (session.turns[0].max_tokens, session.turns[0].exact) == (7, True)


SHAREGPT = b'''{"id": "x", "conversations": [
    {"from": "gpt", "value": "I begin"}, {"from": "system", "value": "s"}, {"from": "human", "value": "one"},
    {"from": "gpt", "value": "to be or not"}, {"from": "human", "value": "two"}%s]}'''.replace(b"\n", b"")


def test_a_conversation_has_its_recorded_replies(own):
    (session,) = own(SHAREGPT % b"", ",repeat=off", tokenizer=vocabulary("gpt-2"))
    assert [turn.messages for turn in session.turns] == [
        [{"role": "system", "content": "s"}, {"role": "user", "content": "one"}], [{"role": "user", "content": "two"}]]
    assert [turn.max_tokens for turn in session.turns] == [vocabulary("gpt-2").count("to be or not"), 128]
    assert session.replies[0] == [{"role": "assistant", "content": "to be or not"}]
    (session,) = own(SHAREGPT % b', {"from": "gpt", "value": "the end"}', ",repeat=off")
    assert [(turn.max_tokens, turn.exact) for turn in session.turns] == [(128, False)] * 2
    with pytest.raises(RequestError, match="line 1: conversations need the chat endpoint"):
        own(SHAREGPT % b"", chat=False)


def test_no_more_requests_than_wanted(own, tmp_path):
    data = SHAREGPT % b"" + b'\n{"prompt": "a"}'
    own(data)
    sessions = load(f"jsonl:path={tmp_path / 'own.jsonl'}", tokenizer=None, seed=1, most=4)
    assert [len(session.turns) for session in sessions] == [2, 1, 1]
    assert sessions.requests == 4
    assert list(sessions) == []


def test_completions(own):
    first, second = own(b'{"prompt": "to be"}\n{"prompt": [5, 6, 7]}', ",repeat=off", chat=False,
                        tokenizer=vocabulary("gpt-2"))
    assert (first.turns[0].prompt, first.turns[0].input_tokens) == ("to be", vocabulary("gpt-2").count("to be"))
    assert (second.turns[0].prompt, second.turns[0].input_tokens) == ([5, 6, 7], 3)


def test_it_repeats_in_its_order(own):
    sessions = own(b'{"prompt": "a"}\n{"prompt": "b"}')
    assert [s.turns[0].messages[0]["content"] for s in islice(sessions, 5)] == list("ababa")
    assert sessions.describe()["facts"] == {"rows": 2, "repeats": True, "stretch": 1.0}


def test_times(own):
    data = b'{"prompt": "a", "at_s": 0.5}\n{"prompt": "b", "at_s": 2}'
    assert [s.at_s for s in own(data, ",stretch=3")] == [1.5, 6.0]
    with pytest.raises(RequestError, match=r"line 2: at_s must be in all lines or in none"):
        own(data.replace(b', "at_s": 2', b""))
    with pytest.raises(RequestError, match=r"line 2: at_s 0.1 is earlier"):
        own(data.replace(b'"at_s": 2', b'"at_s": 0.1'))


DEEP = b"[" * 65 + b"]" * 65


@pytest.mark.parametrize(("line", "words"), [
    (b"{", "truncated"),
    (b"null", "Expected `object`"),
    (b"[]", "Expected `object`"),
    (b"{}", "exactly one of prompt, messages and conversations"),
    (b'{"prompt": "a", "messages": [{}]}', "exactly one of prompt, messages and conversations"),
    (b'{"prompt": "a", "max_tokens": 3, "output_tokens": 3}', "max_tokens and output_tokens exclude each other"),
    (b'{"prompt": "a", "output_tokens": 0}', "output_tokens"),
    (b'{"conversations": []}', "length >= 1"),
    (b'{"conversations": [{"from": "bird", "value": "a"}]}', "from"),
    (b'{"conversations": [{"from": "gpt", "value": "a"}]}', "conversations has no message of a user"),
    (b'{"messages": []}', "length >= 1"),
    (b'{"prompt": 5}', "prompt"),
    (b'{"prompt": [-1]}', "prompt"),
    (b'{"prompt": "a", "max_tokens": "9"}', "max_tokens"),
    (b'{"prompt": "a", "max_tokens": 0}', "max_tokens"),
    (b'{"prompt": "a", "max_tokens": 1.5}', "max_tokens"),
    (b'{"prompt": "a", "at_s": NaN}', "malformed"),
    (b'{"prompt": "a", "at_s": -1}', "at_s"),
    (b'{"prompt": "a", "at_s": 1e999}', "out of range"),
    (b'{"prompt": "a", "at_s": ' + b"9" * 100_000 + b"}", "at_s|range"),
    (b'{"prompt": "a", "temperature": 1}', "unknown field `temperature`"),
    (b'{"prompt": "a", "body": {"stream": false}}', "body must not set stream"),
    (b'{"prompt": "a", "body": {"n": 2}}', "body must not ask for more than one choice"),
    (b'{"prompt": "\xff"}', "UTF-8"),
    (b'{"prompt": "\\ud800"}', "truncated|surrogate|malformed"),
    (b'{"prompt": "a", "body": {"x": ' + DEEP + b"}}", "nested deeper than 64"),
    (b'{"messages": [{"x": ' + DEEP + b"}]}", "nested deeper than 64"),
    (b'{"prompt": "a", "body": {"x": ' + DEEP * 1000 + b"}}", "malformed"),
    (b'{"prompt": "a", "body": {"x": ' + b"[" * 200_000 + b"]" * 200_000 + b"}}", "nested too deeply"),
    (b'{"prompt": [1]}', "token ids need the completions endpoint"),
])
def test_a_bad_line_is_named(own, line, words):
    with pytest.raises(RequestError, match=f"own.jsonl, line 2: .*({words})"):
        own(b'{"prompt": "a"}\n' + line)


def test_an_array_is_not_lines(own):
    with pytest.raises(RequestError, match="line 1: a JSON array; one object per line is needed: jq -c"):
        own(b'[{"prompt": "a"}]')


def test_messages_need_chat(own):
    with pytest.raises(RequestError, match="line 1: messages need the chat endpoint"):
        own(b'{"messages": [{"role": "user", "content": "b"}]}', chat=False)


def test_bounds(own, monkeypatch):
    monkeypatch.setattr(jsonl, "MAX_LINE_BYTES", 100)
    with pytest.raises(RequestError, match="line 2: longer than 100 bytes"):
        own(b'{"prompt": "a"}\n{"prompt": "' + b"a" * 1000 + b'"}')
    monkeypatch.setattr(jsonl, "MAX_ROWS", 3)
    with pytest.raises(RequestError, match="more than 3 lines"):
        own(b'{"prompt": "a"}\n' * 4)
    monkeypatch.setattr(jsonl, "MAX_FILE_BYTES", 10)
    with pytest.raises(RequestError, match="longer than 10 bytes"):
        own(b'{"prompt": "a"}\n')


@pytest.mark.parametrize("data", [b"", b"\n\n  \n"])
def test_nothing_in_it(own, data):
    with pytest.raises(RequestError, match="no line with a request"):
        own(data)


def test_what_is_no_file(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    for path, words in ((tmp_path / "none", "No such file"), (tmp_path, "directory|regular"),
                        (tmp_path / "fifo", "not a regular file"), ("/dev/zero", "not a regular file")):
        with pytest.raises(RequestError, match=words):
            load(f"jsonl:path={path}", tokenizer=None, seed=1)
    with pytest.raises(RequestError, match="needs a file: jsonl:path=FILE"):
        load("jsonl", tokenizer=None, seed=1)
    with pytest.raises(RequestError, match="null"):
        load("jsonl:path=a\0b", tokenizer=None, seed=1)


@given(st.recursive(st.none() | st.integers(), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
    st.text(max_size=2), inner, max_size=3), max_leaves=20))
@pytest.mark.slow
def test_depth(value):
    def naive(value):
        if not isinstance(value, dict | list):
            return 0
        return 1 + max(map(naive, value.values() if isinstance(value, dict) else value), default=0)

    assert jsonl.depth(value) == naive(value)
