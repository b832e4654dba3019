"""The demo in a quick setting: what must hold whatever the seed, and the files it writes."""

import json
from pathlib import Path

import pytest
import torch

from infoform.demo import __main__ as command
from infoform.demo.digits import POSTERIORS, DigitsResult, DigitsSettings, run_digits
from infoform.demo.figures import reliability
from infoform.demo.toy import ToyResult, ToySettings, run_toy

QUICK_DIGITS = DigitsSettings(pixel_noise=0.02, epochs=40, samples=10, prior_precisions=(3.0, 1000.0))
QUICK_TOY = ToySettings(steps=1500)


@pytest.fixture(scope="module")
def digits() -> DigitsResult:
    return run_digits(QUICK_DIGITS)


@pytest.fixture(scope="module")
def toy() -> ToyResult:
    return run_toy(QUICK_TOY)


def test_the_plain_network_has_learned_the_digits(digits: DigitsResult) -> None:
    assert digits.rows["plain"].accuracy > 0.9


def test_every_row_is_finite_and_keeps_the_accuracy(digits: DigitsResult) -> None:
    assert list(digits.rows) == ["plain", *POSTERIORS]
    for name, row in digits.rows.items():
        assert torch.tensor([row.accuracy, row.nll, row.ece]).isfinite().all()
        assert row.accuracy > digits.rows["plain"].accuracy - 0.05
        torch.testing.assert_close(digits.probs[name].sum(1), torch.ones(len(digits.labels)))


@pytest.mark.parametrize("other", ["diag", "kfac", "efb-paper", "inf-paper"])
def test_inf_has_the_smallest_off_diagonal_error_in_every_layer(digits: DigitsResult, other: str) -> None:
    ours, theirs = digits.rows["inf"].off_diagonal, digits.rows[other].off_diagonal
    assert ours is not None
    assert theirs is not None
    assert ours.keys() == theirs.keys() == {"conv1", "conv2", "linear1", "linear2"}
    assert all(ours[layer] < theirs[layer] for layer in ours)


def test_the_diagonal_alone_has_no_off_diagonal(digits: DigitsResult) -> None:
    errors = digits.rows["diag"].off_diagonal
    assert errors is not None
    assert list(errors.values()) == pytest.approx([1.0] * 4)


def test_the_reliability_diagram_shows_the_calibration_error_of_the_table(digits: DigitsResult) -> None:
    for name in ("plain", "inf"):
        confidence, accuracy, share = reliability(digits.probs[name], digits.labels, QUICK_DIGITS.calibration_bins)
        assert share.sum() == pytest.approx(1)
        assert (share * abs(accuracy - confidence)).sum() == pytest.approx(digits.rows[name].ece, abs=1e-4)


def test_the_toy_network_fits_its_data(toy: ToyResult) -> None:
    inside = toy.grid.abs() < 3.5
    assert (toy.mean - toy.truth)[inside].square().mean().sqrt() < QUICK_TOY.noise
    assert toy.noise == pytest.approx(QUICK_TOY.noise, rel=0.3)


@pytest.mark.parametrize("structure", ["inf", "full"])
def test_toy_uncertainty_grows_beyond_the_data(toy: ToyResult, structure: str) -> None:
    inside, outside = toy.grid.abs() < 3, toy.grid.abs() > 5
    deviation = toy.deviations[structure]
    assert deviation.isfinite().all()
    assert (deviation >= toy.noise).all()
    assert deviation[outside].mean() > 1.5 * deviation[inside].mean()


def test_toy_correlations_widen_the_extrapolation(toy: ToyResult) -> None:
    outside = toy.grid.abs() > 5
    means = [float(toy.deviations[name][outside].mean()) for name in ("diag", "inf", "full")]
    assert means == sorted(means)


def test_the_run_writes_pictures_and_results(
    digits: DigitsResult, toy: ToyResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "run_digits", lambda settings: digits)
    monkeypatch.setattr(command, "run_toy", lambda settings: toy)
    command.run(QUICK_DIGITS, QUICK_TOY, out=tmp_path)
    results = json.loads((tmp_path / "results.json").read_text())
    assert {"digits", "toy", "settings", "seed", "versions", "commit", "seconds"} <= results.keys()
    assert results["digits"]["inf"]["nll"] == digits.rows["inf"].nll
    for name in ("reliability.png", "toy_regression.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


def test_the_command_takes_folder_and_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(command, "run", lambda *settings, out: calls.append((*settings, out)))
    command.main(["--out", str(tmp_path / "new" / "folder"), "--seed", "3"])
    assert calls == [(DigitsSettings(seed=3), ToySettings(seed=3), tmp_path / "new" / "folder")]
    assert calls[0][-1].is_dir()


def test_a_folder_that_cannot_be_made_ends_the_command_with_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SystemExit, match="--out must be a folder that can be written to"):
        command.main(["--out", str(tmp_path / "file" / "below")])


def test_missing_packages_are_named_before_anything_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "find_spec", lambda module: None if module == "sklearn" else module)
    with pytest.raises(SystemExit, match=r"needs scikit-learn, not installed here: pip install 'infoform\[demo\]'"):
        command.main(["--out", str(tmp_path)])
