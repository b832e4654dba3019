"""The example for a device needs neither torch nor infoform."""

import sys
from pathlib import Path

import numpy as np

import bounded
import infoform
from export_cases import batches

SCRIPT = Path(__file__).parents[2] / "examples" / "onnx_on_device.py"


def test_a_device_runs_the_file_without_torch(tmp_path: Path, classifier: infoform.Laplace) -> None:
    x = batches("classification")[0][0][:4].float()
    classifier.export(tmp_path / "model.onnx", example=x)
    np.save(tmp_path / "inputs.npy", x.numpy())
    blocked = (
        "import runpy, sys; sys.modules['torch'] = sys.modules['infoform'] = None; "
        f"sys.modules.pop('torch'); sys.argv = ['x', 'model.onnx', 'inputs.npy']; runpy.run_path({str(SCRIPT)!r})"
    )
    done = bounded.run([sys.executable, "-c", blocked], cwd=tmp_path, check=True)
    assert [
        f"class {label} with" in line
        for label, line in zip(classifier.predict(x).labels.tolist(), done.stdout.splitlines(), strict=True)
    ] == [True] * 4
    assert len(SCRIPT.read_text(encoding="utf-8").splitlines()) <= 45
