"""`infoform export`."""

import json
from collections.abc import Callable
from pathlib import Path

import torch
from trees import read
from typer.testing import Result

from infoform.export.targets import TARGETS

Call = Callable[..., Result]
Fail = Callable[..., str]


def test_export_writes_a_file_that_tells_of_itself(fitted: Path, succeed: Call) -> None:
    shown = succeed("export", "run", "--to", "pt2", "--kind", "heads", "--samples", 4).stdout
    result = read(fitted / "export.json")["result"]
    assert result["bytes"] == (fitted / "model.pt2").stat().st_size
    assert result["kind"] == "heads"
    manifest = json.loads(TARGETS["pt2"].read_manifest(fitted / "model.pt2"))
    assert manifest["fingerprint"] == result["fingerprint"]
    assert "agree with PyTorch within" in shown
    assert torch.export.load(fitted / "model.pt2") is not None


def test_linear_over_all_layers_is_refused_in_a_sentence(fitted: Path, fail: Fail) -> None:
    said = fail("export", "run", "--to", "onnx")
    assert said.startswith("kind='linear' over all layers needs Jacobians, which no exported graph computes; export")
    assert not (fitted / "model.onnx").exists()


def test_an_unknown_format_is_told(fitted: Path, fail: Fail) -> None:
    assert "tflite" in fail("export", "run", "--to", "tflite")
    assert not list(fitted.glob("model.*"))
