"""The demo in a quick setting: what must hold whatever the seed, and the files it writes."""

import json
import warnings
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from benchmarks.answers.temperature import best_temperature
from torch.nn import functional

from infoform.demo import __main__ as command
from infoform.demo.answers import AnswersResult, entropy, histogram, perceptron, run_answers
from infoform.demo.digits import (
    POSTERIORS,
    DigitsResult,
    DigitsSettings,
    load_digits_parts,
    run_digits,
    trained,
)
from infoform.demo.figures import reliability
from infoform.demo.front import HEIGHT, PANEL, PANELS, WIDTH, draw_front
from infoform.demo.photographs import photograph_pieces
from infoform.demo.toy import ToyResult, ToySettings, run_toy

QUICK_DIGITS = DigitsSettings(pixel_noise=0.02, epochs=40, samples=10, hidden=16, unknown_examples=60)
QUICK_TOY = ToySettings(steps=1500)


@pytest.fixture(scope="module")
def digits() -> DigitsResult:
    with warnings.catch_warnings():  # a network that is right about nearly all may want no posterior, and is told so
        warnings.simplefilter("ignore", UserWarning)
        return run_digits(QUICK_DIGITS)


@pytest.fixture(scope="module")
def answers() -> AnswersResult:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return run_answers(QUICK_DIGITS)


@pytest.fixture(scope="module")
def toy() -> ToyResult:
    return run_toy(QUICK_TOY)


def test_the_plain_network_has_learned_the_digits(digits: DigitsResult) -> None:
    assert digits.rows["plain"].accuracy > 0.9


def test_every_row_is_finite_and_keeps_the_accuracy(digits: DigitsResult) -> None:
    assert list(digits.rows) == ["plain", "temperature", *POSTERIORS]
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


def test_the_first_table_has_what_people_compare(answers: AnswersResult) -> None:
    assert list(answers.rows) == ["plain", "temperature", "last layer", "ours"]
    plain = answers.rows["plain"]
    assert plain.accuracy > 0.85
    assert plain.forwards == 1
    assert answers.rows["temperature"].accuracy == plain.accuracy
    for row in answers.rows.values():
        assert torch.tensor([row.nll, row.ece, row.auroc, row.forwards]).isfinite().all()
        assert row.accuracy > plain.accuracy - 0.05
        assert sum(row.histograms["known"]) == answers.test_examples
        assert sum(row.histograms["unknown"]) == QUICK_DIGITS.unknown_examples


def test_the_temperature_alone_is_the_closed_reference(answers: AnswersResult) -> None:
    train, validation, test = load_digits_parts(QUICK_DIGITS)
    settings = QUICK_DIGITS
    model = trained(lambda: perceptron(settings.hidden), train, epochs=settings.hidden_epochs, seed=settings.seed)
    with torch.no_grad():
        reference = best_temperature(model(validation.images), validation.labels)
        nll = functional.cross_entropy(model(test.images) / reference, test.labels)
    assert answers.rows["temperature"].temperature == pytest.approx(reference, rel=1e-2)
    assert answers.rows["temperature"].nll == pytest.approx(float(nll), rel=1e-2)


def test_pieces_of_photographs_have_the_range_of_digits() -> None:
    pieces = photograph_pieces(200, noise=0.0, seed=0)
    assert pieces.shape == (200, 1, 8, 8)
    assert float(pieces.min()) == 0
    assert float(pieces.max()) <= 1
    assert (pieces.amax((1, 2, 3)) > 0.999).double().mean() > 0.5  # all but faint ones, the sky, are stretched
    assert torch.equal(pieces, photograph_pieces(200, noise=0.0, seed=0))


def test_entropies_of_equal_probabilities_are_in_the_last_bin() -> None:
    counts = histogram(entropy(torch.full((3, 4), 0.25)), 4)
    assert counts[-1] == sum(counts) == 3
    assert float(entropy(torch.tensor([[1.0, 0.0]]))) == 0


def test_the_bars_of_the_front_picture_lie_inside_it_and_each_histogram_adds_up(answers: AnswersResult) -> None:
    root = ElementTree.fromstring(draw_front(answers.rows))
    heights: dict[str, float] = {"known bars": 0.0, "unknown bars": 0.0}
    for bar in root.iter("{http://www.w3.org/2000/svg}rect"):
        if (name := bar.get("class")) in heights:
            heights[str(name)] += float(bar.get("height", "nan"))
            assert 0 <= float(bar.get("x", "nan")) <= WIDTH
            assert 0 <= float(bar.get("y", "nan")) <= HEIGHT
    assert heights == pytest.approx(dict.fromkeys(heights, len(PANELS) * PANEL), abs=3)  # rounded bars


def test_the_run_writes_pictures_and_results(
    answers: AnswersResult, digits: DigitsResult, toy: ToyResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "run_answers", lambda settings: answers)
    monkeypatch.setattr(command, "run_digits", lambda settings: digits)
    monkeypatch.setattr(command, "run_toy", lambda settings: toy)
    command.run(QUICK_DIGITS, QUICK_TOY, out=tmp_path)
    results = json.loads((tmp_path / "results.json").read_text())
    assert {"answers", "digits", "toy", "settings", "seed", "versions", "commit", "seconds"} <= results.keys()
    assert results["digits"]["inf"]["nll"] == digits.rows["inf"].nll
    assert (tmp_path / "front.svg").read_text(encoding="utf-8") == draw_front(answers.rows)
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
