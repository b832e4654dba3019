"""A file that is signed but absurd is refused with one error, whatever is wrong in it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import infoform
from infoform.common import files

Tensors = dict[str, Tensor]
Plain = dict[str, Any]


def make_model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    torch.manual_seed(1)
    data = [(torch.randn(6, 3), torch.randint(0, 2, (6,))) for _ in range(2)]
    folder = tmp_path_factory.mktemp("saved")
    for structure in ("inf", "diag", "kfac", "efb", "full"):
        laplace = infoform.Laplace(make_model(), "classification", structure=structure)
        laplace.fit(data, progress=False).save(folder / structure, curvature=structure == "inf")
    return {path.name: path for path in folder.iterdir()}


def load_changed(path: Path, change: Callable[[Tensors, Plain], None], target: Path) -> infoform.Laplace:
    """Change tensors and metadata of a file, sign it again, and load it."""
    tensors, plain = files.read_file(path)
    plain = {key: value for key, value in plain.items() if key not in ("format", "version")}
    change(tensors, plain)
    files.write_file(target, tensors, plain)
    return infoform.load(target, make_model())


def put(place: str, value: Any) -> Callable[[Tensors, Plain], None]:
    def change(_: Tensors, plain: Plain) -> None:
        *outer, last = place.split("/")
        inner: Any = plain
        for key in outer:
            inner = inner[key]
        inner[last] = value

    return change


def without(place: str) -> Callable[[Tensors, Plain], None]:
    def change(_: Tensors, plain: Plain) -> None:
        *outer, last = place.split("/")
        inner: Any = plain
        for key in outer:
            inner = inner[key]
        del inner[last]

    return change


def test_an_unchanged_file_that_is_signed_again_is_loaded(saved: dict[str, Path], tmp_path: Path) -> None:
    for path in saved.values():
        assert load_changed(path, lambda *_: None, tmp_path / "file").num_data == 12


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (put("noise", float("inf")), "must have a positive, finite 'noise', got inf"),
        (put("noise", -float("inf")), "must have a positive, finite 'noise', got -inf"),
        (put("noise", float("nan")), "must have a positive, finite 'noise', got nan"),
        (put("num_data", None), "'num_data' must be a number, got null"),
        (put("num_data", -1), "must have a positive, finite 'num_data'"),
        (put("temperature", 0), "must have a positive, finite 'temperature'"),
        (put("data/num_examples", -3), "positive, finite 'data.num_examples'"),
        (put("data/num_outputs", "two"), "'data.num_outputs' must be a whole number"),
        (put("layers", {}), "at least one layer"),
        (put("layers", []), "'layers' must be an object"),
        (without("layers/2"), "has no posterior of layer '2', which the network has"),
        (put("layers/9", {}), "make no sense"),
        (put("likelihood/name", 3), "'likelihood.name' must be a text"),
        (put("likelihood/settings/x", 3), "make no sense"),
        (put("prior/settings/precision", float("nan")), "prior_precision must be finite"),
        (put("prior/settings/precision", []), "make no sense"),
        (put("options/rank", "many"), "rank"),
        (put("fingerprint/0.weight", ""), "is no dtype, shape and hash"),
        (put("fingerprint", None), "'fingerprint' must be an object"),
        (without("unreached"), "'unreached' is missing"),
        (put("more", 1), "'more' is unknown"),
        (put("novelty/head", "9"), "head of the novelty"),
        (put("novelty/layers", 3), "make no sense"),
        (put("novelty/head", "0"), "classes of the novelty of .* must have 3 columns, got 5"),
        (put("prior/settings/strength", 1e308), "prior of layer '0' of .* must be finite"),
        (put("novelty/calibration/part_names", ["typicality", "tail"]), "parts of the novelty of .* must be of"),
        (put("num_data", 1e308), "must have a 'num_data' of at most"),
        (put("prior/settings/precision", {"0": 1.0}), "a value for each layer, got none for '2'"),
    ],
)
def test_absurd_metadata_are_refused(
    change: Callable[[Tensors, Plain], None], said: str, saved: dict[str, Path], tmp_path: Path
) -> None:
    with pytest.raises(infoform.BadFileError, match=said):
        load_changed(saved["inf"], change, tmp_path / "file")


def test_metadata_that_are_nested_too_deeply_are_refused(saved: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(infoform.BadFileError, match="nested too deeply"):
        load_changed(saved["inf"], put("layers", "[" * 200_000), tmp_path / "file")


@pytest.mark.parametrize("structure", ["inf", "diag", "kfac", "efb", "full"])
@pytest.mark.parametrize("how", ["drop", "nan", "shape", "dtype", "unknown"])
def test_absurd_tensors_of_every_structure_are_refused(
    structure: str, how: str, saved: dict[str, Path], tmp_path: Path
) -> None:
    names = [name for name in files.read_file(saved[structure])[0] if name.startswith("layer/0/")]
    for name in names:

        def change(tensors: Tensors, _: Plain, name: str = name) -> None:
            one = tensors.pop(name)
            if how == "nan":
                tensors[name] = torch.full(one.shape, torch.nan)
            elif how == "shape":
                tensors[name] = torch.cat([one, one])
            elif how == "dtype":
                tensors[name] = torch.zeros(one.shape, dtype=torch.complex64)
            elif how == "unknown":
                tensors[name] = one
                tensors["layer/0/other"] = one

        optional = how == "drop" and name.endswith(("core", "steps", "codes", "pairs"))
        if not optional:  # which a posterior may do without
            with pytest.raises(infoform.BadFileError):
                load_changed(saved[structure], change, tmp_path / "file")


@pytest.mark.parametrize(
    ("structure", "name"),
    [("diag", "information"), ("efb", "eigenvalues"), ("inf", "eigenvalues"), ("inf", "information")],
)
def test_negative_information_is_refused(structure: str, name: str, saved: dict[str, Path], tmp_path: Path) -> None:
    def change(tensors: Tensors, _: Plain) -> None:
        tensors[f"layer/0/{name}"] = -tensors[f"layer/0/{name}"].float() - 1

    with pytest.raises(infoform.BadFileError, match=f"'{name}' of layer '0' of .* must not be negative"):
        load_changed(saved[structure], change, tmp_path / "file")


@pytest.mark.parametrize("curvature", [False, True])
@pytest.mark.parametrize("parts", [("diagonal",), ("vectors",), ("values",), ("diagonal", "vectors", "values")])
def test_inputs_that_the_prior_needs_and_are_not_whole_are_refused(
    parts: tuple[str, ...], curvature: bool, tmp_path: Path
) -> None:
    laplace = infoform.Laplace(make_model(), "classification", prior="activation")
    data = [(torch.randn(6, 3), torch.randint(0, 2, (6,)))]
    laplace.fit(data, progress=False).save(tmp_path / "saved", curvature=curvature)

    def change(tensors: Tensors, _: Plain) -> None:
        for part in parts:
            del tensors[f"inputs/2/{part}"]

    if curvature and len(parts) == 3:  # then they are found from the curvature
        loaded = load_changed(tmp_path / "saved", change, tmp_path / "file")
        assert torch.equal(loaded.posterior().layers["2"].dense(), laplace.posterior().layers["2"].dense())
        return
    with pytest.raises(infoform.BadFileError, match=r"layer '2'|make no sense"):
        load_changed(tmp_path / "saved", change, tmp_path / "file")


@pytest.mark.parametrize("part", ["diagonal", "values"])
def test_inputs_with_negative_squares_are_refused(part: str, saved: dict[str, Path], tmp_path: Path) -> None:
    def change(tensors: Tensors, _: Plain) -> None:
        tensors[f"inputs/2/{part}"] = -tensors[f"inputs/2/{part}"]

    with pytest.raises(infoform.BadFileError, match=r"inputs of layer '2' .* squares that are not negative"):
        load_changed(saved["inf"], change, tmp_path / "file")


def test_a_regression_without_noise_is_refused(tmp_path: Path) -> None:
    laplace = infoform.Laplace(make_model(), "regression")
    laplace.fit([(torch.randn(6, 3), torch.randn(6, 2))], progress=False).save(tmp_path / "saved")
    with pytest.raises(infoform.BadFileError, match="must have the noise of its likelihood"):
        load_changed(tmp_path / "saved", put("noise", None), tmp_path / "file")


def test_a_temperature_of_a_likelihood_that_has_none_is_refused(tmp_path: Path) -> None:
    laplace = infoform.Laplace(make_model(), "regression")
    laplace.fit([(torch.randn(6, 3), torch.randn(6, 2))], progress=False).save(tmp_path / "saved")
    with pytest.raises(infoform.BadFileError, match="temperature divides logits"):
        load_changed(tmp_path / "saved", put("temperature", 2.0), tmp_path / "file")


def test_pairs_outside_of_the_basis_are_refused(saved: dict[str, Path], tmp_path: Path) -> None:
    tensors, _ = files.read_file(saved["inf"])
    kept = len(tensors["layer/0/eigenvalues"])

    def change(tensors: Tensors, _: Plain) -> None:
        tensors["layer/0/pairs"] = torch.full((2, kept), 99)

    with pytest.raises(infoform.BadFileError, match=r"'pairs' of layer '0' of .* must lie within"):
        load_changed(saved["inf"], change, tmp_path / "file")


def test_a_checkpoint_without_its_parts_is_refused(tmp_path: Path) -> None:
    data = [(torch.randn(6, 3), torch.randint(0, 2, (6,))) for _ in range(2)]
    files.write_file(tmp_path / "pass-1.safetensors", {}, {"checkpoint": {"stage": 1}, "identity": {}, "strides": {}})
    with pytest.raises(infoform.BadFileError, match=r"'checkpoint.values' is missing|make no sense"):
        infoform.Laplace(make_model(), "classification").fit(data, checkpoint=tmp_path, progress=False)


def test_json_of_records_and_trials_is_not_trusted_either(tmp_path: Path, saved: dict[str, Path]) -> None:
    laplace = infoform.load(saved["inf"], make_model())
    data = [(torch.randn(6, 3), torch.randint(0, 2, (6,)))]
    for content in ("[" * 100_000, json.dumps({"settings": {}, "trials": [{"num_data": "x"}]}), "{}", "3"):
        (tmp_path / "trials.json").write_text(content)
        with pytest.raises(ValueError, match="holds no trials of a search"):
            laplace.tune(data, path=tmp_path / "trials.json", progress=False)
