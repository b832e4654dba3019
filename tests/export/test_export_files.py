"""Files of every format, run by their own runtimes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import Tensor, nn

import infoform
from export_cases import batches, fitted
from exported_graphs import graph_of
from infoform.export.inputs import read_graph_inputs
from infoform.export.targets import TARGETS, Names
from infoform.export.trace import trace
from infoform.export.write import check_parity
from infoform.network.batches import read_inputs


def inputs(count: int = 9) -> Tensor:
    return batches("classification")[0][0][:count].float()


def assert_as_predicted(found: dict[str, Any], laplace: infoform.Laplace, x: Tensor) -> None:
    prediction = laplace.predict(x)
    for name in ("probs", "entropy", "mutual_information", "novelty"):
        assert_allclose(found[name], getattr(prediction, name).numpy(), rtol=0, atol=1e-5)
    assert found["set"].tolist() == prediction.set(0.9).tolist()


def test_onnxruntime_answers_as_predict_does_for_any_batch(tmp_path: Path, classifier: infoform.Laplace) -> None:
    import onnxruntime

    weights = {name: one.clone() for name, one in classifier.model.state_dict().items()}
    done = classifier.export(tmp_path / "model.onnx", example=inputs())
    assert max(done.differences.values()) < 1e-5
    assert done.nbytes == (tmp_path / "model.onnx").stat().st_size
    assert [one.name for one in tmp_path.iterdir()] == ["model.onnx"]
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_outputs()]
    assert names == ["features", "logits", "variance", "probs", "entropy", "mutual_information", "novelty", "set"]
    assert [(one.name, one.shape[1:]) for one in session.get_inputs()] == [("input", [6])]
    for count in (1, 2, 9):
        found = dict(zip(names, session.run(None, {"input": inputs(count).numpy()}), strict=True))
        assert_as_predicted(found, classifier, inputs(count))
    manifest = json.loads(session.get_modelmeta().custom_metadata_map["infoform"])
    assert manifest == done.manifest
    assert set(manifest["outputs"]) == set(names)
    assert manifest["guarantee"]["level"] == 0.9
    assert manifest["temperature"] == 1.3
    assert "last-layer, " in str(done)
    for name, one in classifier.model.state_dict().items():  # bit-identical afterwards
        assert torch.equal(one, weights[name])


def test_many_classes_on_wide_and_narrow_layers_are_one_onnx_file(tmp_path: Path) -> None:
    import onnxruntime

    torch.manual_seed(0)
    x, y = torch.randn(400, 6), torch.arange(400) % 90
    model = nn.Sequential(nn.Linear(6, 300), nn.Tanh(), nn.Linear(300, 90)).eval()
    laplace = infoform.Laplace(model, "classification", layers="last").fit([(x, y)], progress=False)
    laplace.calibrate_novelty([(x[:200] + 0.1, y[:200])], progress=False)
    done = laplace.export(tmp_path / "model.onnx", example=x[:100])
    assert max(done.differences.values()) < 1e-5
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    (novelty,) = session.run(["novelty"], {"input": x.numpy()})
    assert_allclose(novelty, laplace.predict(x, link="probit").novelty.numpy(), rtol=0, atol=1e-6)


def test_an_onnx_file_keeps_a_small_layer_in_int8(tmp_path: Path) -> None:
    import onnx

    torch.manual_seed(0)
    x, y = torch.randn(40, 20), torch.arange(40) % 3
    model = nn.Sequential(nn.Linear(20, 40), nn.Tanh(), nn.Linear(40, 3)).eval()  # 800 numbers: few enough to be folded
    laplace = infoform.Laplace(model, "classification").fit([(x, y)], progress=False)
    done = laplace.export(tmp_path / "model.onnx", kind="samples", samples=2, precision="int8", example=x)
    assert max(done.differences.values()) < 1e-5
    stored = [onnx.numpy_helper.to_array(one) for one in onnx.load(done.path).graph.initializer]
    assert sorted(one.dtype.name for one in stored if one.size >= 800) == ["float16", "int8"]  # θ and δ


def test_a_program_of_torch_answers_as_predict_does(tmp_path: Path, classifier: infoform.Laplace) -> None:
    done = classifier.export(tmp_path / "model.pt2", example=inputs(1))
    target, names = TARGETS["pt2"], Names(("input",), tuple(done.manifest["outputs"]))
    run = target.open(tmp_path / "model.pt2", names)
    for count in (1, 5):
        assert_as_predicted(run({"input": inputs(count).numpy()}), classifier, inputs(count))
    assert json.loads(target.read_manifest(tmp_path / "model.pt2")) == done.manifest


def test_sampled_networks_in_int8_are_one_onnx_file_with_sets(tmp_path: Path, all_layers: infoform.Laplace) -> None:
    x, y = batches("classification")[2]
    done = all_layers.export(
        tmp_path / "model.onnx", kind="samples", samples=4, precision="int8", validation=[(x.float(), y)]
    )
    assert done.manifest["guarantee"]["calibration_examples"] == 40
    assert done.manifest["samples"] == 4
    assert max(done.differences.values()) < 1e-5
    assert {one.name for one in tmp_path.iterdir()} == {"model.onnx"}


def test_a_regression_has_intervals_in_its_file(tmp_path: Path) -> None:
    laplace = fitted("regression", dtype=torch.float32)
    x = inputs()
    done = laplace.export(tmp_path / "model.pt2", example=x)
    run = TARGETS["pt2"].open(done.path, Names(("input",), tuple(done.manifest["outputs"])))
    found, (lower, upper) = run({"input": x.numpy()}), laplace.predict(x).interval(0.9)
    assert_allclose(found["lower"], lower.numpy(), rtol=1e-5, atol=1e-5)
    assert_allclose(found["upper"], upper.numpy(), rtol=1e-5, atol=1e-5)
    assert_allclose(found["std"], laplace.predict(x).std.numpy(), rtol=1e-4)


def test_onnxruntime_answers_for_numbers_of_a_model_whose_argument_has_the_name_of_an_output(tmp_path: Path) -> None:
    import onnxruntime

    class Regression(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 1)

        def forward(self, features: Tensor) -> Tensor:
            found: Tensor = self.last(self.first(features).tanh())
            return found

    torch.manual_seed(0)
    data = [(x.float(), y[:, :1].float()) for x, y in batches("regression")]
    laplace = infoform.Laplace(Regression(), "regression", layers="last").fit(data[:2], progress=False)
    laplace.prior_precision = 3.0
    laplace.calibrate_conformal(data[2:], progress=False)
    laplace.export(tmp_path / "model.onnx", example=inputs())
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    assert [one.name for one in session.get_inputs()] == ["input_features"]
    names = [one.name for one in session.get_outputs()]
    found = dict(zip(names, session.run(None, {"input_features": inputs().numpy()}), strict=True))
    prediction = laplace.predict(inputs())
    for name in ("mean", "std", "mutual_information", "novelty"):
        assert_allclose(found[name], getattr(prediction, name).numpy(), rtol=1e-4, atol=1e-5)
    assert_allclose(found["lower"], prediction.interval(0.9)[0].numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("structure", ["kfac", "inf", "full"])
def test_a_program_has_no_factorisation_and_no_operation_that_writes_in_place(structure: str) -> None:
    laplace = fitted("regression", dtype=torch.float32, structure=structure)
    graph = graph_of(laplace, inputs(), "last-layer")
    program = trace(graph, (inputs(4),), max_batch=None).run_decompositions({})
    names = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    bad = ("solve", "cholesky", "triangular", "eigh", "slogdet", "copy_to", "add_.")
    assert not [name for name in names if any(one in name for one in bad)]


def test_the_arguments_of_a_model_keep_their_names() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 3)

        def forward(self, image: Tensor, *, scale: Tensor, twice: bool) -> Tensor:
            found: Tensor = self.last(self.first(image).tanh() * scale * (2 if twice else 1))
            return found

    x, y = inputs(30), torch.arange(30) % 3
    batch = {"image": x, "scale": torch.ones(30, 1), "twice": True}
    form, tensors = read_graph_inputs(Two(), read_inputs({**batch, "labels": y}, torch.device("cpu")))
    assert form.names == ("image", "scale")
    assert form.batch(tensors).kwargs["twice"] is True
    positional, _ = read_graph_inputs(nn.Linear(6, 3), read_inputs(x, torch.device("cpu")))
    assert positional.names == ("input",)
    with pytest.raises(ValueError, match=r"one row for each example, got 'scale' of shape \(2,\) in a batch of 4"):
        read_graph_inputs(Two(), read_inputs({**batch, "scale": torch.ones(2)}, torch.device("cpu")))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("model.tflite", {}, r"told by its suffix, .onnx, .pt2, .pte, got 'model.tflite'; rename it, or give to="),
        ("model.bin", {"to": "tflite"}, r"to must be .*'onnx'.*got 'tflite'"),
        ("model.onnx", {"kind": "jacobians"}, r"kind must be .*'last-layer'.*got 'jacobians'"),
        ("model.onnx", {"precision": "int4"}, r"precision must be .*'int8'.*got 'int4'"),
        ("model.onnx", {"coverage": 1.5}, r"between 0 and 1, got 1.5"),
        ("model.onnx", {"validation": [inputs()]}, r"validation data need targets, and the loader gave none"),
        ("model.onnx", {"validation": []}, r"at least one example, got none"),
    ],
)
def test_bad_input_is_told_in_a_sentence_and_leaves_nothing(
    tmp_path: Path, classifier: infoform.Laplace, name: str, options: dict[str, Any], message: str
) -> None:
    given: dict[str, Any] = {} if "validation" in options else {"example": inputs()}
    with pytest.raises(ValueError, match=message):
        classifier.export(tmp_path / name, **given, **options)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_and_an_export_without_inputs_are_told(tmp_path: Path) -> None:
    laplace = infoform.Laplace(nn.Linear(6, 3), "classification", layers="last")
    laplace.fit([(inputs(), torch.arange(9) % 3)], progress=False)
    with pytest.raises(ValueError, match="give example=, a batch as for predict, or validation="):
        laplace.export(tmp_path / "model.pt2")
    with pytest.raises(FileNotFoundError, match="does not exist; create it before exporting there"):
        laplace.export(tmp_path / "none" / "model.pt2", example=inputs())


def test_a_missing_package_is_named_with_its_extra(
    tmp_path: Path, classifier: infoform.Laplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("infoform.export.targets.base.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"executorch, not installed here: pip install 'infoform\[executorch\]'"):
        classifier.export(tmp_path / "model.pte", example=inputs())


def test_a_file_that_computes_something_else_is_not_kept(
    tmp_path: Path, classifier: infoform.Laplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = type(TARGETS["pt2"])
    graph = graph_of(classifier, inputs(), "last-layer")

    def wrong(given: dict[str, Any]) -> dict[str, Any]:
        found = {name: one.detach().numpy() for name, one in graph(torch.from_numpy(given["input"])).items()}
        return {**found, "probs": found["probs"] + np.float32(1e-3), "set": found["probs"] > 2}

    monkeypatch.setattr("infoform.export.write.trace", lambda *args, **kwargs: None)
    monkeypatch.setattr(target, "write", lambda self, program, path, **kwargs: path.write_text("written"))
    monkeypatch.setattr(target, "open", lambda self, path, names: wrong)
    (tmp_path / "model.pt2").write_text("an older one")
    with pytest.raises(ValueError, match=r"agree with PyTorch within 1e-05, and '\w+' in .pt2 differs by"):
        classifier.export(tmp_path / "model.pt2", example=inputs())
    assert [one.name for one in tmp_path.iterdir()] == ["model.pt2"]
    assert (tmp_path / "model.pt2").read_text() == "an older one"


def test_numbers_that_are_not_finite_are_no_parity() -> None:
    with pytest.raises(ValueError, match=r"'probs' in .onnx differs by inf"):
        check_parity({"probs": float("inf"), "entropy": 0.0}, "onnx")
