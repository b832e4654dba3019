"""`predict`, `evaluate` and `acquire` that were stopped go on where they were, to the same bits."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from trees import NETWORK, TREES, read
from typer.testing import Result

Call = Callable[..., Result]
Fail = Callable[..., str]

LOADERS = """
import os
import time

import pandas
import torch

inputs = torch.tensor(pandas.read_csv("trees.csv")[["a", "b", "c"]].to_numpy(), dtype=torch.float32)
labels = torch.tensor(pandas.read_csv("trees.csv")["class"].to_numpy())


class Waiting:
    def __init__(self, at):
        self.at = at

    def __iter__(self):
        for number, batch in enumerate(zip(inputs.split(7), labels.split(7))):
            if number == self.at and os.path.exists("wait"):
                open("waiting", "w").close()
                time.sleep(600)
            yield batch


def data():
    return Waiting(3)


def unknown():
    return Waiting(2)
"""
VERBS = {
    "predict": (["predict", "run", "--data", "loaders.py:data", "--kind", "mc", "--samples", "6"], "predict.csv"),
    "linear": (["predict", "run", "--data", "loaders.py:data", "--out", "out.csv"], "../out.csv"),
    "evaluate": (["evaluate", "run", "--data", "loaders.py:data", "--unknown", "loaders.py:unknown"], "evaluate.json"),
    "acquire": (["acquire", "run", "--data", "loaders.py:data", "-n", "9"], "acquire.csv"),
    "alone": (["acquire", "run", "--data", "loaders.py:data", "-n", "9", "--each-alone"], "acquire.csv"),
}
NORMED = "nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)"


@pytest.fixture
def ready(home: Path, succeed: Call) -> Path:
    """Make a run, and loaders that wait after some batches as long as there is a file 'wait'."""
    Path("loaders.py").write_text(LOADERS)
    succeed("fit", "run", *NETWORK, *TREES, "--quiet")
    return home / "run"


def _start(arguments: list[str]) -> "subprocess.Popen[str]":
    """Start the command, listening to Ctrl-C as in a terminal, wherever the tests run."""
    listening = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    command = [sys.executable, "-c", f"{listening}; from infoform.cli import main; main()", *arguments, "--quiet"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, env=environment, text=True, **pipes)  # type: ignore[call-overload,no-any-return]


def _stopped(arguments: list[str], number: int) -> tuple[int, str]:
    """Start a command, send it a signal when it waits for data, and return its exit code and what it said."""
    Path("wait").touch()
    with _start(arguments) as child:
        try:
            for _ in _until(300):
                if Path("waiting").exists() or child.poll() is not None:
                    break
            assert child.poll() is None, child.communicate(timeout=30)
            child.send_signal(number)
            _, said = child.communicate(timeout=300)
        finally:
            child.kill()
    Path("wait").unlink()
    Path("waiting").unlink()
    return child.returncode, said


def _until(seconds: float) -> Iterator[None]:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield
        time.sleep(0.02)


def _bits(path: Path) -> Any:
    return json.dumps(read(path)["result"]) if path.suffix == ".json" else path.read_bytes()


def _whole(ready: Path, succeed: Call, arguments: list[str], output: str) -> Any:
    """Return what the command leaves when nothing stops it."""
    succeed(*arguments, "--quiet")
    bits = _bits(ready / output)
    (ready / output).unlink()
    return bits


def test_predict_goes_on_after_ctrl_c(ready: Path, succeed: Call) -> None:
    arguments, output = VERBS["predict"]
    expected = _whole(ready, succeed, arguments, output)
    code, said = _stopped(arguments, signal.SIGINT)
    assert code == 130
    assert said.splitlines() == [
        "note: the predictions so far are in 'run/predict.csv.part'; the same command goes on from there.",
        "interrupted.",
    ]
    assert not (ready / output).exists()
    again = succeed(*arguments, "--quiet")
    assert "going on from 3 batches" in again.stderr
    assert _bits(ready / output) == expected
    assert not list(ready.glob("*.part"))


def test_predict_goes_on_after_it_was_killed(ready: Path, succeed: Call) -> None:
    arguments, output = VERBS["predict"]
    expected = _whole(ready, succeed, arguments, output)
    code, _ = _stopped(arguments, signal.SIGKILL)
    assert code == -signal.SIGKILL
    assert list((ready / "predict.csv.part").glob("*.safetensors"))  # the first batch is written at once
    again = succeed(*arguments, "--quiet")
    assert "going on from" in again.stderr
    assert _bits(ready / output) == expected
    assert not list(ready.glob("*.part"))


def _crash(monkeypatch: pytest.MonkeyPatch, after: int, error: type[BaseException]) -> list[int]:
    """End the next command after so many batches; return a list that counts the batches from then on."""
    from infoform.predicting.predictor import Predictor

    counted: list[int] = []

    def crashing(original: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        def run(self: Any, batch: Any) -> Any:
            counted.append(len(batch.args[0]))
            if len(counted) == after + 1:
                raise error
            return original(self, batch)

        return run

    monkeypatch.setattr(Predictor, "outputs", crashing(Predictor.outputs))
    monkeypatch.setattr(Predictor, "linear", crashing(Predictor.linear))
    return counted


# stopped after how many batches, of which so many were kept: sampled networks run over one, two, four, ... at a time;
# the data have six, and the unknown too
@pytest.mark.parametrize(
    ("verb", "after", "kept"),
    [
        ("predict", 4, 3),
        ("linear", 1, 1),
        ("evaluate", 2, 2),
        ("evaluate", 8, 8),
        ("acquire", 3, 3),
        ("alone", 5, 3),
    ],
)
def test_every_verb_goes_on(
    ready: Path, call: Call, succeed: Call, monkeypatch: pytest.MonkeyPatch, verb: str, after: int, kept: int
) -> None:
    arguments, output = VERBS[verb]
    expected = _whole(ready, succeed, arguments, output)
    counted = _crash(monkeypatch, after, KeyboardInterrupt)
    assert call(*arguments, "--quiet").exit_code == 130
    folder = (ready / output).with_name(f"{Path(output).name}.part")
    assert folder.is_dir()
    counted[:] = [0] * 100
    succeed(*arguments, "--quiet")
    assert len(counted) - 100 == (12 if verb == "evaluate" else 6) - kept  # the others are not predicted again
    assert _bits(ready / output) == expected
    assert not folder.exists()


def test_an_error_keeps_what_was_predicted(
    ready: Path, call: Call, succeed: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments, _ = VERBS["predict"]
    counted = _crash(monkeypatch, 3, RuntimeError)
    said = call(*arguments, "--quiet")
    assert said.exit_code == 1
    assert "note: the predictions so far are in 'run/predict.csv.part'" in said.stderr
    counted[:] = [0] * 100
    succeed(*arguments, "--quiet")
    assert len(counted) - 100 == 6 - 3


@pytest.fixture
def stopped(ready: Path, call: Call) -> Path:
    """Leave the parts of a command."""
    with pytest.MonkeyPatch.context() as patch:
        _crash(patch, 3, KeyboardInterrupt)
        assert call(*VERBS["predict"][0], "--quiet").exit_code == 130
    return ready / "predict.csv.part"


def test_parts_of_another_command_are_refused(stopped: Path, succeed: Call, fail: Fail) -> None:
    arguments, _ = VERBS["predict"]
    kept = {file: file.read_bytes() for file in stopped.iterdir()}
    remedy = "add --restart to forget them."
    start = f"'run/{stopped.name}' holds predictions of another command"
    assert fail(*arguments[:-1], "7") == f"{start} (--samples was 6, is 7); {remedy}"
    assert fail(*arguments, "--seed", "3") == f"{start} (--seed was not given, is 3); {remedy}"
    assert "--data was loaders.py:data, is loaders.py:unknown" in fail(
        *[argument.replace(":data", ":unknown") for argument in arguments]
    )
    assert {file: file.read_bytes() for file in stopped.iterdir()} == kept
    succeed(*arguments[:-1], "7", "--restart")
    assert not stopped.exists()


def test_parts_of_another_posterior_are_refused(stopped: Path, succeed: Call, fail: Fail) -> None:
    succeed("tune", "run")
    assert "(the posterior was" in fail(*VERBS["predict"][0])


def test_parts_of_a_network_with_other_buffers_are_refused(
    home: Path, call: Call, succeed: Call, fail: Fail, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("loaders.py").write_text(LOADERS)
    normed = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    Path("model.py").write_text("from torch import nn\n\n\ndef net():\n    return nn." + f"Sequential({NORMED})\n")
    torch.save(normed.state_dict(), "normed.pt")
    succeed("fit", "run", "-m", "model.py:net", "-w", "normed.pt", *TREES, "--quiet")
    _crash(monkeypatch, 2, KeyboardInterrupt)
    assert call(*VERBS["predict"][0], "--quiet").exit_code == 130
    torch.save(normed.state_dict() | {"1.running_mean": torch.ones(4)}, "normed.pt")
    assert "(the network was" in fail(*VERBS["predict"][0])


def test_parts_of_other_data_are_refused(stopped: Path, succeed: Call, fail: Fail) -> None:
    arguments, _ = VERBS["predict"]
    Path("loaders.py").write_text(LOADERS + "\ninputs[8] += 1\n")  # in the second batch
    assert fail(*arguments, "--quiet") == (
        f"'run/{stopped.name}' holds predictions of other data (batch 1 differs); add --restart to forget them."
    )
    succeed(*arguments, "--restart")


def test_damaged_parts_are_refused(stopped: Path, succeed: Call, fail: Fail) -> None:
    arguments, _ = VERBS["predict"]
    part = stopped / "000000.safetensors"
    part.write_bytes(part.read_bytes()[:-3] + b"\0\1\2")
    assert fail(*arguments) == (
        f"'run/{stopped.name}/{part.name}' is damaged, and its predictions are lost; add --restart to forget them, "
        "and the others."
    )
    part.write_bytes(b"no tensors")
    assert "is damaged" in fail(*arguments)
    succeed(*arguments, "--restart")


def test_restart_forgets_nothing_before_the_options_are_checked(stopped: Path, fail: Fail) -> None:
    kept = {file: file.read_bytes() for file in stopped.iterdir()}
    arguments, _ = VERBS["predict"]
    assert "link must be one of" in fail(*arguments, "--link", "tanh", "--restart")
    assert "there is no file" in fail(*arguments[:2], "--data", "nothing.py:data", "--restart")
    assert {file: file.read_bytes() for file in stopped.iterdir()} == kept


def test_another_fit_forgets_the_parts(stopped: Path, succeed: Call) -> None:
    succeed("fit", "run", *NETWORK, *TREES, "--quiet", "--force")
    assert not stopped.exists()


def test_a_file_in_the_place_of_the_folder(ready: Path, fail: Fail) -> None:
    (ready / "predict.csv.part").write_text("mine")
    assert fail(*VERBS["predict"][0]) == "'run/predict.csv.part' is a file where a folder is needed; move it away."
