"""Parses the text of an output: its reasoning, its content and its tool calls."""

from drut.parse.message import MessageParser, ParsedMessage

__all__ = ["MessageParser", "ParsedMessage"]
