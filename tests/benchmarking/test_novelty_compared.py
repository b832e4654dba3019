"""The benchmark of novelty: replayed networks, spoilt pictures, figures, and variants of the choice."""

from pathlib import Path

import pytest
import torch
from benchmarks.novelty.choice import Gaussian, joined, log_p
from benchmarks.novelty.features import extract, pool, read
from benchmarks.novelty.measure import is_unknown, split_false_alarms, unknown_figures
from benchmarks.novelty.networks import Case, Known
from benchmarks.novelty.recorded import Recorded
from torch import Tensor, nn

import infoform
from infoform.data.images import Images
from infoform.experiments.unknown_pictures import CORRUPTIONS, in_colour, noise, shifted, shrunk, spoilt

SIZE, CLASSES = 8, 3


def tiny() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 5, 3, padding=1), nn.ReLU(), nn.Conv2d(5, 5, 3, padding=1, groups=5, bias=False), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, CLASSES),
    ).eval()  # fmt: skip


def pictures(count: int) -> Tensor:
    return noise(count, (3, SIZE, SIZE), normal=False)


def scaled(pixels: Tensor) -> Tensor:
    return pixels / 128 - 1


def case() -> Case:
    images = Images(pictures(400), torch.arange(400) % CLASSES)
    known = Known(images[:200], images[200:300], images[300:])
    return Case("tiny", "8", lambda _: tiny(), scaled, lambda: known,
                lambda: {"grey": 0 * pictures(30) + 99}, spoilt=20, batch=64)  # fmt: skip


def test_a_replayed_network_has_the_outputs_and_the_novelty_of_the_original(tmp_path: Path) -> None:
    extract(case(), tmp_path)
    original, known = tiny(), case().known()
    replayed = Recorded(original, "8")
    train, fresh = (read(tmp_path, name) for name in ("train", "fresh"))
    real = [(scaled(known.train.pixels), known.train.labels)]
    recorded = [(replayed.as_rows(train), known.train.labels)]
    rows, inputs = replayed.as_rows(fresh), scaled(known.fresh.pixels)
    torch.testing.assert_close(replayed(rows), original(inputs))
    one, other = (
        infoform.Laplace(model, "classification", layers="last").fit(batches, progress=False)
        for model, batches in ((original, real), (replayed, recorded))
    )
    novelties = [one.novelty(inputs), other.novelty(rows)]
    torch.testing.assert_close(novelties[0].novelty, novelties[1].novelty, rtol=1e-3, atol=1e-3)
    layers = [torch.stack(list(told.novelty_layers.values())) for told in novelties]
    torch.testing.assert_close(layers[0], layers[1], rtol=1e-3, atol=1e-3)


def test_recorded_sets_are_read_as_they_were_written_and_not_recorded_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    extract(case(), tmp_path)
    assert "grey, 30 pictures" in capsys.readouterr().out
    extract(case(), tmp_path)
    assert not capsys.readouterr().out
    found = read(tmp_path, "grey")
    expected = pool(scaled(0 * pictures(30) + 99))
    torch.testing.assert_close(found.pooled["0"], expected)
    assert found.labels is None
    assert read(tmp_path, "fresh").labels is not None


def test_corruptions_change_pictures_more_and_more() -> None:
    before = noise(4, (3, 32, 32), normal=True)
    changed = spoilt(before)
    assert len(changed) == 5 * len(CORRUPTIONS)
    for name in CORRUPTIONS:
        away = [float((changed[f"{name} {k}"].double() - before.double()).square().mean()) for k in range(1, 6)]
        assert away == sorted(away)
        assert away[0] > 0


def test_pictures_have_the_sizes_that_are_asked_for() -> None:
    digits = noise(3, (1, 28, 28), normal=True)
    assert in_colour(digits).shape == (3, 3, 32, 32)
    assert shrunk(noise(2, (3, 64, 64), normal=False)).shape == (2, 3, 32, 32)
    assert torch.equal(shifted(digits, 3).roll((-3, -3), (2, 3)), digits)


def test_figures_are_those_of_scores_that_tell_all_or_nothing() -> None:
    known = torch.arange(1000.0)
    scores = {"validation": known, "fresh": known, "far": known + 1000, "same": known, "blur 1": known}
    told = unknown_figures(scores)
    assert told["sets"].keys() == {"far", "same"}
    assert told["sets"]["far"] == {"auroc": 1.0, "fpr95": 0.0, "found": 1.0}
    assert told["sets"]["same"]["auroc"] == pytest.approx(0.5)
    assert told["false_alarms"] == pytest.approx(0.05, abs=1e-3)
    assert split_false_alarms(scores, 20) == pytest.approx(0.05, abs=0.01)
    assert is_unknown("uniform noise")
    assert not is_unknown("noise 3")


def test_the_distance_is_that_of_the_dense_sparse_form() -> None:
    torch.manual_seed(0)
    x = torch.randn(500, 6, dtype=torch.float64) @ torch.randn(6, 6, dtype=torch.float64)
    gaussian = Gaussian(x, 2)
    correlations = gaussian.pairs @ gaussian.pairs.T + gaussian.remainder.diag()
    torch.testing.assert_close(correlations.diagonal(), torch.ones(6, dtype=torch.float64))
    covariance = gaussian.deviation[:, None] * correlations * gaussian.deviation
    away = x - x.mean(0)
    dense = (away * torch.linalg.solve(covariance, away.T).T).sum(1)
    torch.testing.assert_close(gaussian.log_distance(x).exp(), dense, rtol=1e-9, atol=0)


def test_p_values_fall_with_the_score_and_join_by_their_weights() -> None:
    known = torch.randn(1000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    values = torch.linspace(-3, 30, 50, dtype=torch.float64)
    found = log_p(known, values)
    assert bool((found.diff() <= 1e-12).all())
    assert float(found[-1]) < -10
    table = {"validation": known, "far": values}
    torch.testing.assert_close(joined([table, table], [2, 1])["far"], -3 * found)
