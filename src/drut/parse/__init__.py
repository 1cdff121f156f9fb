"""Parses the text of an output: its reasoning, its content and its tool calls."""

from drut.parse.message import Message, MessageParser

__all__ = ["Message", "MessageParser"]
