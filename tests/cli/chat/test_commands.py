from __future__ import annotations

import json

import pytest

from drut.cli.chat.commands import COMMANDS, LEAVE, handle
from drut.cli.chat.conversation import Conversation
from drut.errors import RequestError
from tests.cli.chat.parrot import Parrot, chat_with, say


def test_turns_are_remembered_and_clear_forgets_all_but_the_system_message():
    chat, model = chat_with(system="Be kind.")
    for line in ("one", "", "  ", "two", "/clear", "three", "/system none", "four", "/system Be brief.\n", "five"):
        assert handle(chat, line)
    first, third, fourth = ([("user", q), ("assistant", "I see.")] for q in ("one", "three", "four"))
    assert model.heard == [
        say(("user", "one"), system="Be kind."),
        say(*first, ("user", "two"), system="Be kind."),
        say(("user", "three"), system="Be kind."),
        say(*third, ("user", "four")),
        say(*third, *fourth, ("user", "five"), system="Be brief."),
    ]
    assert chat.screen.cleared == 1


@pytest.mark.parametrize("name", LEAVE)
def test_the_end_has_three_names(name):
    chat, _ = chat_with()
    assert handle(chat, f"/{name}") is False


def test_help_lists_all_commands_and_a_path_is_a_message():
    chat, model = chat_with()
    handle(chat, "/help")
    assert all(command.usage in chat.screen.notes[0] for command in COMMANDS.values())
    assert all(word in chat.screen.notes[0] for word in (*LEAVE, "Ctrl-C", '"""'))
    handle(chat, "/etc/hosts is what?")
    assert model.heard == [say(("user", "/etc/hosts is what?"))]


@pytest.mark.parametrize(("line", "words"), [
    ("/dance", "no command /dance (see /help)"),
    ("/sav x", "no command /sav; did you mean /save?"),
    ("/quiet", "did you mean /quit?"), ("/save", "/save FILE: FILE is missing"),
    ("/load ", "/load FILE: FILE is missing"),
    ("/retry", "there is no message to answer again"), ("/system forbidden", "no such message"),
    ("forbidden", "no such message"), ("/model other", "no model other"), ("/set temprature 1", "temperature?"),
    ("/set seed x", "seed must be an integer, not 'x'"), ("/set top_p 3", "top_p must be from 0 to 1"),
    ("/set markdown yes", "markdown must be on or off, not 'yes'")])
def test_an_error_is_one_line_and_changes_nothing(line, words):
    chat, _ = chat_with(system="Be kind.")
    settings = chat.settings
    with pytest.raises(RequestError) as error:
        handle(chat, line)
    assert words in str(error.value)
    assert "\n" not in str(error.value)
    assert (chat.conversation, chat.settings) == (Conversation("Be kind."), settings)


def test_set_changes_what_the_next_answer_uses_and_shows_it():
    chat, model = chat_with()
    for text in ("temperature 0.2", "top_p 0.5", "top_k 4", "min_p 0.1", "seed 7", "max_tokens 3",
                 "repetition_penalty 1.1", "stop END", "markdown off", "reasoning hide", "system Be kind."):
        handle(chat, f"/set {text}")
    handle(chat, "one")
    params = model.params[0]
    assert (params.temperature, params.top_p, params.top_k, params.min_p) == (0.2, 0.5, 4, 0.1)
    assert (params.seed, params.max_tokens, params.repetition_penalty, params.stop) == (7, 3, 1.1, ("END",))
    assert (chat.settings.markdown, chat.settings.reasoning) == (False, False)
    assert model.heard[0] == say(("user", "one"), system="Be kind.")
    handle(chat, "/set")
    rows = dict(line.split(maxsplit=1) for line in chat.screen.notes[-1].splitlines())
    assert rows["temperature"] == "0.2"
    assert (rows["markdown"], rows["reasoning"], rows["system"]) == ("off", "hide", "Be kind.")
    assert rows["stop"] == '["END"]'
    handle(chat, "/set stop")
    handle(chat, "/system")
    assert chat.screen.notes[-2:] == ['stop ["END"]', "system Be kind."]


def test_none_unsets_and_stop_strings_may_be_json():
    chat, _ = chat_with(system="Be kind.")
    for text in ("seed 7", 'stop ["\\n", "END"]', "seed none", "system none"):
        handle(chat, f"/set {text}")
    assert (chat.settings.params.seed, chat.settings.params.stop) == (None, ("\n", "END"))
    assert chat.conversation.system is None
    handle(chat, "/set temperature")
    assert chat.screen.notes == ["temperature none (the model's default)"]
    handle(chat, "/set stop none")
    assert chat.settings.params.stop == ()


def test_retry_answers_the_last_message_again():
    chat, model = chat_with()
    for line in ("one", "two", "/retry"):
        handle(chat, line)
    assert model.heard[2] == model.heard[1]
    assert chat.conversation.turns == [("one", "I see."), ("two", "I see.")]


def test_retry_repeats_a_message_that_failed_and_keeps_an_answer_if_it_fails_itself():
    chat, model = chat_with()
    handle(chat, "one")

    def fail(i, interrupt):
        raise RequestError("the server is gone")

    model.before = fail
    for line in ("/retry", "two"):
        with pytest.raises(RequestError):
            handle(chat, line)
        assert chat.conversation.turns == [("one", "I see.")]
    model.before = lambda i, interrupt: None
    handle(chat, "/retry")
    assert chat.conversation.turns == [("one", "I see."), ("two", "I see.")]


def test_an_interrupt_stops_the_answer_and_its_text_so_far_counts():
    chat, model = chat_with("I ", "see", " all.")
    model.before = lambda i, interrupt: setattr(interrupt, "wanted", i == 1)
    handle(chat, "one")
    assert chat.conversation.turns == [("one", "I see")]
    assert chat.screen.finishes == []
    model.before = lambda i, interrupt: None
    handle(chat, "two")
    assert chat.conversation.turns[1:] == [("two", "I see all.")]
    assert len(chat.screen.finishes) == 1


def test_an_answer_stopped_before_its_first_word_is_no_turn():
    chat, model = chat_with("", "late")
    model.before = lambda i, interrupt: setattr(interrupt, "wanted", True)
    handle(chat, "one")
    assert chat.conversation.turns == []


def test_another_model_continues_the_conversation():
    other = Parrot("Me too.")
    chat, _ = chat_with(first=Parrot(), second=other)
    for line in ("one", "/model second", "two"):
        handle(chat, line)
    assert other.heard == [say(("user", "one"), ("assistant", "I see."), ("user", "two"))]
    assert chat.screen.notes == ["second, context of 1000 tokens"]
    handle(chat, "/model")
    assert chat.screen.notes[1:] == chat.screen.notes[:1]


def test_a_model_that_cannot_chat_leaves_the_old_one_open():
    chat, _ = chat_with(system="only for second", first=Parrot(), second=Parrot())

    def refuse(messages):
        raise RequestError("chat template: no system message")

    chat.models.parrots["second"].encode_chat = refuse
    with pytest.raises(RequestError, match="no system message"):
        handle(chat, "/model second")
    assert chat.models.name == "first"


def test_a_saved_chat_is_loaded_as_it_was(tmp_path):
    file = tmp_path / "chat.json"
    chat, _ = chat_with(system="Be kind.")
    for line in ("नमस्ते\nline", '/set stop ["\\n"]', "/set seed 4", "/set reasoning hide", f"/save {file}"):
        handle(chat, line)
    saved = json.loads(file.read_text())
    assert saved["messages"] == say(("user", "नमस्ते\nline"), ("assistant", "I see."), system="Be kind.")
    assert saved["model"] == "parrot"
    again, model = chat_with()
    handle(again, f"/load {file}")
    assert (again.conversation, again.settings) == (chat.conversation, chat.settings)
    assert again.screen.notes == [f"1 turn loaded from {file}"]
    handle(again, "/retry")
    assert model.heard == [say(("user", "नमस्ते\nline"), system="Be kind.")]


def test_a_file_is_replaced_only_after_a_yes(tmp_path):
    file = tmp_path / "chat.json"
    file.write_text("mine")
    chat, _ = chat_with()
    with pytest.raises(RequestError, match="exists and stays as it is"):
        handle(chat, f"/save {file}")
    assert file.read_text() == "mine"
    chat.screen.yes = True
    handle(chat, f"/save {file}")
    assert json.loads(file.read_text())["messages"] == []
    assert chat.screen.questions == [f"{file} exists. Replace it?"] * 2


@pytest.mark.parametrize(("text", "words"), [
    ("{", "truncated"), ("[]", "Expected `object`"), ('{"messages": [{"role": "tool", "content": ""}]}', "'tool'"),
    ('{"messages": [{"role": "user", "content": "a"}]}', "must alternate"), ('{"messages": [], "x": 1}', "`x`"),
    ('{"messages": [], "settings": {"temprature": 1}}', "temperature?"),
    ('{"messages": [], "settings": {"top_p": "a"}}', "top_p must be"),
    ('{"messages": [], "settings": {"markdown": 1}}', "markdown must be true or false"),
    ('{"messages": [], "settings": {"stop": 3}}', "stop must hold strings"),
    ('{"messages": [], "settings": {"a": ' + "[" * 100_000, "recursion"),
    ('{"messages": [{"role": "system", "content": "forbidden"}]}', "template"),
], ids=range(11))
def test_a_file_that_is_no_chat_changes_nothing(tmp_path, text, words):
    file = tmp_path / "chat.json"
    file.write_text(text)
    chat, _ = chat_with(system="Be kind.")
    settings = chat.settings
    with pytest.raises(RequestError, match=words) as error:
        handle(chat, f"/load {file}")
    assert "\n" not in str(error.value)
    assert (chat.conversation, chat.settings) == (Conversation("Be kind."), settings)


@pytest.mark.parametrize("line", ["/load {}/missing.json", "/load {}", "/save {}/no/such/folder.json"])
def test_files_that_cannot_be_used_are_named(tmp_path, line):
    chat, _ = chat_with()
    with pytest.raises(RequestError, match=str(tmp_path)):
        handle(chat, line.format(tmp_path))


def test_a_conversation_that_no_longer_fits_loses_its_oldest_turns_with_one_note():
    chat, model = chat_with(system="s" * 5, parrot=Parrot("x" * 10, room=92))  # 90 for the prompt; a turn takes 20
    for letter in "abcd":
        handle(chat, letter * 10)
    assert chat.screen.notes == []
    for letter in "ef":
        handle(chat, letter * 10)
    assert chat.screen.notes == ["the oldest 3 turns are forgotten: the conversation no longer fits 92 tokens"]
    assert model.heard[-2] == say(("user", "d" * 10), ("assistant", "x" * 10), ("user", "e" * 10), system="s" * 5)
