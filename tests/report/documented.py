"""The example of docs/report.md, run as it is written, and a run whose names try to break the page."""

import contextlib
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import torch
from torch import nn
from typer.testing import CliRunner

from infoform.cli import app

PAGE = Path(__file__).parents[2] / "docs" / "report.md"
HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(2)</script>",
    '"><b>bold</b>&amp;',
    "<a href='javascript:alert(3)'>x</a>",
)


def infoform(*arguments: object) -> str:
    """Run a command, which must succeed."""
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code == 0, done.output
    return done.output


def documented_page(folder: Path) -> Path:
    """Make the files and run the commands of docs/report.md; return the page."""
    text = PAGE.read_text(encoding="utf-8")
    (prepare, *_), (_, commands, *_) = (
        re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL) for language in ("python", "sh")
    )
    with contextlib.chdir(folder):
        namespace: dict[str, Any] = {"__name__": "example"}
        exec(compile(prepare, str(PAGE), "exec"), namespace)
        for command in commands.splitlines():
            _, *arguments = shlex.split(command)
            infoform(*arguments, "--quiet")
    return folder / "report.html"


def hostile_page(folder: Path) -> Path:
    """Make a run whose folder, files, classes, columns and title are HTML; return its page."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, len(HOSTILE)))
    with contextlib.chdir(folder):
        Path("model.py").write_text(
            "from torch import nn\n\n\ndef net():\n"
            f"    return nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, {len(HOSTILE)}))\n"
        )
        torch.save(network.state_dict(), "net.pt")
        x = np.random.default_rng(0).normal(size=(40, 2))
        frame = pandas.DataFrame(x, columns=["<i>a</i>", "b"])
        frame["kind"] = [HOSTILE[row % len(HOSTILE)] for row in range(40)]
        frame.to_csv("data.csv", index=False)
        run = Path("<u>run<!--")
        infoform("fit", run, "-m", "model.py:net", "-w", "net.pt", "-d", "data.csv", "--target", "kind", "--quiet")
        other = "<i onmouseover=alert(5)>other.csv"
        (frame.drop(columns="kind") + 5).to_csv(other, index=False)
        infoform("evaluate", run, "--data", "data.csv", "--unknown", other, "--quiet")
        infoform("predict", run, "--data", "data.csv", "--quiet")
        infoform("report", run, "--out", "hostile.html", "--title", "<script>alert(4)</script>")
    return folder / "hostile.html"
