"""`infoform fit` gives the posterior that the library gives, and refuses what it cannot take in one sentence."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file
from torch import nn
from trees import HEIGHTS, NAMES, NETWORK, TREES, read
from typer.testing import Result

import infoform
from flat import flat_laplace
from infoform.common.provenance import commit
from infoform.posteriors import STRUCTURES, InfPosterior
from infoform.predicting.kinds import LAST

Call = Callable[..., Result]
Fail = Callable[..., str]


def _network() -> nn.Sequential:
    model = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 3))
    model.load_state_dict(torch.load("classifier.pt", weights_only=True))
    return model.eval()


def _table() -> tuple[torch.Tensor, torch.Tensor]:
    import pandas

    frame = pandas.read_csv("trees.csv")
    labels = torch.tensor([NAMES.index(name) for name in frame["tree"]])
    return torch.tensor(frame[["a", "b", "c"]].to_numpy(), dtype=torch.float32), labels


def _same_posterior(path: Path, other: infoform.Laplace) -> None:
    mine = infoform.load(path, other.model)
    assert mine.settings.flat() == other.settings.flat()
    for name, layer in mine.posterior().layers.items():
        torch.testing.assert_close(layer.dense(), other.posterior().layers[name].dense())


def test_the_posterior_is_the_librarys(fitted: Path) -> None:
    x, labels = _table()
    expected = infoform.Laplace(_network(), "classification").fit([(x, labels)], progress=False)
    _same_posterior(fitted / "posterior.safetensors", expected)


def test_a_structure_by_layer_comes_from_the_command_line_or_from_a_file(home: Path, succeed: Call) -> None:
    succeed("fit", "run", *NETWORK, *TREES, "--structure", "{'0': full, '*': {structure: inf, rank: 7}}")
    x, labels = _table()
    parts: dict[str, str | infoform.Structure] = {"0": "full", "*": infoform.Inf(rank=7)}
    expected = infoform.Laplace(_network(), "classification", structure=parts).fit([(x, labels)], progress=False)
    loaded = infoform.load(Path("run") / "posterior.safetensors", expected.model)
    for name, layer in loaded.posterior().layers.items():
        torch.testing.assert_close(layer.dense(), expected.posterior().layers[name].dense())
    Path("options.yaml").write_text("structure:\n  '0': full\n  '*': diag\n", encoding="utf-8")
    succeed("fit", "other", *NETWORK, *TREES, "--config", "options.yaml")
    other = infoform.load(Path("other") / "posterior.safetensors", expected.model)
    assert {row.layer: row.structure for row in other.coverage() if row.covered} == {"0": "full", "2": "diag"}
    succeed("plan", *NETWORK, "--structure", "{'0': full, '*': diag}")


def test_options_reach_the_library(home: Path, succeed: Call) -> None:
    given = {"structure": "efb", "prior": "isotropic", "prior-precision": 7, "fisher": "exact", "layers": 2, "seed": 3}
    options = [part for name, value in given.items() for part in (f"--{name}", value)]
    succeed("fit", "run", *NETWORK, *TREES, *options, "--batch-size", 16)
    x, labels = _table()
    expected = flat_laplace(
        _network(), "classification", structure="efb", prior="isotropic", fisher="exact", layers=["2"], seed=3
    )
    expected.fit(list(zip(x.split(16), labels.split(16), strict=True)), progress=False)
    expected.prior_precision = 7.0
    _same_posterior(Path("run/posterior.safetensors"), expected)


def test_the_last_layer_is_found(home: Path, succeed: Call) -> None:
    succeed("fit", "run", *NETWORK, *TREES, "--layers", "last")
    x, labels = _table()
    expected = infoform.Laplace(_network(), "classification", layers="last").fit([(x, labels)], progress=False)
    _same_posterior(Path("run/posterior.safetensors"), expected)
    assert [layer["name"] for layer in read("run/fit.json")["result"]["layers"]] == ["2"]
    succeed("tune", "run", "--data", "trees.csv", "--trials", 3)
    for verb in ("predict", "evaluate"):
        succeed(verb, "run", "--data", "trees.csv")
        result = read(f"run/{verb}.json")["result"]
        assert (result["kind"], result["reason"]) == ("linear", LAST)


@pytest.mark.parametrize("options", [(), ("--structure", "diag", "--prior", "activation")])
def test_the_strength_of_the_prior_reaches_the_library(home: Path, succeed: Call, options: tuple[str, ...]) -> None:
    succeed("fit", "run", *NETWORK, *TREES, *options, "--prior-strength", 4, "--prior-precision", 2)
    x, labels = _table()
    prior = infoform.Activation(2.0, strength=4.0)
    structure = "diag" if options else "inf"
    expected = infoform.Laplace(_network(), "classification", structure=structure, prior=prior)
    _same_posterior(Path("run/posterior.safetensors"), expected.fit([(x, labels)], progress=False))


def test_the_table_shows_every_layer_within_the_width(home: Path, succeed: Call) -> None:
    shown = succeed("fit", "run", *NETWORK, *TREES, "--quiet", width=80).stdout
    assert "│ 0     │   5×4 │" in shown
    assert "40 examples, 4 parameters with a posterior, 0 held fixed" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_the_json_says_what_was_done(fitted: Path) -> None:
    record = read(fitted / "fit.json")
    assert record["verb"] == "fit"
    assert record["options"]["target"] == "tree"
    assert record["versions"]["torch"] == torch.__version__
    assert record["seconds"] > 0
    result = record["result"]
    assert result["data"]["facts"] == {"columns": ["a", "b", "c"], "classes": list(NAMES)}
    assert result["num_data"] == 40
    assert [layer["name"] for layer in result["layers"]] == ["0", "2"]
    assert record["commit"] == commit()
    assert {row["parameter"] for row in result["coverage"]} == {"0.weight", "0.bias", "2.weight", "2.bias"}


def test_layers_tell_their_spectrum_and_its_price(fitted: Path) -> None:
    result = read(fitted / "fit.json")["result"]
    laplace = infoform.load(fitted / "posterior.safetensors", _network())
    for layer in result["layers"]:
        told = layer["spectrum"]
        eigen = laplace.curvature[layer["name"]].bases["gradient"]
        values = eigen.eigenvalues.double().flatten().sort(descending=True).values
        places = torch.tensor(told["rank"]) - 1
        assert told["rank"][0] == 1
        assert told["rank"][-1] == len(values)
        torch.testing.assert_close(torch.tensor(told["eigenvalue"], dtype=torch.float64), values[places])
        kept = torch.tensor(told["kept"], dtype=torch.float64)
        torch.testing.assert_close(kept, values.cumsum(0)[places] / values.sum(), rtol=1e-6, atol=0)
        for rank, nbytes in zip(told["rank"], told["nbytes"], strict=True):
            if rank in (1, len(values)):
                assert nbytes == laplace.posterior(rank=rank).layers[layer["name"]].nbytes
    together = result["by_rank"]
    for place in (0, 7, -1):
        at = laplace.posterior(rank=together["rank"][place])
        assert together["nbytes"][place] == at.nbytes
        energy = sum(
            float(layer.eigenvalues.double().sum()) for layer in at.layers.values() if isinstance(layer, InfPosterior)
        )
        assert together["kept"][place] == pytest.approx(energy / sum(layer["energy"] for layer in result["layers"]))


@pytest.mark.parametrize("structure", ["inf", "diag", "kfac", "efb-paper"])
def test_memory_is_told_for_every_structure(home: Path, succeed: Call, structure: str) -> None:
    succeed("fit", "run", *NETWORK, *TREES, "--structure", structure, "--prior", "isotropic", "--quiet")
    result = read("run/fit.json")["result"]
    told = {one["structure"]: one["bytes"] for one in result["structures"]}
    assert set(told) == {*STRUCTURES, structure} - {"by-layer"}
    assert [one["structure"] for one in result["structures"] if one["own"]] == [structure]
    assert told["diag"] == 4 * sum(
        layer.mean.numel() for layer in infoform.Laplace(_network(), "classification").layers.values()
    )
    laplace = infoform.load("run/posterior.safetensors", _network())
    assert told[structure] == laplace.posterior().nbytes == result["total_bytes"]
    assert result["weight_bytes"] == 4 * sum(p.numel() for p in _network().parameters())
    if structure == "diag":
        assert all(layer["spectrum"] is None for layer in result["layers"])


def test_a_fit_that_was_stopped_goes_on(home: Path, call: Call, succeed: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    from infoform.fitting import checkpoint

    succeed("fit", "whole", *NETWORK, *TREES, "--batch-size", 10, "--quiet")
    original, seen = checkpoint.Checkpoint.stop_if_asked, []

    def stop(self: checkpoint.Checkpoint) -> None:
        seen.append(self)
        self._asked = len(seen) == 3
        original(self)

    monkeypatch.setattr(checkpoint.Checkpoint, "stop_if_asked", stop)
    arguments = ("fit", "run", *NETWORK, *TREES, "--batch-size", 10, "--checkpoint", "part", "--quiet")
    stopped = call(*arguments)
    assert stopped.exit_code == 130
    assert "the fit so far is in 'part'; the same command goes on from there." in stopped.stderr
    assert not Path("run").exists()
    succeed(*arguments)
    assert not Path("part").exists()
    for tensors in zip(*(load_file(f"{run}/posterior.safetensors").items() for run in ("run", "whole")), strict=True):
        (name, one), (other_name, other) = tensors
        assert name == other_name
        assert torch.equal(one, other)


@pytest.mark.parametrize(
    ("weights", "factory"), [("classifier.safetensors", "model:classifier"), ("classifier.pt", "model.py:classifier")]
)
def test_weights_and_factories_of_both_kinds(home: Path, succeed: Call, weights: str, factory: str) -> None:
    succeed("fit", "run", "--model", factory, "--weights", weights, *TREES, "--quiet")
    expected = infoform.Laplace(_network(), "classification").fit([_table()], progress=False)
    _same_posterior(Path("run/posterior.safetensors"), expected)


def test_nested_weights_of_a_wrapped_network(home: Path, succeed: Call) -> None:
    succeed("fit", "run", "-m", "model.py:regressor", "-w", "regressor.ckpt", *HEIGHTS, "--noise", 0.5)
    assert read("run/fit.json")["result"]["noise"] == 0.5


def test_arguments_for_the_factory(home: Path, fail: Fail) -> None:
    said = fail("fit", "run", *NETWORK, "--model-arg", "width=7", *TREES)
    assert "'0.weight' has shape 5×3, not 7×3" in said


def test_a_budget_chooses_ranks(home: Path, succeed: Call) -> None:
    succeed("fit", "run", *NETWORK, *TREES, "--memory", "600B", "--prior", "isotropic", "--quiet")
    result = read("run/fit.json")["result"]
    assert result["total_bytes"] <= 600
    assert result["kept"] < 1


def test_a_fit_within_a_budget_is_the_same(home: Path, succeed: Call) -> None:
    for run, more in (("whole", []), ("parts", ["--max-memory", "4MB", "--offload", "statistics"])):
        succeed("fit", run, *NETWORK, *TREES, *more, "--quiet")
    whole, parts = (load_file(f"{run}/posterior.safetensors") for run in ("whole", "parts"))
    assert whole.keys() == parts.keys()
    assert all(torch.equal(whole[key], parts[key]) for key in whole)


def test_an_update_adds_data(fitted: Path, succeed: Call) -> None:
    succeed("fit", "run", "--update", "--data", "more.csv")
    x, labels = _table()
    expected = infoform.Laplace(_network(), "classification").fit([(x, labels)], progress=False)
    expected.fit([(x[:25], labels[:25])], update=True, progress=False)
    _same_posterior(fitted / "posterior.safetensors", expected)
    assert read(fitted / "update.json")["result"]["num_data"] == 65
    assert read(fitted / "fit.json")["options"]["target"] == "tree"  # how to read data is still known


def test_another_fit_forgets_the_update_of_the_one_before(fitted: Path, succeed: Call) -> None:
    succeed("fit", "run", "--update", "--data", "more.csv", "--quiet")
    succeed("fit", "run", *NETWORK, *TREES, "--force", "--quiet")
    assert not list(fitted.glob("update.*"))  # a report would show its numbers


def test_an_update_needs_the_curvature(home: Path, succeed: Call, fail: Fail) -> None:
    succeed("fit", "run", *NETWORK, *TREES, "--no-curvature")
    assert "fit again with --keep-curvature" in fail("fit", "run", "--update", "--data", "trees.csv")


def test_a_posterior_is_not_replaced_unless_asked(fitted: Path, succeed: Call, fail: Fail) -> None:
    assert "--force" in fail("fit", "run", *NETWORK, *TREES)
    (fitted / "evaluate.json").write_text("{}")
    succeed("fit", "run", *NETWORK, *TREES, "--force")
    assert not (fitted / "evaluate.json").exists()  # it was another posterior's


def test_saved_options_repeat_the_run(fitted: Path, succeed: Call) -> None:
    saved = fitted / "fit.options.yaml"
    assert yaml.safe_load(saved.read_text())["ignore"] == "id,class,height"
    succeed("fit", "again", "--config", saved)
    _same_posterior(fitted / "posterior.safetensors", infoform.load("again/posterior.safetensors", _network()))
    options = [yaml.safe_load(path.read_text()) for path in (saved, Path("again/fit.options.yaml"))]
    assert options[0] | {"run": "again"} == options[1] | {"run": "again"}


def test_the_command_line_overrules_the_file(home: Path, succeed: Call) -> None:
    Path("options.yaml").write_text(
        "model: model.py:classifier\nrank: 3\nlayers: ['2']\ntarget: class\nignore: id,tree,height\n"
    )
    succeed("fit", "run", "--config", "options.yaml", "-d", "trees.csv", "--rank", 2, "-w", "classifier.pt")
    settings = read("run/fit.json")["result"]["settings"]
    assert settings["rank"] == 2
    assert settings["layers"] == ["2"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("rnk: 3", "has the option 'rnk', which 'infoform fit' does not take"),
        ("- 3", "must hold lines of 'option: value', got a list"),
        ("a: [", "is no YAML file"),
        ("batch-size: many", "--batch-size"),
    ],
)
def test_bad_files_of_options(home: Path, fail: Fail, call: Call, content: str, said: str) -> None:
    Path("options.yaml").write_text(content)
    result = call("fit", "run", "--config", "options.yaml", *NETWORK, *TREES)
    assert result.exit_code in (1, 2)
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_missing_file_of_options(fail: Fail, home: Path) -> None:
    assert "there is no file 'none.yaml'" in fail("fit", "run", "--config", "none.yaml", *TREES)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("model.py", "must be file.py:name or package.module:name"),
        ("missing.py:net", "there is no file 'missing.py'"),
        ("no_such_package:net", "there is no module 'no_such_package'"),
        ("model.py:clasifier", "has no 'clasifier', which --model names; it has classifier, regressor"),
        ("model.py:broken", "fails: NameError: name 'undefined_name' is not defined, line 18 of model.py"),
        ("model.py:no_network", "must give a torch.nn.Module, got a int"),
        ("model.py:not_callable", "must name a function or class that gives a network, got a int"),
        ("syntax.py:net", "SyntaxError"),
        ("raises.py:net", "fails when imported: ZeroDivisionError: division by zero, line 1 of raises.py"),
    ],
)
def test_bad_models(home: Path, fail: Fail, model: str, said: str) -> None:
    Path("syntax.py").write_text("def net(:\n")
    Path("raises.py").write_text("1 / 0\n")
    assert said in fail("fit", "run", "--model", model, *TREES)
    assert not Path("run").exists()


def test_a_model_is_needed(home: Path, fail: Fail) -> None:
    assert "give --model" in fail("fit", "run", *TREES)


def test_weights_that_the_factory_gives_are_said_to_be_so(home: Path, succeed: Call) -> None:
    assert "note: no --weights given" in succeed("fit", "run", "-m", "model.py:classifier", *TREES).stderr


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        ("missing.pt", "there is no file"),
        ("regressor.ckpt", "do not fit the network"),
        ("text.pt", "holds something else than tensors, or is broken"),
        ("text.safetensors", "is truncated or no safetensors file"),
        ("number.pt", "holds no state_dict"),
        ("whole.pt", "holds something else than tensors"),
        ("codes.pt", "'0.weight' holds int8 numbers, and the network's are float32"),
    ],
)
def test_bad_weights(home: Path, fail: Fail, weights: str, said: str) -> None:
    Path("text.pt").write_text("hello")
    Path("text.safetensors").write_text("hello")
    torch.save(3, "number.pt")
    torch.save(_network(), "whole.pt")  # a pickled network could run code
    torch.save({name: (100 * one).to(torch.int8) for name, one in _network().state_dict().items()}, "codes.pt")
    assert said in fail("fit", "run", "-m", "model.py:classifier", "-w", weights, *TREES)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--likelihood", "cauchy"], "likelihood must be one of 'classification'"),
        (["--structure", "kfca"], "structure must be one of"),
        (["--rank", "many"], "--rank must be a number of eigenpairs"),
        (["--rank", "0"], "rank must be"),
        (["--noise", "0.1"], "--noise is for regression"),
        (["--layers", "head.*"], "'head.*' matches none"),
        (["--device", "abacus"], "--device must be auto, cpu, cuda or mps, got 'abacus'"),
        (["--memory", "lots"], "memory must be"),
        (["--max-memory", "1kB"], "max_memory must be at least"),
        (["--prior-precision", "-1"], "prior_precision"),
        (["--prior-strength", "-1"], "the strength of the activation prior must be finite and not negative"),
        (["--prior-strength", "3", "--structure", "diag"], "got the isotropic one; add --prior activation"),
    ],
)
def test_bad_options(home: Path, fail: Fail, options: list[str], said: str) -> None:
    assert said in fail("fit", "run", *NETWORK, *TREES, *options, "--quiet")


def test_a_folder_that_cannot_be_made(home: Path, fail: Fail) -> None:
    Path("file").write_text("")
    assert "the folder 'file/run' cannot be made" in fail("fit", "file/run", *NETWORK, *TREES)


def test_json_on_the_standard_output_is_json_alone(home: Path, succeed: Call) -> None:
    import json

    result = succeed("fit", "run", *NETWORK, *TREES, "--json", "-")
    assert json.loads(result.stdout) == read("run/fit.json")
    assert "Posterior (inf" in result.stderr


def test_the_networks_own_scores_and_the_order_of_classes_are_told(home: Path, succeed: Call) -> None:
    shown = succeed("fit", "run", *NETWORK, *TREES, "--quiet").stdout
    x, labels = _table()
    with torch.no_grad():
        accuracy = float((_network()(x).argmax(1) == labels).double().mean())
    assert read("run/fit.json")["result"]["training_scores"]["accuracy"] == pytest.approx(accuracy)
    assert f"the network alone on these data: accuracy {accuracy:.1%}, nll" in shown
    assert "classes by output: 0 ash, 1 birch, 2 cedar." in shown


def test_classes_in_another_order_and_missing_weights_are_noted(home: Path, succeed: Call) -> None:
    model = _network()
    with torch.no_grad():  # the largest of three inputs tells the class
        for layer, shape in ((model[0], (5, 3)), (model[2], (3, 5))):
            assert isinstance(layer, nn.Linear)
            layer.weight.copy_(4 * torch.eye(5)[: shape[0], : shape[1]])
            layer.bias.zero_()
    torch.save(model.state_dict(), "classifier.pt")
    x = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    np.savez("largest.npz", x=x.numpy(), y=np.array(NAMES)[x.argmax(1).numpy()])
    largest = (*NETWORK, "--data", "largest.npz", "--quiet")
    assert succeed("fit", "good", *largest).stderr == ""
    told = succeed("fit", "a", *largest, "--classes", "cedar,birch,ash").stderr
    assert "if the classes stood in the order ash,birch,cedar: the network was trained with that order" in told
    assert "See --classes." in told
    told = succeed("fit", "b", *NETWORK[:2], *TREES, "--quiet").stderr
    assert "no --weights given: the weights are those that the factory gives" in told


def test_parameters_without_a_posterior_are_told_in_the_words_of_the_command(home: Path, succeed: Call) -> None:
    Path("normed.py").write_text(
        "from torch import nn\n\ndef net():\n    return nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 3))\n"
    )
    told = ("-m", "normed.py:net", *TREES, "--quiet")
    assert ": held fixed by default; --layers all gives it an exact diagonal\n" in succeed("fit", "a", *told).stdout
    assert ": held fixed, not selected by --layers\n" in succeed("fit", "b", *told, "--layers", "1").stdout
