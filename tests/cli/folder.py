"""A user's folder: a network in a file, its weights, and the same small data in every form."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from trees import MODEL, NAMES, NETWORK, TREES
from typer.testing import CliRunner, Result

from infoform.cli import app

Call = Callable[..., Result]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch) -> Call:
    """Run the command in this process, as a user types it."""

    def run(*arguments: object, width: int = 100) -> Result:
        monkeypatch.setenv("COLUMNS", str(width))
        return CliRunner().invoke(app, [str(argument) for argument in arguments])

    return run


@pytest.fixture
def succeed(call: Call) -> Call:
    """Run the command, which must succeed."""

    def run(*arguments: object, **how: Any) -> Result:
        result = call(*arguments, **how)
        assert result.exit_code == 0, result.output
        return result

    return run


@pytest.fixture
def fail(call: Call) -> Callable[..., str]:
    """Run the command, which must end in one sentence and no traceback; return the sentence."""

    def run(*arguments: object, code: int = 1) -> str:
        result = call(*arguments)
        assert result.exit_code == code, result.output
        lines = [line for line in result.stderr.splitlines() if not line.startswith("note: ")]
        assert len(lines) == 1, result.stderr
        assert lines[0].startswith("error: ")
        assert lines[0].endswith(".")
        assert result.stdout == ""
        return lines[0].removeprefix("error: ")

    return run


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the user's folder, and go there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    make_home()
    return tmp_path


@pytest.fixture
def fitted(home: Path, succeed: Call) -> Path:
    """Make a run of the classifier on the table of trees."""
    succeed("fit", "run", *NETWORK, *TREES, "--keep-curvature", "--quiet")
    return home / "run"


def make_home() -> None:
    """Make a user's network and data in the present folder."""
    import pandas

    Path("model.py").write_text(MODEL)
    torch.manual_seed(0)
    classifier = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 3))
    regressor = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    torch.save(classifier.state_dict(), "classifier.pt")
    save_file(classifier.state_dict(), "classifier.safetensors")
    wrapped = {f"model.{name}": value for name, value in regressor.state_dict().items()}
    torch.save({"state_dict": wrapped, "epoch": 3}, "regressor.ckpt")
    x = torch.randn(40, 3)
    labels = classifier(x).argmax(1)
    labels[:9] = torch.arange(9) % 3  # not all right, and every class there
    y = x.sum(1, keepdim=True).tanh() + 0.1 * torch.randn(40, 1)
    frame = pandas.DataFrame(x.numpy(), columns=["a", "b", "c"])
    frame["id"] = [f"n{index}" for index in range(40)]
    frame["tree"] = [NAMES[label] for label in labels]
    frame["class"] = labels.numpy()
    frame["height"] = y.numpy()[:, 0]
    frame.to_csv("trees.csv", index=False)
    frame.iloc[:25].to_csv("more.csv", index=False)
    frame.to_parquet("trees.parquet")
    frame[["c", "b", "a"]].to_csv("unlabelled.csv", index=False)
    np.savez("trees.npz", x=x.numpy(), y=labels.numpy(), height=y.numpy())
