"""The flags of `drut chat`, and the model that they choose."""

from __future__ import annotations

import argparse
import dataclasses
import os

from drut.cli import sampling
from drut.cli.chat.models import LocalModels, Models, RemoteModels
from drut.cli.chat.settings import ChatSettings
from drut.cli.chat.talk import talk
from drut.cli.opening import add_choice
from drut.cli.settings import engine_config, model_of
from drut.config import EngineConfig, add_flags
from drut.errors import RequestError

HELP = """Chat with a model. At a terminal /help lists the commands and DRUT_HOME/chat_history keeps the messages, for
later recall; otherwise each line of standard input is a message. With --url the model is a server's."""
EXAMPLES = (
    ("drut chat smollm2-135m-instruct", "with a model of this machine"),
    ("drut chat --url http://localhost:8000", "with the model of a server"),
    ('drut chat qwen3-4b --system "Answer in Hindi."', "with a system message"),
)
KEY = "DRUT_API_KEY"  # the environment variable of the server's key


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the model, the system message, and the flags of sampling and engine."""
    add_choice(parser)
    server = parser.add_argument_group("a server's model")
    server.add_argument("--url", metavar="U", help="chat with the model of a server with OpenAI's API, drut's or "
                                                   "another, such as http://localhost:8000; --model is its name "
                                                   "there (default: the first model)")
    server.add_argument("--api-key", metavar="K", help=f"the server's key [{KEY}]")
    parser.add_argument("--system", metavar="TEXT", help="the system message")
    parser.add_argument("--no-markdown", dest="markdown", action="store_false",
                        help="show answers as the model writes them")
    sampling.add_flags(parser)
    add_flags(parser)


def run(args: argparse.Namespace) -> int:
    """Chats until the end of the input or /bye. Through a pipe, an error ends the chat."""
    settings = ChatSettings(sampling.from_flags(args), markdown=args.markdown)
    with _models(args) as models:
        talk(models, settings, system=args.system)
    return 0


def _models(args: argparse.Namespace) -> Models:
    """Returns the open model and its others. Raises RequestError if the flags name none, or a local and a server's."""
    if args.url is None:
        if args.api_key is not None:
            raise RequestError("--api-key requires --url")
        return LocalModels(model_of(args), engine_config(args))
    if args.model is not None:
        raise RequestError(f"MODEL {args.model!r} is loaded here, --url asks a server: give one (--model names the "
                           "server's)")
    for field in dataclasses.fields(EngineConfig):
        if getattr(args, field.name, None) is not None:
            raise RequestError(f"--{field.name.replace('_', '-')} is a setting of the server: not with --url")
    return RemoteModels(args.url, args.model_flag, args.api_key or os.environ.get(KEY))
