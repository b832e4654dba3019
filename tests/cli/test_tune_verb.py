"""`infoform tune` finds what the library finds, keeps its trials and goes on from them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from trees import HEIGHTS, read
from typer.testing import Result

import infoform
from infoform.cli.model_source import build_model, load_weights

Call = Callable[..., Result]
Fail = Callable[..., str]
FEW = ("--data", "trees.csv", "--trials", "3", "--low", "0.1", "--high", "1000")


def _loaded(run: Path) -> infoform.Laplace:
    model = build_model("model.py:classifier", {}).eval()
    load_weights(model, Path("classifier.pt"))
    return infoform.load(run / "posterior.safetensors", model)


def test_a_search_sets_the_best_trial(fitted: Path, succeed: Call) -> None:
    shown = succeed("tune", "run", *FEW, width=80).stdout
    result = read(fitted / "tune.json")["result"]
    assert [trial["prior_precision"] for trial in result["trials"]] == pytest.approx([0.1, 10, 1000])
    taken = next(trial for trial in result["trials"] if trial["prior_precision"] == result["prior_precision"])
    assert _loaded(fitted).prior_precision == taken["prior_precision"]
    assert f"τ = {taken['prior_precision']:.4g}, by validation nll" in shown
    succeed("tune", "run", *FEW, "--standard-errors", "0", "--restart")
    result = read(fitted / "tune.json")["result"]
    best = min(result["trials"], key=lambda trial: trial["scores"]["nll"])
    assert _loaded(fitted).prior_precision == best["prior_precision"] == result["prior_precision"]
    assert max(map(len, shown.splitlines()[:-1])) <= 80  # the last line names files


def test_the_range_of_num_data_and_other_methods(fitted: Path, succeed: Call) -> None:
    succeed("tune", "run", *FEW, "--method", "random", "--num-data", "10,1e3", "--objective", "brier")
    trials = read(fitted / "trials.json")["trials"]
    assert len({trial["num_data"] for trial in trials}) == 3
    assert all(10 <= trial["num_data"] <= 1000 for trial in trials)


def test_without_data_by_the_evidence(fitted: Path, succeed: Call) -> None:
    expected = _loaded(fitted)
    expected.tune()
    succeed("tune", "run")
    assert _loaded(fitted).prior_precision == pytest.approx(expected.prior_precision)
    assert read(fitted / "tune.json")["result"]["method"] == "evidence"
    succeed("tune", "run", "--per-layer")
    assert set(read(fitted / "tune.json")["result"]["prior_precision"]) == {"0", "2"}


def test_an_interrupted_search_goes_on(
    fitted: Path, call: Call, succeed: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    from infoform.tuning import trial_outputs
    from infoform.tuning.scorer import Scorer

    def press(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    before = _loaded(fitted).prior_precision
    with monkeypatch.context() as patch:
        patch.setattr(Scorer, "trial", press)
        interrupted = call("tune", "run", *FEW)
    assert interrupted.exit_code == 130
    assert "the same command goes on from there" in interrupted.stderr
    assert (fitted / "trials.json.outputs").exists()
    assert _loaded(fitted).prior_precision == before
    with monkeypatch.context() as patch:
        patch.setattr(trial_outputs, "outputs_under", press)  # nothing is predicted again
        succeed("tune", "run", *FEW)
    assert len(read(fitted / "tune.json")["result"]["trials"]) == 3
    assert not (fitted / "trials.json.outputs").exists()


def test_trials_of_other_data_are_not_gone_on_from(fitted: Path, succeed: Call, fail: Fail) -> None:
    succeed("tune", "run", *FEW)
    other = ("--data", "trees.parquet", *FEW[2:])
    assert "--data was trees.csv, is trees.parquet" in fail("tune", "run", *other)
    succeed("tune", "run", *other, "--restart")
    assert "--kind was linear, is mc" in fail("tune", "run", *other, "--kind", "mc")
    succeed("tune", "run")  # by evidence: the trials stay as they are
    succeed("tune", "run", *other)


def test_trials_of_the_kind_that_auto_stands_for_are_gone_on_from(fitted: Path, succeed: Call) -> None:
    succeed("tune", "run", *FEW, "--kind", "linear")
    succeed("tune", "run", *FEW)
    assert len(read(fitted / "tune.json")["result"]["trials"]) == 3


def test_restart_forgets_no_trials_before_the_first_new_one(
    fitted: Path, succeed: Call, fail: Fail, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    from infoform.tuning import trial_outputs

    succeed("tune", "run", *FEW)
    kept = [(fitted / name).read_bytes() for name in ("trials.json", "trials.options.yaml")]
    for wrong in (["--kind", "quadratic"], ["--objective", "mse"], ["--low", "9", "--high", "1"]):
        fail("tune", "run", *FEW, *wrong, "--restart", "--quiet")
    fail("tune", "run", "--data", "missing.csv", "--restart", "--quiet")

    def press(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(trial_outputs, "outputs_under", press)
        assert call("tune", "run", *FEW, "--samples", "7", "--restart", "--quiet").exit_code == 130
    assert [(fitted / name).read_bytes() for name in ("trials.json", "trials.options.yaml")] == kept
    succeed("tune", "run", *FEW, "--samples", "7", "--restart")
    assert read(fitted / "trials.json")["settings"]["samples"] == 7


def test_a_best_value_at_the_edge_is_noted(fitted: Path, succeed: Call) -> None:
    result = succeed("tune", "run", *FEW[:4], "--low", "1e-6", "--high", "1e-5")
    assert "note: the best prior_precision" in result.stderr
    assert any("search a wider one" in note for note in read(fitted / "tune.json")["notes"])


def test_regression_by_evidence_leaves_the_noise_to_the_residuals(home: Path, succeed: Call) -> None:
    succeed("fit", "run", "-m", "model.py:regressor", "-w", "regressor.ckpt", *HEIGHTS)
    before = read("run/fit.json")["result"]["noise"]
    succeed("tune", "run")
    assert read("run/tune.json")["result"]["noise"] == before
    succeed("tune", "run", "--noise", "evidence")
    assert read("run/tune.json")["result"]["noise"] != before


def test_evidence_counts_the_fitted_examples_as_so_many(fitted: Path, succeed: Call) -> None:
    succeed("tune", "run")
    before = read(fitted / "tune.json")["result"]
    succeed("tune", "run", "--num-data", "5e3,5e3")
    after = read(fitted / "tune.json")["result"]
    assert after["num_data"] == 5000.0
    assert after["prior_precision"] != before["prior_precision"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--data", "unlabelled.csv"], "has no column 'tree', which --target names"),
        (["--data", "trees.csv", "--per-layer"], "--per-layer is for tuning by evidence"),
        (["--data", "trees.csv", "--noise", "evidence"], "--noise is for tuning by evidence"),
        (["--noise", "free"], "noise must be one of 'residuals', 'evidence', got 'free'"),
        (["--data", "trees.csv", "--num-data", "10"], "--num-data must be two numbers"),
        (["--num-data", "10,100"], "--num-data without --data must be one number twice"),
        (["--data", "trees.csv", "--low", "10", "--high", "1"], "prior_precision must be a range"),
        (["--data", "trees.csv", "--objective", "mse"], "objective"),
        (["--data", "trees.csv", "--kind", "quadratic"], "kind must be one of"),
    ],
)
def test_bad_options(fitted: Path, fail: Fail, options: list[str], said: str) -> None:
    assert said in fail("tune", "run", *options, "--quiet")


def test_a_run_is_needed(home: Path, fail: Fail) -> None:
    assert fail("tune", "nowhere") == "there is no folder 'nowhere'; make a run by 'infoform fit nowhere ...'."
    Path("empty").mkdir()
    assert "holds no posterior" in fail("tune", "empty")


def test_a_damaged_run(fitted: Path, fail: Fail) -> None:
    (fitted / "fit.json").write_text("{}")
    assert "is damaged" in fail("tune", "run")


def test_another_network_than_the_fits(fitted: Path, fail: Fail) -> None:
    said = fail("tune", "run", "--model", "model.py:regressor", "--weights", "regressor.ckpt")
    assert said.startswith("the file belongs to another model")


def test_a_temperature_is_searched_and_told(fitted: Path, succeed: Call, fail: Fail) -> None:
    shown = succeed("tune", "run", *FEW).stdout
    result = read(fitted / "tune.json")["result"]
    taken = next(trial for trial in result["trials"] if trial["prior_precision"] == result["prior_precision"])
    assert _loaded(fitted).temperature == taken["temperature"] == result["temperature"]
    assert result["temperature"] != 1
    assert f"temperature T = {result['temperature']:.4g}." in shown
    assert "--temperature was not given, is False" in fail("tune", "run", *FEW, "--no-temperature")


def test_a_regression_has_no_temperature(home: Path, succeed: Call, fail: Fail) -> None:
    succeed("fit", "run", "-m", "model.py:regressor", "-w", "regressor.ckpt", *HEIGHTS)
    data = ("--data", "trees.csv", "--trials", "3")
    assert "--temperature is for logits, and the outputs of regression are none" in fail(
        "tune", "run", *data, "--temperature"
    )
