"""One new file and one line in a table: what docs/design.md promises, done outside the package and used end to end."""

import json
import sys
from pathlib import Path

import pytest
import torch
import toy_source
from toy_layer import Affine, AffineRule
from toy_likelihood import Counts
from toy_prior import Twice
from toy_structure import Scaled
from typer.testing import CliRunner

import infoform
from infoform.cli import app
from infoform.cli.sources import DATA_KINDS, DataKind
from infoform.experiments import EXPERIMENTS
from infoform.layers import LAYERS
from infoform.likelihoods import LIKELIHOODS
from infoform.posteriors import STRUCTURES
from infoform.priors import PRIORS

MODEL = """
import torch
from toy_layer import Affine

def net():
    torch.manual_seed(0)
    return torch.nn.Sequential(Affine(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
"""
pytestmark = pytest.mark.filterwarnings("ignore:the best prior_precision")


@pytest.fixture(autouse=True)
def one_line_each(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(LAYERS, "toy-layer", AffineRule())
    monkeypatch.setitem(STRUCTURES, "toy-structure", Scaled)
    monkeypatch.setitem(LIKELIHOODS, "toy-counts", Counts)
    monkeypatch.setitem(PRIORS, "toy-prior", Twice)
    monkeypatch.setitem(DATA_KINDS, "toy", DataKind(toy_source.takes, toy_source.read, "a .lines file"))
    monkeypatch.setitem(EXPERIMENTS, "toy-experiment", "toy_experiment")
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text(MODEL)
    torch.manual_seed(1)
    rows = torch.cat([torch.randn(40, 3), torch.poisson(torch.full((40, 1), 2.0))], dim=1)
    for name, part in (("train", rows[:30]), ("validation", rows[30:])):
        Path(f"{name}.lines").write_text("\n".join(" ".join(map(str, row)) for row in part.tolist()))


def make_model() -> torch.nn.Sequential:
    torch.manual_seed(0)
    return torch.nn.Sequential(Affine(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)).double()


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 0, result.output
    return result.output


def test_a_layer_type_a_structure_a_likelihood_and_a_prior_are_used_by_name(tmp_path: Path) -> None:
    model = make_model()
    x = torch.randn(30, 3, dtype=torch.float64)
    y = torch.poisson(torch.full((30, 1), 2.0, dtype=torch.float64))
    laplace = infoform.Laplace(model, "toy-counts", structure="toy-structure", prior="toy-prior")
    assert {row.parameter for row in laplace.coverage() if row.covered} == {"0.slope", "0.shift", "2.weight", "2.bias"}
    laplace.fit([(x, y)], progress=False)
    exact = infoform.Laplace(model, "toy-counts", structure="diag", prior="isotropic").fit([(x, y)], progress=False)
    f = exact.curvature["0"].diagonal
    assert f is not None
    torch.testing.assert_close(laplace.posterior().layers["0"].diagonal(), 30 * 0.5 * f + 2)
    laplace.tune([(x, y)], trials=5, progress=False)
    assert laplace.prior.name == "toy-prior"
    laplace.tune()
    prediction = laplace.predict(x)
    assert prediction.mean is not None
    torch.testing.assert_close(prediction.plain, model(x).detach())
    for kind in ("mc", "linear-mc"):
        assert bool(laplace.predict(x, kind=kind, samples=5).value.isfinite().all())
    laplace.save(tmp_path / "posterior.safetensors")
    loaded = infoform.load(tmp_path / "posterior.safetensors", model)
    assert (loaded.structure, loaded.prior.name, loaded.likelihood.name) == (Scaled(), "toy-prior", "toy-counts")
    assert torch.equal(loaded.predict(x).value, prediction.value)
    before = infoform.plan(model, structure="toy-structure", example=x)
    assert before.total_bytes == infoform.plan(laplace).total_bytes == laplace.posterior().nbytes
    assert before.peak_bytes is not None


def test_an_object_needs_no_line_but_for_loading(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delitem(STRUCTURES, "toy-structure")
    model, structure = make_model(), Scaled(factor=0.25)
    x = torch.randn(30, 3, dtype=torch.float64)
    data = [(x, torch.randn(30, 1, dtype=torch.float64))]
    laplace = infoform.Laplace(model, "regression", structure=structure).fit(data, progress=False)
    laplace.tune(data, trials=3, progress=False)
    assert infoform.plan(model, structure=structure).total_bytes == laplace.posterior().nbytes
    laplace.save(tmp_path / "posterior.safetensors")
    with pytest.raises(ValueError, match="with the structure 'toy-structure', not one of infoform's; pass structure="):
        infoform.load(tmp_path / "posterior.safetensors", model)
    loaded = infoform.load(tmp_path / "posterior.safetensors", model, structure=structure)
    assert torch.equal(loaded.predict(x).value, laplace.predict(x).value)


def test_the_command_knows_them_and_the_new_kind_of_data(tmp_path: Path) -> None:
    network = ("--model", "model.py:net")
    own = ("--likelihood", "toy-counts", "--structure", "toy-structure", "--prior", "toy-prior")
    run("fit", "run", *network, "--data", "train.lines", *own, "--keep-curvature", "--quiet")
    told = json.loads((tmp_path / "run" / "fit.json").read_text())["result"]
    assert (told["likelihood"], told["prior"], told["settings"]["structure"]) == (
        "toy-counts",
        "toy-prior",
        "toy-structure",
    )
    assert "toy-structure" in {one["structure"] for one in told["structures"]}
    run("tune", "run", "--data", "validation.lines", "--trials", "3", "--quiet")
    run("evaluate", "run", "--data", "validation.lines", "--quiet")
    run("predict", "run", "--data", "validation.lines", "--out", "predictions.csv", "--quiet")
    assert len(Path("predictions.csv").read_text().splitlines()) == 11
    assert "toy-structure" in run("plan", *network, "--structure", "toy-structure", "--shape", "3")
    assert "toy-structure" in run("plan", "run", "--quiet")


def test_an_experiment_is_run_and_has_a_page(tmp_path: Path) -> None:
    run("reproduce", "toy-experiment", "--out", "results", "--quiet")
    found = json.loads((tmp_path / "results" / "toy-experiment.json").read_text())
    assert found["pieces"] == {"1": {"doubled": 2}, "2": {"doubled": 4}}
    run("reproduce", "toy-experiment", "--out", "results", "--page", "docs")
    assert "The sum is 6." in (tmp_path / "docs" / "experiments" / "toy-experiment.md").read_text()
    sys.modules.pop("toy_experiment", None)
