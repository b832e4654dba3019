"""Plans: bytes against real posteriors, flops and statistics against what a fit holds, budgets kept."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import infoform
from dense import one_hot_inputs
from flat import flat_laplace, flat_plan
from infoform.curvature.curvature import pack_curvature
from infoform.curvature.dimensions import Dimensions
from infoform.posteriors import PRESETS, STRUCTURES, Inf, InfPosterior
from models import MODELS

ALL = [*STRUCTURES, *PRESETS]
BUDGETS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0)  # from the least to the most that the ranks can take


def fit(model: nn.Module, inputs: Tensor, **options: Any) -> infoform.Laplace:
    return flat_laplace(model, "classification", **options).fit([inputs], progress=False)


@pytest.fixture(scope="module")
def trained() -> infoform.Laplace:
    """Return a small convolutional network, trained, with all statistics."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.Tanh(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 8), nn.Tanh(), nn.Linear(8, 3)
    ).double()
    generator = torch.Generator().manual_seed(1)
    labels = torch.arange(90) % 3
    centres = torch.randn(3, 1, 8, 8, generator=generator, dtype=torch.float64)
    inputs = centres[labels] + torch.randn(90, 1, 8, 8, generator=generator, dtype=torch.float64)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(40):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimiser.step()
    laplace = flat_laplace(model, "classification", fisher="exact", statistics="all")
    return laplace.fit([(inputs, labels)], progress=False)


def budgets(laplace: infoform.Laplace) -> list[int]:
    least = laplace.posterior(rank=1).nbytes
    most = laplace.posterior(rank=10**9).nbytes
    return [int(least + share * (most - least)) for share in BUDGETS]


@pytest.mark.parametrize("basis_size", [None, 2])
@pytest.mark.parametrize("structure", ALL)
@pytest.mark.parametrize("model", MODELS)
def test_planned_bytes_are_those_of_the_posterior(model: str, structure: str, basis_size: int | None) -> None:
    case = MODELS[model]
    options: dict[str, Any] = {"structure": structure, "basis_size": basis_size, "rank": 3, "layers": list(case.layers)}
    plan = flat_plan(case.model(), **options)
    laplace = fit(case.model(), case.inputs(), **options)
    assert [layer.name for layer in plan.layers] == list(case.layers)
    for row in plan.layers:
        real = laplace.posterior().layers[row.name]
        assert row.shape == real.shape
        own = laplace.structure.of_layer(row.name, real.shape)
        if not isinstance(real, InfPosterior):
            assert own.planned_exactly
            assert plan.exact or structure == "auto"  # which may have other layers, too
            assert row.nbytes == real.nbytes
            assert row.rank is None
            continue
        assert not plan.exact
        assert row.nbytes >= real.nbytes
        used = {"pairs": real.rank, "rows": real.gradient_vectors.shape[1], "columns": real.input_vectors.shape[1]}
        used["coupled"] = real.rank
        rank = laplace.settings.prior_rank if laplace.prior.needs_inputs else None
        size = Dimensions(*real.shape, (0, 0), torch.float64, input_rank=rank)
        assert real.prior.nbytes == laplace.prior.planned_bytes(size)
        assert isinstance(own, Inf)
        assert own.bytes_of(size, **used) + real.prior.nbytes == real.nbytes


@pytest.mark.parametrize("storage", [None, "float32", "bfloat16"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("structure", ["diag", "inf", "kfac"])
def test_planned_bytes_follow_dtype_and_storage(structure: str, dtype: torch.dtype, storage: str | None) -> None:
    model = nn.Sequential(nn.Linear(4, 1), nn.Linear(1, 3)).to(dtype)
    plan = flat_plan(model, structure=structure, storage=storage, rank=10**6)
    laplace = fit(model, torch.randn(5, 4, dtype=dtype), structure=structure, storage=storage, rank=10**6)
    assert plan.total_bytes == laplace.posterior().nbytes  # at full rank INF uses all columns


@pytest.mark.parametrize("prior", ["isotropic", "activation"])
@pytest.mark.parametrize("basis_size", [None, 2])
@pytest.mark.parametrize("structure", ALL)
def test_planned_statistics_are_those_that_a_fit_holds(structure: str, basis_size: int | None, prior: str) -> None:
    case = MODELS["conv2d"]
    options: dict[str, Any] = {"structure": structure, "basis_size": basis_size, "prior": prior}
    plan = infoform.plan(flat_laplace(case.model(), "classification", **options))
    laplace = fit(case.model(), case.inputs(), **options)
    for row in plan.layers:
        tensors, _ = pack_curvature(laplace.curvature[row.name])
        held = sum(tensor.nbytes for tensor in tensors.values())
        outputs, inputs = row.shape
        kind = laplace.structure.of_layer(row.name, row.shape).label
        moments = 8 * (outputs**2 + inputs**2) if kind in {"inf", "efb", "inf-paper", "efb-paper"} else 0
        moments += 8 * inputs**2 if prior == "activation" and kind in {"inf", "efb"} else 0
        moments += 8 * outputs * inputs if kind == "inf" else 0  # the diagonal, summed in the same pass
        assert row.statistics_bytes == max(held, moments)


@pytest.mark.parametrize("model", MODELS)
def test_an_example_gives_positions_cost_and_peak(model: str) -> None:
    case = MODELS[model]
    plan = infoform.plan(case.model(), structure="diag", example=case.inputs(4), layers=list(case.layers))
    assert plan.cost is not None
    assert plan.peak_bytes is not None
    assert plan.peak_bytes > plan.statistics_bytes
    twice = infoform.plan(case.model(), structure="diag", example=case.inputs(8), layers=list(case.layers))
    assert twice.cost == plan.cost  # relative to a gradient pass of the same data
    assert twice.peak_bytes is not None
    assert twice.peak_bytes > plan.peak_bytes
    assert all(one.cost is None for one in [infoform.plan(case.model(), layers=list(case.layers))])


def test_the_given_chunk_is_planned_for() -> None:
    model = nn.Sequential(nn.Conv2d(3, 32, 3), nn.Flatten(), nn.Linear(32 * 36, 10))
    example = torch.zeros(64, 3, 8, 8)
    how: dict[str, Any] = {"structure": "diag", "example": example}
    peaks = [flat_plan(model, chunk=chunk, **how).peak_bytes or 0 for chunk in ("100kB", "1MB", "16MiB")]
    assert 0 < peaks[0] < peaks[1] < peaks[2]
    own = flat_laplace(model, "classification", structure="diag", chunk="100kB")
    assert infoform.plan(own, example=example).peak_bytes == peaks[0]
    with pytest.raises(ValueError, match="a Laplace has its own chunk"):
        flat_plan(own, example=example, chunk="1MB")


def test_a_model_without_memory_is_planned_like_any_other() -> None:
    def build() -> nn.Module:
        layers = (nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 10))
        return nn.Sequential(*layers)

    with torch.device("meta"):
        shapes = build()
    for structure in ALL:
        found, expected = (
            infoform.plan(model, structure=structure, example=torch.zeros(4, 3, 8, 8)) for model in (shapes, build())
        )
        assert found.layers == expected.layers
        assert (found.peak_bytes, found.cost) == (expected.peak_bytes, expected.cost)
        assert found.fits is None


def test_groups_are_planned_within_a_budget() -> None:
    model = nn.Sequential(nn.Linear(300, 200), nn.Tanh(), nn.Linear(200, 100), nn.Tanh(), nn.Linear(100, 10))
    example = torch.zeros(8, 300)
    whole = flat_plan(model, example=example, chunk="400kB")
    assert whole.peak_bytes is not None
    assert whole.cost is not None
    assert whole.groups == ()
    budget = whole.peak_bytes - 1
    parted = flat_plan(model, example=example, chunk="400kB", max_memory=budget, offload=True)
    assert parted.peak_bytes is not None
    assert parted.cost is not None
    assert len(parted.groups) > 1
    assert [name for group in parted.groups for name in group] == ["0", "2", "4"]
    assert parted.peak_bytes <= budget
    assert parted.cost > whole.cost
    assert f"in {len(parted.groups)} groups of layers" in str(parted)
    with pytest.raises(ValueError, match="max_memory needs example="):
        infoform.plan(model, max_memory="1GB")
    with pytest.raises(ValueError, match="max_memory is of a fit, and this one is done"):
        infoform.plan(fit(nn.Linear(4, 3), torch.randn(5, 4)), max_memory="1GB")


def test_costs_are_flops_counted_by_hand() -> None:
    linear = nn.Linear(4, 3, bias=False)
    gradient_pass = 3 * 2 * 4 * 3
    example = torch.zeros(2, 4)
    diag = infoform.plan(linear, structure="diag", example=example)
    assert diag.cost == pytest.approx((2 * 24 + 2 * 4 * 3) / gradient_pass)  # forward, backward, g²ᵀ a²
    kfac = flat_plan(linear, structure="kfac", example=example, fisher="exact")  # three Fisher vectors
    assert kfac.cost == pytest.approx((4 * 24 + 2 * 16 + 3 * 2 * 9) / gradient_pass)
    assert flat_plan(
        linear, structure="kfac", example=example, fisher="exact", likelihood_outputs=5
    ).cost == pytest.approx((6 * 24 + 2 * 16 + 5 * 2 * 9) / gradient_pass)
    convolution = nn.Sequential(nn.Conv1d(2, 3, 2), nn.Flatten())
    image = torch.zeros(1, 2, 5)
    positions = one_hot_inputs(convolution[0], image).shape[2]
    forward = 2 * positions * 3 * 5
    diag = infoform.plan(convolution, structure="diag", example=image)
    assert diag.cost == pytest.approx((2 * forward + forward + 2 * 15) / (3 * forward))  # ∇ is formed


def test_layers_left_out_still_cost_a_gradient_pass() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3))
    every = infoform.plan(model, structure="diag", example=torch.zeros(1, 4))
    last = infoform.plan(model, structure="diag", example=torch.zeros(1, 4), layers=["1"])
    assert every.cost is not None
    assert last.cost is not None
    assert 2 / 3 < last.cost < every.cost


def test_a_budget_before_a_fit_gives_one_rank_for_the_worst_case() -> None:
    model = nn.Sequential(nn.Linear(20, 10), nn.Linear(10, 3))
    plan = infoform.plan(model, memory="6kB")
    assert plan.total_bytes <= 6000
    rank = max(plan.ranks.values())
    assert plan.ranks == {name: min(rank, size) for name, size in {"0": 210, "1": 33}.items()}
    assert flat_plan(model, rank=rank + 1).total_bytes > 6000
    laplace = fit(model, torch.randn(50, 20), rank=plan.ranks)
    assert laplace.posterior().nbytes <= plan.total_bytes


def test_the_posterior_with_the_chosen_ranks_keeps_the_budget(trained: infoform.Laplace) -> None:
    for budget in budgets(trained):
        for structure in ("inf", "inf-paper"):
            if budget < trained.posterior(structure=structure, rank=1).nbytes:
                continue
            plan = infoform.plan(trained, memory=budget, structure=structure)
            real = trained.posterior(structure=structure, rank=plan.ranks)
            assert plan.total_bytes == real.nbytes <= budget
            for row in plan.layers:
                layer = real.layers[row.name]
                assert isinstance(layer, InfPosterior)
                basis = "gradient" if structure == "inf" else "activation"
                energy = float(trained.curvature[row.name].bases[basis].eigenvalues.sum())
                assert row.kept == pytest.approx(float(layer.eigenvalues.sum()) / energy, rel=1e-9)


def test_kept_energy_and_accuracy_grow_with_the_bytes(trained: infoform.Laplace) -> None:
    kept, errors, sizes = [], [], []
    for budget in budgets(trained):
        plan = infoform.plan(trained, memory=budget)
        posterior = trained.posterior(rank=plan.ranks, prior_precision=0.0, num_data=1.0)
        error = 0.0
        for name, layer in posterior.layers.items():
            block = trained.curvature[name].block
            assert block is not None
            exact, approximate = (x - x.diagonal().diag() for x in (block, layer.dense()))
            error += float((approximate - exact).norm() / exact.norm())
        kept.append(plan.kept)
        errors.append(error)
        sizes.append(plan.total_bytes)
    print([f"{size} B: {error:.3f}" for size, error in zip(sizes, errors, strict=True)])
    assert sizes == sorted(sizes)
    assert None not in kept
    assert kept == sorted(kept, key=float)  # type: ignore[arg-type]
    assert kept[-1] == pytest.approx(1.0)
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < errors[0]


def test_a_fitted_posterior_is_planned_as_it_is(trained: infoform.Laplace) -> None:
    plan = infoform.plan(trained)
    assert plan.exact
    assert plan.total_bytes == trained.posterior().nbytes
    assert plan.ranks == {name: min(100, layer.shape[0] * layer.shape[1]) for name, layer in trained.layers.items()}
    kfac = infoform.plan(trained, structure="kfac")
    assert kfac.total_bytes == trained.posterior(structure="kfac").nbytes
    assert kfac.ranks == {}
    assert kfac.kept is None


def test_shrinking_sets_the_ranks_and_is_saved(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(20, 10), nn.Tanh(), nn.Linear(10, 3))
    laplace = fit(model, torch.randn(50, 20, generator=torch.Generator().manual_seed(0)))
    before = laplace.posterior().nbytes
    plan = laplace.shrink("5kB")
    assert laplace.structure.options()["rank"] == plan.ranks
    assert laplace.posterior().nbytes == plan.total_bytes <= 5000 < before
    laplace.save(tmp_path / "posterior.safetensors")
    assert infoform.load(tmp_path / "posterior.safetensors", model).posterior().nbytes == plan.total_bytes
    with pytest.raises(RuntimeError, match=r"call fit\(loader\) first"):
        infoform.Laplace(model, "classification").shrink("3kB")


def test_a_plan_leaves_the_model_and_the_seed_as_found() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Dropout(), nn.Flatten(), nn.Linear(8, 3))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.random.get_rng_state()
    infoform.plan(model, example=torch.randn(5, 1, 4, 4, generator=torch.Generator().manual_seed(0)))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(module.training for module in model.modules())
    assert all(parameter.grad is None and parameter.requires_grad for parameter in model.parameters())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    with pytest.raises(RuntimeError, match="shapes"):
        infoform.plan(model, example=torch.zeros(5, 1, 9, 9))
    assert all(module.training for module in model.modules())
    assert not any(module._forward_hooks for module in model.modules())


def test_a_plan_prints_as_a_table() -> None:
    model = nn.Sequential(nn.Linear(20, 10), nn.Linear(10, 3))
    printed = str(infoform.plan(model, example=torch.zeros(2, 20)))
    for part in ("layer", "10×21", "at most", "times a gradient pass", "peak of a fit", "memory available here"):
        assert part in printed
    assert "unknown without example=" in str(infoform.plan(model))
    assert "of 5.00 kB, keeps" in str(infoform.plan(fit(model, torch.randn(9, 20)), memory="5kB"))
    assert all(len(line) <= 120 for line in printed.splitlines())


def test_whether_it_fits_follows_from_the_memory_available(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Linear(20, 10)
    answers = {}
    for name, available in {"much": 10**15, "little": 10, "unknown": None}.items():
        for home in ("before_fit", "after_fit"):
            monkeypatch.setattr(f"infoform.planning.{home}.available_bytes", lambda _, found=available: found)
        answers[name] = (infoform.plan(model).fits, infoform.plan(model, example=torch.zeros(2, 20)).fits)
        text = str(infoform.plan(model, example=torch.zeros(2, 20)))
        assert {"much": "it fits", "little": "does not fit", "unknown": "unknown"}[name] in text
    assert answers == {"much": (None, True), "little": (False, False), "unknown": (None, None)}


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "a budget too small": ({"memory": 10}, r"at least \d+ bytes .* rank 1 in every layer takes, got 10"),
    "no size": ({"memory": "much"}, "memory must be a positive number of bytes"),
    "both": ({"memory": "1GB", "rank": 3}, "rank and memory exclude each other"),
    "an unknown structure": ({"structure": "dense"}, "structure must be one of"),
    "rank 0": ({"rank": 0}, "rank must be a whole number"),
    "a rank missing": ({"rank": {"other": 3}}, "rank must have a value for each layer"),
    "kfac in too little": ({"structure": "kfac", "memory": 10}, r"which structure 'kfac' takes, got 10"),
    "an empty example": ({"example": torch.zeros(0, 20)}, "at least one input"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_arguments_get_one_sentence(case: str) -> None:
    options, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        flat_plan(nn.Linear(20, 10), **options)


def test_bad_arguments_after_a_fit_get_one_sentence(trained: infoform.Laplace) -> None:
    least = trained.posterior(rank=1).nbytes
    for options, message in (
        ({"memory": least - 1}, f"memory must be at least {least} bytes"),
        ({"memory": "1GB", "structure": "kfac"}, "memory= chooses the ranks of structure 'inf', got 'kfac'"),
        ({"layers": ["0"]}, "a Laplace has its own layers"),
    ):
        with pytest.raises(ValueError, match=message):
            flat_plan(trained, **options)
    diag = fit(nn.Linear(4, 3), torch.randn(5, 4), structure="diag")
    with pytest.raises(ValueError, match="that the fit did not collect"):
        infoform.plan(diag, memory="1GB", structure="inf")


def test_the_prior_is_paid_out_of_the_budget() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 4))
    laplace = flat_laplace(model, "classification", prior="activation", prior_rank=3)
    laplace.fit([(torch.randn(50, 12), torch.randint(4, (50,)))], progress=False)
    budget = laplace.posterior(rank=4).nbytes
    laplace.shrink(budget)
    assert laplace.posterior().nbytes <= budget
