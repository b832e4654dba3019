from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.testing import assert_close

import infoform
from flat import flat_laplace
from infoform.experiments import Result
from infoform.experiments.active_learning.experiment import (
    ARMS,
    EXPERIMENT,
    ActiveSettings,
    draw_task,
    most_uncertain,
    train,
)
from infoform.experiments.networks.shallow import ShallowStack
from infoform.posteriors import Inf

SETTINGS = ActiveSettings(validation_points=30, test_points=20, epochs=5)


def use_all_rows(folder: Path) -> None:
    """Let the splits of the stand-ins hold all 260 rows, as real ones do."""
    for name in ("bostonHousing", "wine-quality-red", "energy"):
        for part, rows in (("train", range(200)), ("test", range(200, 260))):
            path = folder / "data" / "uci" / name / f"index_{part}_0.txt"
            path.write_text("\n".join(map(str, rows)))


def test_parts_are_disjoint_and_nothing_is_learnt_from_the_test_part(small_uci: Path) -> None:
    use_all_rows(small_uci)
    task = draw_task("boston", 3, SETTINGS)
    parts = [task.train, task.validation, task.test, task.pool]
    assert [len(part) for part in parts] == [20, 30, 20, 190]
    assert torch.equal(torch.cat(parts).sort().values, torch.arange(260))
    known = torch.cat([task.train, task.validation, task.pool])
    assert_close(task.x[known].mean(0), torch.zeros(3).double(), atol=1e-12, rtol=0)
    assert_close(task.y[task.train].std(), torch.tensor(1.0).double())


def test_training_leaves_the_weights_of_the_least_validation_error(small_uci: Path) -> None:
    use_all_rows(small_uci)
    task = draw_task("boston", 0, SETTINGS)
    stack = ShallowStack.drawn(2, 3, 10, generator=torch.Generator().manual_seed(0))
    before = stack.flat.clone()
    x, y = task.x[task.validation].expand(2, -1, -1), task.y[task.validation]
    error = (stack(x) - y).square().mean((1, 2))
    train(stack, task, [task.train] * 2, SETTINGS, 0.01, 0.0, torch.Generator().manual_seed(0))
    assert ((stack(x) - y).square().mean((1, 2)) < error).all()
    stack.flat.copy_(before)
    train(stack, task, [task.train] * 2, SETTINGS, 100.0, 0.0, torch.Generator().manual_seed(0))
    assert torch.equal(stack.flat, before)  # every step made it worse


def test_tuning_chooses_n_and_tau_of_the_grid_at_the_noise_of_the_residuals(
    small_uci: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_all_rows(small_uci)
    task = draw_task("boston", 0, SETTINGS)
    stack = ShallowStack.drawn(1, 3, 10, generator=torch.Generator().manual_seed(0))
    tuned: list[infoform.Laplace] = []

    def acquired(laplace: infoform.Laplace, *_: Any, **__: Any) -> list[int]:
        tuned.append(laplace)
        return [0]

    monkeypatch.setattr(infoform, "acquire", acquired)
    most_uncertain(stack, 0, task, task.train, task.pool, Inf(rank=1.0), SETTINGS)
    (laplace,) = tuned
    residual = stack(task.x[task.train].unsqueeze(0))[0] - task.y[task.train]
    assert laplace.noise == pytest.approx(float(residual.square().mean().sqrt()), rel=1e-6)
    assert laplace.prior_precision in SETTINGS.prior_precisions
    assert laplace.num_data in [factor * len(task.train) for factor in SETTINGS.data_factors]


def test_the_chosen_point_has_the_largest_variance(small_uci: Path) -> None:
    use_all_rows(small_uci)
    one = replace(SETTINGS, data_factors=(0.5,), prior_precisions=(1.0,))
    task = draw_task("boston", 0, one)
    stack = ShallowStack.drawn(1, 3, 10, generator=torch.Generator().manual_seed(0))
    chosen = most_uncertain(stack, 0, task, task.train, task.pool, infoform.Inf(rank=1.0), one)
    laplace = flat_laplace(stack.network(0), "regression", structure="inf", rank=1.0, fisher="exact")
    laplace.fit([(task.x[task.train], task.y[task.train])], progress=False)
    posterior = laplace.posterior(prior_precision=1.0, num_data=10.0)
    variance = laplace.predict(task.x[task.pool], posterior=posterior).epistemic[:, 0]
    assert chosen == int(variance.argmax())


def test_a_piece_a_page_and_a_picture(small_uci: Path) -> None:
    use_all_rows(small_uci)
    settings = replace(SETTINGS, sets=("boston",), splits=2, steps=2)
    result = Result("active-learning", asdict(settings), 0, 2)
    for key in EXPERIMENT.pieces(settings):
        piece = EXPERIMENT.run_piece(key, settings, cache=small_uci)
        result = result.with_piece(key, piece, seconds=1.0, peak_memory_bytes=1)
    curves = result.pieces["boston/0"]["rmse"]
    assert list(curves) == list(ARMS)
    assert {len(curve) for curve in curves.values()} == {3}
    assert len({curve[0] for curve in curves.values()}) == 1  # all arms start from one network
    assert "| boston |" in EXPERIMENT.page(result)
    EXPERIMENT.charts(result, small_uci)
    assert (small_uci / "active-learning.png").stat().st_size > 1000
