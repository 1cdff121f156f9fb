"""Commands in the pages are taken by the parsers, and the README's print what it shows."""

from __future__ import annotations

import functools
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from drut.cli.chat.commands import COMMANDS, LEAVE
from drut.cli.commands import parser_of
from drut.cli.describe import describe
from drut.model.store import resolve
from tests.docs.pages import PAGES, READMES, ROOT, Example, blocks, command_lines, output, shell_lines, shown
from tests.server.rig import Running, serving

MODEL = "smollm2-135m-instruct"
URL = "http://127.0.0.1:8000"
SETUP = ("make ", "source ", "pip ", "apt ")  # what the tests' environment has already
NOT_OURS = ("CONTRIBUTING.md", "ablation.md", "benchmarks.md", "comparison.md", "engines.md")  # with others' flags
WRITTEN = [page for page in PAGES if page.name not in NOT_OURS]
ENDING = ("config", "generate", "list", "ps", "pull", "show")  # commands that need no server and no terminal
LINES = sorted({(page.name, " ".join(words)): words for page in PAGES
                for words in command_lines(page.read_text())}.items())


@pytest.mark.parametrize("words", [words for _, words in LINES], ids=[f"{page}: {line}" for (page, line), _ in LINES])
def test_a_command_of_a_page_parses(words: list[str]) -> None:
    if words[0].startswith("-"):
        assert words in (["--version"], ["--help"])
        return
    parser_of(words[0]).parse_args(words[1:])


def test_the_pages_have_commands() -> None:
    assert len(LINES) > 40


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with serving(resolve(MODEL), engine={"threads": None, "kv_cache_gb": 0.2}, served_model_name=MODEL) as running:
        yield running


def output_of(example: Example, url: str, folder: Path) -> str:
    """What the code prints, with the server's real address."""
    lines = [line for line in example.code.replace(URL, url).splitlines() if not line.startswith(SETUP)]
    return output("\n".join(lines), folder, example.language)


def comparable(text: str) -> Any:
    """A reply without its id and time, or the text."""
    try:
        reply = json.loads(text)
    except ValueError:
        return text
    return {key: value for key, value in reply.items() if key not in ("id", "created")}


@pytest.mark.model
@pytest.mark.serial
@pytest.mark.parametrize("example", shown((ROOT / "README.md").read_text()), ids=lambda e: e.code.splitlines()[0])
def test_the_readme_shows_what_is_printed(example: Example, server: Running, tmp_path: Path) -> None:
    assert comparable(output_of(example, server.url, tmp_path)) == comparable(example.output.strip())


PROGRAMS = [block for name in ("structured.md", "tools.md")
            for block in blocks((ROOT / "docs" / name).read_text(), "python") if "my-reasoner" not in block]


@pytest.mark.model
@pytest.mark.serial
@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.split("\n")[0])
def test_a_program_of_a_task_page_runs(program: str, server: Running) -> None:
    assert output(program.replace(URL, server.url), ROOT, "python")


def ends(line: str) -> bool:
    """Whether a command ends by itself; `drut run MODEL` alone is a chat."""
    for words in command_lines(f"    {line}\n"):
        return words[0] in ENDING or (words[0] == "run" and len(words) > 2)
    return False


RUNNING = [line for line in shell_lines((ROOT / "docs" / "run.md").read_text()) if ends(line)]


@pytest.mark.model
@pytest.mark.serial
@pytest.mark.slow
@pytest.mark.parametrize("line", RUNNING)
def test_a_command_that_ends_by_itself_runs(line: str, tmp_path: Path) -> None:
    (tmp_path / "report.txt").write_text("The tests pass.\n")
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    short = re.sub(rf"drut (run|generate) {MODEL}", r"\g<0> -n 8", line)
    assert output(short, tmp_path)


def test_the_readmes_have_the_same_commands_and_links() -> None:
    """Code is the same but for comments of shell; both pages lead to the same files, and to each other."""
    english, hindi = (page.read_text() for page in READMES)
    assert list(command_lines(hindi)) == list(command_lines(english))
    assert blocks(hindi, "python") == blocks(english, "python")
    for language in ("text", "json"):
        assert blocks(hindi, language) == blocks(english, language)
    assert code_of_shell(hindi) == code_of_shell(english)
    assert links(hindi) - {"README.md"} == links(english) - {"README.hi.md"}


def code_of_shell(text: str) -> list[str]:
    return [re.sub(r" +#.*", "", block) for block in blocks(text, "sh")]


def links(text: str) -> set[str]:
    return set(re.findall(r"\]\(([^)\s]+)\)", text))


@functools.cache
def flags() -> set[str]:
    """Every long flag of every command."""
    names = {name for command in describe() for a in command.arguments for name in a.names}
    return {spelled for name in names for spelled in (name.replace("[no-]", ""), name.replace("[no-]", "no-"))}


def named_flags(page: Path) -> set[str]:
    """Flags in inline code; of a table of another engine's names, those of its other columns."""
    text = page.read_text()
    if page.name == "coming-from.md":
        text = re.sub(r"^[^|\n]+ \| ", "", text, flags=re.MULTILINE)
    return {name for span in re.findall(r"`(--[^`]+)`", text) for name in re.findall(r"(?:^| )(--[a-z][\w-]+)", span)}


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.name)
def test_a_flag_that_a_page_names_exists(page: Path) -> None:
    assert named_flags(page) - flags() == set()


def test_the_chat_has_the_commands_of_its_page() -> None:
    section = (ROOT / "docs" / "run.md").read_text().partition("\n## Chat\n")[2].partition("\n## ")[0]
    assert set(re.findall(r"`/([a-z]+)", section)) <= {*COMMANDS, *LEAVE}
