"""`drut chat`: a conversation on the terminal or through a pipe."""

from drut.cli.chat.command import EXAMPLES, HELP, add_arguments, run
from drut.cli.chat.talk import talk

__all__ = ["EXAMPLES", "HELP", "add_arguments", "run", "talk"]
