"""Every command in the help and in the documentation is one that the program takes."""

import re
import shlex
from pathlib import Path

import pytest
from typer.main import get_command

from infoform.cli import app
from infoform.cli.verbs import VERBS

PAGE = Path(__file__).parents[2] / "docs" / "command-line.md"


def _commands(text: str) -> list[str]:
    joined = text.replace("\\\\\n", " ").replace("\\\n", " ")
    return [line.strip() for line in joined.splitlines() if line.strip().startswith("infoform ")]


EXAMPLES = [command for verb in VERBS.values() for command in _commands(verb.__doc__ or "")]
EXAMPLES += [
    command
    for block in re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for command in _commands(block)
]


def test_there_are_examples_of_every_verb() -> None:
    assert {shlex.split(example)[1] for example in EXAMPLES} == set(VERBS)


@pytest.mark.parametrize("example", sorted(set(EXAMPLES)))
def test_the_program_takes(example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    block = re.search(r"^```yaml\n(.*?)^```", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    assert block is not None
    Path("options.yaml").write_text(block[1])
    _, verb, *arguments = shlex.split(example)
    commands = get_command(app).commands  # type: ignore[attr-defined]
    commands[verb].make_context(verb, arguments)  # reads every option, and runs nothing
