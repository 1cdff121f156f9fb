from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drut.cli.chat.conversation import Conversation
from drut.errors import RequestError
from tests.cli.chat.parrot import Parrot


@given(
    turns=st.lists(st.tuples(st.text("q", min_size=1, max_size=30), st.text("a", min_size=1, max_size=30))),
    question=st.text("?", min_size=1, max_size=60),
    room=st.integers(1, 100),
    answer=st.integers(1, 100),
)
def test_what_is_forgotten_leaves_half_the_room_and_is_no_more_than_that_takes(turns, question, room, answer):
    model, most = Parrot(room=room), room - min(answer, room // 4)
    conversation = Conversation("system", list(turns))

    def size(kept):
        return len(model.encode_chat(Conversation("system", kept).messages(question)))

    if size([]) >= room:
        with pytest.raises(RequestError, match=f"has {size([])} tokens; the maximum of {room}"):
            conversation.fit(question, model, answer)
        assert conversation.turns == turns
        return
    forgotten = conversation.fit(question, model, answer)
    assert conversation.turns == turns[forgotten:]
    if forgotten:
        assert size(turns) > most
        assert size(turns[forgotten - 1 :]) > room // 2
        assert size(turns[forgotten:]) <= room // 2 or forgotten == len(turns)
    else:
        assert size(turns) <= most or not turns


def test_a_model_that_cannot_count_forgets_nothing():
    conversation = Conversation(None, [("a" * 100, "b" * 100)])
    assert conversation.fit("c", Parrot(room=None), 10) == 0
    assert len(conversation.turns) == 1
