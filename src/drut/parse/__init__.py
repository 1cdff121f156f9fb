"""What the text of an answer says: its thought, its content, and the tools it calls."""

from drut.parse.message import Message, MessageParser

__all__ = ["Message", "MessageParser"]
