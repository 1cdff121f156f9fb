"""`drut chat`: a conversation on the terminal or through a pipe."""

from drut.cli.chat.command import HELP, add_arguments, run
from drut.cli.chat.talk import talk

__all__ = ["HELP", "add_arguments", "run", "talk"]
