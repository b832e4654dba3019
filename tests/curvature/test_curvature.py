"""Every statistic of every kind of layer equals its naive definition, whatever the batches, the model and its mode."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import infoform
from dense import (
    Reference,
    assert_close,
    exact_vectors,
    make_reference,
    read_logits,
    sampled_vectors,
    score_vectors,
)
from flat import flat_laplace
from infoform import Curvature, Likelihood, Regression
from infoform.curvature.request import BASES
from infoform.curvature.subsampling import WHOLE_INPUTS, WHOLE_RESIDUAL, subsample_weights
from infoform.likelihoods import FISHER_KINDS, LIKELIHOODS
from infoform.network.coverage import NOT_BY_DEFAULT
from likelihood_cases import WITH_THREE_OUTPUTS
from models import MODELS, TokenPool, Wrapped

SAMPLES, SEED = 3, 4  # of fisher="mc"


@pytest.mark.parametrize("basis_size", [None, 2])
@pytest.mark.parametrize("fisher", FISHER_KINDS)
@pytest.mark.parametrize("case", MODELS)
def test_every_statistic_equals_its_definition(case: str, fisher: str, basis_size: int | None) -> None:
    model, x = MODELS[case].model(), MODELS[case].inputs()
    check_fit(model, x, LIKELIHOODS["classification"](), fisher, MODELS[case].layers, basis_size=basis_size)


@pytest.mark.parametrize("case", ["linear", "conv2d", "grouped conv"])
@pytest.mark.parametrize("fisher", FISHER_KINDS)
@pytest.mark.parametrize(
    "likelihood",
    [*(LIKELIHOODS[name]() for name in WITH_THREE_OUTPUTS), Regression(noise=0.3), Regression(noise=[0.5, 2.0, 1.5])],
    ids=lambda likelihood: f"{likelihood.name} {likelihood.settings()}",
)
def test_every_likelihood_gives_the_statistics_of_its_definition(
    likelihood: Likelihood, fisher: str, case: str
) -> None:
    check_fit(MODELS[case].model(), MODELS[case].inputs(), likelihood, fisher, MODELS[case].layers)


@pytest.mark.parametrize("fisher", FISHER_KINDS)
def test_a_single_output_without_an_axis_of_its_own_is_a_regression(fisher: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 2), nn.Tanh(), nn.Linear(2, 1), nn.Flatten(0)).double()
    x, y = torch.randn(5, 4).double(), torch.randn(5).double()
    flat = fit_curvature(model, [(x, y)], "regression", fisher=fisher)
    rows = fit_curvature(model[:3], [(x, y.unsqueeze(1))], "regression", fisher=fisher)
    check_equal(flat, rows)


@pytest.mark.parametrize("batch_size", [1, 7])
@pytest.mark.parametrize("fisher", FISHER_KINDS)
@pytest.mark.parametrize("case", ["linear", "linear on tokens", "grouped conv", "tied weights"])
def test_the_batch_size_does_not_matter(case: str, fisher: str, batch_size: int) -> None:
    model, x = MODELS[case].model(), MODELS[case].inputs(10)
    data = TensorDataset(x, torch.arange(10) % 3)
    whole = fit_curvature(model, DataLoader(data, batch_size=10), fisher=fisher)
    parts = fit_curvature(model, DataLoader(data, batch_size=batch_size), fisher=fisher)
    for name, one in whole.items():
        check_same_up_to_rounding(parts[name], one)


@pytest.mark.parametrize("case", ["linear", "grouped conv"])
def test_the_number_of_examples_taken_at_a_time_does_not_matter(case: str) -> None:
    model, x = MODELS[case].model(), MODELS[case].inputs(10)
    whole = fit_curvature(model, [x])
    parts = fit_curvature(model, [x], chunk=1)
    for name, one in whole.items():
        check_same_up_to_rounding(parts[name], one)


@pytest.mark.parametrize("own_generator", [False, True])
def test_a_shuffling_loader_gives_the_same_result_every_time(own_generator: bool) -> None:
    case = MODELS["conv2d"]
    loader = shuffling_loader(case.inputs(10), own_generator)
    torch.manual_seed(5)
    first = fit_curvature(case.model(), loader)
    torch.manual_seed(6)
    check_equal(fit_curvature(case.model(), loader), first)


@pytest.mark.parametrize("own_generator", [False, True])
def test_both_passes_over_a_shuffling_loader_see_the_same_labels(own_generator: bool) -> None:
    case = MODELS["linear"]
    loader = shuffling_loader(case.inputs(10), own_generator)
    for one in fit_curvature(case.model(), loader).values():
        vectors = one.bases["gradient"].gradient_vectors
        rotated = vectors.T @ gradient_moment(one) @ vectors
        assert_close(rotated, rotated.diagonal().diag())  # eigenvectors of pass 1 diagonalise what pass 2 has seen


def test_shuffling_does_not_change_a_fit_that_draws_no_labels() -> None:
    case = MODELS["conv2d"]
    data = TensorDataset(case.inputs(10), torch.arange(10) % 3)
    plain = fit_curvature(case.model(), DataLoader(data, batch_size=3), fisher="exact")
    mixed = fit_curvature(case.model(), DataLoader(data, batch_size=3, shuffle=True), fisher="exact")
    for name, one in plain.items():
        check_same_up_to_rounding(mixed[name], one)


def test_training_mode_gives_what_evaluation_mode_gives() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv1d(2, 3, 3), nn.BatchNorm1d(3), nn.Dropout(0.5), nn.ReLU(), nn.Flatten(), nn.Linear(9, 3)
    ).double()
    x = torch.randn(8, 2, 5).double()
    model(x)  # running statistics other than 0 and 1
    evaluated = fit_curvature(model.eval(), [x[:4], x[4:]])
    trained = fit_curvature(model.train(), [x[:4], x[4:]])
    check_equal(trained, evaluated)
    check_fit(model.eval(), x, LIKELIHOODS["classification"](), "mc", ("0", "5"))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_summed_in_single_precision(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 2).to(dtype)
    x = torch.randn(2000, 3).to(dtype)
    curvature = fit_curvature(model, DataLoader(TensorDataset(x), batch_size=4), Regression(noise=1.0), fisher="exact")
    extended = torch.cat([x.double(), torch.ones(2000, 1).double()], dim=1)
    # the Fisher vectors are the unit vectors, so ∇ is (x, 1) in one row: exact in half precision
    diagonal = extended.square().mean(0).expand(2, 4)
    one = curvature[""]
    assert one.diagonal is not None
    assert one.diagonal.dtype == torch.float32
    torch.testing.assert_close(one.diagonal.double(), diagonal, rtol=1e-5, atol=0)
    assert one.input_factor is not None
    torch.testing.assert_close(one.input_factor.double(), extended.T @ extended / 2000, rtol=1e-5, atol=1e-5)
    assert all(basis.eigenvalues.dtype == torch.float32 for basis in one.bases.values())


def test_any_form_of_batch_gives_the_same() -> None:
    model = MODELS["objects with logits"].model()
    x, y = MODELS["objects with logits"].inputs(6), torch.arange(6) % 3
    expected = fit_curvature(model, [(x, y)])
    forms: list[Any] = [
        x,
        [x],
        (x, None),
        (x, y.tolist()),
        (x, y.numpy()),
        (x, 1.0, y),
        {"pixel_values": x},
        {"pixel_values": x, "labels": y},
        {"pixel_values": x, "scale": 1.0, "label": y},
        ({"pixel_values": x}, y),
    ]
    for form in forms:
        check_equal(fit_curvature(model, [form]), expected)


def test_outputs_may_come_in_a_dict() -> None:
    class Keyed(Wrapped):
        def forward(self, *args: Any, **kwargs: Any) -> dict[str, Tensor]:  # type: ignore[override]
            return {"loss": torch.zeros(()), "logits": super().forward(*args, **kwargs).logits}

    torch.manual_seed(0)
    inner, x = nn.Linear(4, 3).double(), torch.randn(5, 4).double()
    check_equal(fit_curvature(Keyed(inner), [x]), fit_curvature(Wrapped(inner), [x]))


def test_inputs_that_require_a_gradient_change_nothing() -> None:
    case = MODELS["conv2d"]
    expected = fit_curvature(case.model(), [case.inputs()])
    check_equal(fit_curvature(case.model(), [case.inputs().requires_grad_()]), expected)


def test_frozen_parameters_have_the_same_curvature() -> None:
    case = MODELS["conv2d"]
    expected = fit_curvature(case.model(), [case.inputs()])
    with pytest.warns(UserWarning, match="all parameters have requires_grad=False"):
        frozen = fit_curvature(case.model().requires_grad_(False), [case.inputs()])
    check_equal(frozen, expected)


def test_a_fit_inside_no_grad_is_the_same() -> None:
    case = MODELS["conv2d"]
    expected = fit_curvature(case.model(), [case.inputs()])
    with torch.no_grad():
        check_equal(fit_curvature(case.model(), [case.inputs()]), expected)


def test_a_users_hook_that_changes_the_output_is_part_of_the_network() -> None:
    case = MODELS["linear"]
    model, x = case.model(), case.inputs()
    model.get_submodule("0").register_forward_hook(lambda module, args, output: 3 * output)
    gradients = fit_curvature(model, [x], fisher="exact")["0"]
    expected = make_reference(model, "0", x, exact_vectors(LIKELIHOODS["classification"](), model(x).detach()))
    assert_close(gradients.diagonal, expected.diagonal)
    assert_close(gradients.block, expected.block)


def test_the_encoders_attention_has_a_posterior_and_its_norms_are_held_fixed_and_said_so() -> None:
    case = MODELS["transformer"]
    laplace = infoform.Laplace(case.model().eval(), "classification").fit([case.inputs()], progress=False)
    rows = {row.parameter: row for row in laplace.coverage()}
    assert rows["0.self_attn.in_proj_weight"].reason == "MultiheadAttention '0.self_attn'"
    assert rows["0.norm1.weight"].reason == NOT_BY_DEFAULT
    assert [row.covered for row in rows.values()] == ["norm" not in name for name in rows]


def test_only_what_is_wanted_is_collected() -> None:
    case = MODELS["linear"]
    laplace = infoform.Laplace(case.model(), "classification", structure="diag").fit([case.inputs()], progress=False)
    for one in laplace.curvature.values():
        assert one.diagonal is not None
        assert [one.block, one.input_factor, one.gradient_factor, one.positions] == [None] * 4
        assert not one.bases


def test_a_layer_above_the_block_limit_has_no_block() -> None:
    case = MODELS["linear"]
    curvature = fit_curvature(case.model(), [case.inputs()], block_limit=9)
    assert curvature["0"].block is None  # 2 × 5
    assert curvature["2"].block is not None  # 3 × 3


def test_empty_batches_are_passed_over() -> None:
    case = MODELS["linear"]
    x, y = case.inputs(), torch.arange(5) % 3
    expected = fit_curvature(case.model(), [(x, y)])
    check_equal(fit_curvature(case.model(), [(x[:0], y[:0]), (x, y), (x[:0], y[:0])]), expected)


@pytest.mark.parametrize(
    ("model", "batches", "fisher", "message"),
    [
        (nn.Linear(4, 3), [], "mc", "no examples"),
        (nn.Linear(4, 3), iter([torch.ones(2, 4)]), "mc", "read twice"),
        (nn.Linear(4, 3), [torch.full((2, 4), torch.nan)], "mc", "in batch 0: the inputs must be finite"),
        (nn.Linear(4, 3), [torch.ones(2, 4)], "empirical", "in batch 0: fisher='empirical' needs targets"),
        (
            nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3, track_running_stats=False)),
            [torch.ones(2, 4)],
            "mc",
            "'1' is a BatchNorm1d without running statistics",
        ),
    ],
)
def test_what_a_fit_cannot_use_is_refused_in_one_sentence(
    model: nn.Module, batches: Any, fisher: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        fit_curvature(model, batches, fisher=fisher)


def test_a_layer_whose_inputs_are_overwritten_later_is_held_fixed() -> None:
    class Overwriting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 5), nn.Linear(5, 3)

        def forward(self, x: Tensor) -> Tensor:
            hidden = self.first(x)
            out = self.second(hidden)
            hidden.relu_()
            assert isinstance(out, Tensor)
            return out

    why = "its inputs are overwritten in place later in the forward pass"
    with pytest.warns(UserWarning, match=f"layer 'second' is held fixed: {why}"):
        assert set(fit_curvature(Overwriting(), [torch.ones(2, 4)])) == {"first"}
    with pytest.raises(ValueError, match=f"layer 'second', which layers= names, cannot have a posterior: {why}"):
        fit_curvature(Overwriting(), [torch.ones(2, 4)], layers=["second"])


def test_examples_that_share_the_first_axis_with_tokens_are_told_apart() -> None:
    flat = nn.Sequential(nn.Flatten(0, 1), nn.Linear(4, 3), nn.Unflatten(0, (2, 5)), TokenPool()).double()
    plain = nn.Sequential(nn.Identity(), flat[1], TokenPool())
    x = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(0)).double()
    check_equal(fit_curvature(flat, [x]), fit_curvature(plain, [x]))


def test_a_loader_that_changes_between_the_passes_is_refused() -> None:
    class Shrinking:
        def __init__(self) -> None:
            self.left = 3

        def __iter__(self) -> Any:
            self.left -= 1
            return iter([torch.ones(2, 4)] * self.left)

    with pytest.raises(ValueError, match="the same data in both passes, got 4 examples, then 2"):
        fit_curvature(nn.Linear(4, 3), Shrinking())


def shuffling_loader(x: Tensor, own_generator: bool) -> DataLoader[tuple[Tensor, ...]]:
    generator = torch.Generator().manual_seed(7) if own_generator else None
    return DataLoader(TensorDataset(x, torch.arange(len(x)) % 3), batch_size=3, shuffle=True, generator=generator)


def fit_curvature(
    model: nn.Module, loader: Any, likelihood: str | Likelihood = "classification", **options: Any
) -> Mapping[str, Curvature]:
    options = {"statistics": "all", "fisher_samples": SAMPLES, "seed": SEED, **options}
    return flat_laplace(model, likelihood, **options).fit(loader, progress=False).curvature


def check_fit(
    model: nn.Module,
    x: Tensor,
    likelihood: Likelihood,
    fisher: str,
    layers: tuple[str, ...],
    *,
    basis_size: int | None = None,
) -> None:
    """Fit and compare with the naive statistics of every layer."""
    outputs = read_logits(model(x)).detach()
    generator = torch.Generator().manual_seed(2)
    targets = likelihood.sample_targets(
        outputs, torch.rand(len(x), likelihood.noise_width(3), dtype=torch.float64, generator=generator)
    )
    if fisher == "exact":
        vectors = exact_vectors(likelihood, outputs)
    elif fisher == "empirical":
        vectors = score_vectors(likelihood, outputs, targets).unsqueeze(0)
    else:
        vectors = sampled_vectors(likelihood, outputs, samples=SAMPLES, seed=SEED)
    curvature = fit_curvature(
        model, [(x[:3], targets[:3]), (x[3:], targets[3:])], likelihood, fisher=fisher, basis_size=basis_size
    )
    assert tuple(curvature) == layers
    for name, one in curvature.items():
        check_statistics(one, make_reference(model, name, x, vectors), basis_size)


def check_statistics(one: Curvature, reference: Reference, basis_size: int | None) -> None:
    rows, columns = one.shape
    assert reference.gradients.shape[2:] == one.shape
    assert one.positions == pytest.approx(reference.positions, rel=1e-12)
    assert_close(one.input_factor, reference.input_factor)
    assert_close(one.gradient_factor, reference.gradient_factor)
    assert_close(one.diagonal, reference.diagonal)
    assert_close(one.block, reference.block)
    assert tuple(one.bases) == BASES
    for name, basis in one.bases.items():
        u_a, u_g = basis.input_vectors, basis.gradient_vectors
        assert u_a.shape == (columns, min(columns, basis_size or columns))
        assert u_g.shape == (rows, min(rows, basis_size or rows))
        for vectors, moment in zip((u_a, u_g), reference.moments(name), strict=True):
            check_leading_eigenvectors(vectors, moment)
        assert_close(basis.eigenvalues, reference.eigenvalues(u_a, u_g))
        expected = reference.core(u_a, u_g, basis.core_pairs)
        assert expected is not None
        assert_close(basis.core, expected)
        if u_a.shape[1] == columns and u_g.shape[1] == rows:
            assert basis.residual is None
        else:
            assert basis.residual is not None
            # held to the diagonal's size: a residual is what is left of it
            atol = 1e-12 * float(reference.diagonal.max())
            torch.testing.assert_close(basis.residual, reference.residual(u_a, u_g), rtol=1e-9, atol=atol)


def check_leading_eigenvectors(vectors: Tensor, moment: Tensor) -> None:  # (n, k), (n, n)
    values = torch.linalg.eigvalsh(moment).flip(0)[: vectors.shape[1]]
    scale = float(values.max())
    assert_close(vectors.T @ vectors, torch.eye(vectors.shape[1], dtype=vectors.dtype))
    torch.testing.assert_close(moment @ vectors, vectors * values, rtol=1e-9, atol=1e-12 * scale)


def check_same_up_to_rounding(one: Curvature, other: Curvature) -> None:
    assert one.positions == other.positions
    for key in ("input_factor", "gradient_factor", "diagonal", "block"):
        expected = getattr(other, key)
        assert_close(getattr(one, key), expected)
    for name, basis in other.bases.items():
        assert_close(one.bases[name].eigenvalues, basis.eigenvalues)


def check_equal(one: Mapping[str, Curvature], other: Mapping[str, Curvature]) -> None:
    """Compare bit by bit."""
    assert one.keys() == other.keys()
    for name in one:
        assert torch.equal(flattened(one[name]), flattened(other[name]))


def flattened(one: Curvature) -> Tensor:
    tensors = [one.input_factor, one.gradient_factor, one.diagonal, one.block]
    for basis in one.bases.values():
        tensors += [basis.input_vectors, basis.gradient_vectors, basis.eigenvalues]
    return torch.cat([tensor.flatten() for tensor in tensors if tensor is not None])


def gradient_moment(one: Curvature) -> Tensor:  # E Σ ∇∇ᵀ (G, G), from the block
    assert one.block is not None
    rows, columns = one.shape
    return torch.einsum("gaha->gh", one.block.reshape(rows, columns, rows, columns))


def test_most_residuals_are_made_up_for_by_one_in_eight() -> None:
    """After the first ones every eighth counts eightfold, whatever the cut into fits and batches."""
    for whole in (WHOLE_RESIDUAL, WHOLE_INPUTS):
        weights = subsample_weights(range(1000), whole=whole)
        assert weights[:whole].eq(1).all()
        assert set(weights[whole:].tolist()) == {0.0, 8.0}
        assert float(weights.sum()) == 1000
        parts = [subsample_weights(range(77), whole=whole), subsample_weights(range(77, 1000), whole=whole)]
        assert torch.equal(torch.cat(parts), weights)


def test_a_residual_of_many_examples_is_the_weighted_average() -> None:
    model, x = MODELS["linear"].model(), MODELS["linear"].inputs(150)
    curvature = fit_curvature(model, list(x.split(40)), fisher="exact", basis_size=2)
    outputs = read_logits(model(x)).detach()
    vectors = exact_vectors(LIKELIHOODS["classification"](), outputs)
    weights = subsample_weights(range(150), whole=WHOLE_RESIDUAL)
    for name, one in curvature.items():
        eigen = one.bases["gradient"]
        gradients = make_reference(model, name, x, vectors).gradients * weights.sqrt()[:, None, None, None]
        weighted = Reference(gradients, [], []).residual(eigen.input_vectors, eigen.gradient_vectors)
        assert eigen.residual is not None
        torch.testing.assert_close(
            eigen.residual, weighted * 150 / weights.sum(), rtol=1e-9, atol=1e-12 * float(weighted.max())
        )


@pytest.mark.parametrize("case", ["linear", "conv2d"])
def test_a_basis_may_be_found_from_a_part_of_the_batches(case: str) -> None:
    model, x = MODELS[case].model(), MODELS[case].inputs(12)
    options: dict[str, Any] = {"statistics": "needed", "fisher": "exact"}
    found = fit_curvature(model, list(x.split(3)), basis_data=0.5, **options)
    part = fit_curvature(model, [x[:3], x[6:9]], **options)
    vectors = exact_vectors(LIKELIHOODS["classification"](), read_logits(model(x)).detach())
    for name, one in found.items():
        basis, other = one.bases["gradient"], part[name].bases["gradient"]
        assert_close(basis.input_vectors.abs(), other.input_vectors.abs(), rtol=1e-6)
        reference = make_reference(model, name, x, vectors)
        assert_close(one.diagonal, reference.diagonal)
        assert_close(basis.eigenvalues, reference.eigenvalues(basis.input_vectors, basis.gradient_vectors))


def test_sampled_labels_are_the_same_where_the_basis_sees_a_part() -> None:
    model, x = MODELS["linear"].model(), MODELS["linear"].inputs(12)
    options: dict[str, Any] = {"statistics": "needed", "structure": "inf"}
    one, other = (fit_curvature(model, list(x.split(3)), basis_data=share, **options) for share in (0.5, 1.0))
    for name in one:
        expected = other[name].diagonal
        assert expected is not None
        assert_close(one[name].diagonal, expected)


@pytest.mark.parametrize("options", [{"structure": "inf-paper"}, {"statistics": "all"}])
def test_a_part_of_the_data_is_refused_where_factors_are_collected(options: dict[str, Any]) -> None:
    case = MODELS["linear"]
    with pytest.raises(ValueError, match=r"basis_data below 1 is for gradient bases alone, got 0\.5"):
        fit_curvature(case.model(), [case.inputs()], **{"statistics": "needed", **options}, basis_data=0.5)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("case", ["linear", "conv2d"])
def test_autocast_rounds_the_passes_and_not_the_sums(case: str, dtype: str) -> None:
    model, x = MODELS[case].model().float(), MODELS[case].inputs(12).float()
    options: dict[str, Any] = {"statistics": "needed", "structure": "diag", "fisher": "exact"}
    exact, cast = (fit_curvature(model, [x], autocast=how, **options) for how in (None, dtype))
    for name, one in cast.items():
        whole = exact[name].diagonal
        assert one.diagonal is not None
        assert whole is not None
        assert one.diagonal.dtype == torch.float32
        assert not torch.equal(one.diagonal, whole)  # or nothing was cast
        torch.testing.assert_close(one.diagonal, whole, rtol=0.1, atol=0.02 * float(whole.max()))


def test_the_model_is_as_found_after_a_fit_with_autocast() -> None:
    model = MODELS["linear"].model().float()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    fit_curvature(model, [MODELS["linear"].inputs().float()], autocast="bfloat16", statistics="needed")
    assert not torch.is_autocast_enabled("cpu")
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
