"""The page that `drut` prints without a command."""

from __future__ import annotations

from drut import __version__
from drut.cli.commands import GROUPS
from drut.cli.parser import example_lines

EXAMPLES = (
    ("drut run smollm2-135m-instruct", "chat with a small model"),
    ('drut run qwen3-4b "Why is the sky blue?"', "one answer"),
    ("drut run qwen3-4b Summarize: < report.txt", "a prompt and a text"),
    ("drut serve qwen3-4b", "OpenAI's API on port 8000"),
    ("drut list --catalogue", "models by short name"),
)


def overview() -> str:
    """Returns the page: what Drut is, the commands in groups, and examples."""
    lines = [f"Drut {__version__}: LLM inference, exact, explained, fast", "", "usage: drut COMMAND [flags]"]
    for title, commands in GROUPS.items():
        lines += ["", f"{title}:", *(f"  {name:<14}{text}" for name, text in commands)]
    end = ["", "`drut help COMMAND` describes a command, `drut COMMAND --help-all` adds engine internals.",
           "`drut --version` prints the version. Documentation: docs/index.md"]
    return "\n".join(lines) + "\n" + example_lines(EXAMPLES) + "\n".join(end) + "\n"
