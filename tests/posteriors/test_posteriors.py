"""Every structure with every option keeps what a `LayerPosterior` promises."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from checks import check_posterior, check_with_prior
from curvatures import POSTERIORS, make_curvature, random_gradients
from infoform.curvature.curvature import Curvature
from infoform.curvature.eigenbasis import Eigenbasis
from infoform.posteriors import PRESETS, STRUCTURES, FullPosterior, InfPosterior, LayerPosterior
from infoform.priors import LayerPrior

G, A = 4, 6
FULL_RANK = G * A
TRUNCATED = (3, 4)  # columns kept of U_G and U_A

CORES_AND_STORAGES: list[dict[str, Any]] = [
    {"core": "full"},
    {"core": "full", "storage": torch.bfloat16},
    {"core": "full", "storage": torch.uint8},
    {"core": "diagonal"},
]
# options by structure; a structure that is not here is tested with its defaults
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "diag": [{"storage": storage} for storage in (None, torch.bfloat16, torch.uint8)],
    "kfac": [{"damping": damping} for damping in ("factored", "exact")],
    "efb": [{"basis": basis} for basis in ("gradient", "activation")],
    "inf": [
        {"rank": 5, "basis": basis, "support": support, "correction": correction, **others}
        for basis, support, correction in itertools.product(
            ("gradient", "activation"), ("top", "grid"), ("scaled", "additive")
        )
        for others in CORES_AND_STORAGES
    ],
}
OWN = [name for name, one in STRUCTURES.items() if one.posterior.structure == name]  # test_by_layer.py has the other
CASES = [(name, options) for name in OWN for options in OPTIONS.get(name, [{}])]
CASES += [(name, options | ({"rank": 5} if name == "inf" else {})) for name, options in PRESETS.values() if name in OWN]

# the prior of a layer with tau; every prior that a structure must carry
PRIORS: dict[str, Callable[[Curvature, float], LayerPrior]] = {
    "isotropic": lambda curvature, tau: LayerPrior(tau),
    "one precision a column": lambda curvature, tau: LayerPrior(tau * column_weights(curvature)),
    "columns and low rank": lambda curvature, tau: LayerPrior(tau * column_weights(curvature), *low_rank(curvature)),
}

ROUNDED = [(name, options) for name, options in CASES if options.get("storage") is not None]
ADDITIVE = [(name, options) for name, options in CASES if options.get("correction") == "additive"]

every_case = pytest.mark.parametrize(("structure", "options"), CASES, ids=str)
every_prior = pytest.mark.parametrize("prior", PRIORS.values(), ids=PRIORS.keys())


def column_weights(curvature: Curvature) -> Tensor:  # (A,)
    return torch.linspace(0.5, 2.0, curvature.shape[1], dtype=torch.float64)


def low_rank(curvature: Curvature, *, rank: int = 2) -> tuple[Tensor, Tensor]:  # (A, p), (p,)
    """Return leading eigenpairs of the layer's input factor, as the activation prior has them."""
    assert curvature.input_factor is not None
    values, vectors = torch.linalg.eigh(curvature.input_factor.double())
    return vectors[:, -rank:], values[-rank:]


def layer(*, examples: int = 12, basis_columns: tuple[int, int] | None = None, seed: int = 0) -> Curvature:
    """Return a layer with fewer examples than weights: its exact block is rank-deficient."""
    return make_curvature(*random_gradients(examples=examples, shape=(G, A), seed=seed), basis_columns=basis_columns)


def build(
    structure: str, curvature: Curvature, *, prior: LayerPrior, num_data: float = 40.0, **options: Any
) -> LayerPosterior:
    built: LayerPosterior = POSTERIORS[structure].from_curvature(curvature, prior=prior, num_data=num_data, **options)
    return built


@every_prior
@every_case
@pytest.mark.parametrize("columns", [None, TRUNCATED], ids=["whole basis", "truncated basis"])
def test_every_structure_conforms(
    structure: str,
    options: dict[str, Any],
    prior: Callable[[Curvature, float], LayerPrior],
    columns: tuple[int, int] | None,
) -> None:
    curvature = layer(basis_columns=columns)
    posterior = build(structure, curvature, prior=prior(curvature, 0.7), **options)
    if options.get("storage") is None or structure == "inf":
        assert posterior.dtype == torch.float64
        check_posterior(posterior)
    else:  # computes in float32
        check_posterior(posterior, rtol=1e-5)


@every_prior
@every_case
def test_one_example_is_enough_with_a_prior(
    structure: str, options: dict[str, Any], prior: Callable[[Curvature, float], LayerPrior]
) -> None:
    curvature = make_curvature(*random_gradients(examples=1, shape=(G, A), positions=1))
    posterior = build(structure, curvature, prior=prior(curvature, 0.7), **options)
    check_posterior(posterior, rtol=1e-9 if posterior.dtype == torch.float64 else 1e-5)


@every_prior
@every_case
def test_another_prior_is_the_same_as_building_anew(
    structure: str, options: dict[str, Any], prior: Callable[[Curvature, float], LayerPrior]
) -> None:
    curvature = layer()
    check_with_prior(
        lambda given, count: build(structure, curvature, prior=given, num_data=count, **options),
        (prior(curvature, 0.7), 40.0),
        (prior(curvature, 3.0), 7.0),
    )


@pytest.mark.parametrize(
    ("structure", "options", "prior"),
    [
        pytest.param(*case, make_prior, id=f"{case}-{name}")
        for case in CASES
        for name, make_prior in PRIORS.items()
        if case not in ROUNDED  # compared with what is stored, in test_inf
        and (case[0] not in ("kfac", "efb") or name == "isotropic")  # others keep their diagonal alone, see below
    ],
)
@pytest.mark.parametrize("columns", [None, TRUNCATED], ids=["whole basis", "truncated basis"])
def test_precision_is_the_formula_written_densely(
    structure: str,
    options: dict[str, Any],
    prior: Callable[[Curvature, float], LayerPrior],
    columns: tuple[int, int] | None,
) -> None:
    curvature = layer(basis_columns=columns)
    given = prior(curvature, 0.7)
    posterior = build(structure, curvature, prior=given, num_data=40.0, **options)
    information = dense_precision(posterior, curvature, options, 40.0, given)
    assert_close(posterior.dense(), information, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("options", OPTIONS["efb"], ids=str)
def test_efb_keeps_the_diagonal_of_the_prior_in_its_basis(options: dict[str, Any]) -> None:
    curvature = layer()
    prior = PRIORS["columns and low rank"](curvature, 0.7)
    without = build("efb", curvature, prior=LayerPrior(0.0), **options).dense()
    found = build("efb", curvature, prior=prior, **options).dense() - without
    eigen = curvature.bases[options["basis"]]
    basis = torch.kron(eigen.gradient_vectors, eigen.input_vectors)
    given = basis.T @ dense_prior(prior) @ basis
    assert_close(basis.T @ found @ basis, given.diag().diag(), rtol=1e-9, atol=1e-9)
    assert_close(found.trace(), dense_prior(prior).trace(), rtol=1e-9, atol=0)


def test_exactly_damped_kfac_has_all_of_a_prior_that_shares_its_eigenvectors() -> None:
    curvature = layer()
    prior = LayerPrior(torch.full((A,), 0.7, dtype=torch.float64), *low_rank(curvature))
    posterior = build("kfac", curvature, prior=prior, num_data=40.0, damping="exact")
    without = build("kfac", curvature, prior=LayerPrior(0.0), num_data=40.0, damping="exact")
    assert_close(posterior.dense(), without.dense() + dense_prior(prior), rtol=1e-9, atol=1e-9)


def dense_prior(prior: LayerPrior) -> Tensor:  # (G * A, G * A)
    """Return kron(I_G, diag(precision) + W V Wᵀ)."""
    precision = torch.as_tensor(prior.precision, dtype=torch.float64).expand(A).diag()
    if prior.vectors is not None and prior.values is not None:
        precision = precision + prior.vectors @ prior.values.diag() @ prior.vectors.T
    return torch.kron(torch.eye(G, dtype=torch.float64), precision)


def dense_precision(
    posterior: LayerPosterior, curvature: Curvature, options: dict[str, Any], n: float, prior: LayerPrior
) -> Tensor:
    """Return P from the table in the documentation; S of "inf" is the posterior's own, as it is rounded."""
    name = posterior.structure
    assert curvature.diagonal is not None
    if name == "diag":
        return n * curvature.diagonal.flatten().diag() + dense_prior(prior)
    if name == "full":
        assert curvature.block is not None
        return n * curvature.block + dense_prior(prior)
    if name == "kfac":
        assert curvature.input_factor is not None
        assert curvature.gradient_factor is not None
        assert curvature.positions is not None
        a, g, tau = curvature.input_factor, curvature.gradient_factor / curvature.positions, float(prior.precision)
        if options["damping"] == "exact":
            return n * torch.kron(g, a) + dense_prior(prior)
        return torch.kron(
            n**0.5 * g + tau**0.5 * torch.eye(G, dtype=torch.float64),
            n**0.5 * a + tau**0.5 * torch.eye(A, dtype=torch.float64),
        )
    eigen = curvature.bases[options["basis"]]
    basis = torch.kron(eigen.gradient_vectors, eigen.input_vectors)
    if name == "efb":
        return n * (basis * eigen.eigenvalues.flatten()) @ basis.T + dense_prior(prior)
    assert isinstance(posterior, InfPosterior)
    low_rank = basis @ naive_core(eigen, options) @ basis.T
    scale = torch.ones(FULL_RANK, dtype=torch.float64) if posterior.scale is None else posterior.scale.flatten()
    rest = curvature.diagonal.flatten() - scale**2 * low_rank.diag()
    if posterior.scale is None:
        rest = rest.clamp_min(0)
    return n * (scale[:, None] * low_rank * scale + rest.diag()) + dense_prior(prior)


def naive_core(eigen: Eigenbasis, options: dict[str, Any]) -> Tensor:  # (g a, g a), 0 where not kept
    """Return Λ of the kept pairs and, where it is to be full, what the measured ones among them know of each other."""
    pairs = [(row, column) for row in range(eigen.eigenvalues.shape[0]) for column in range(eigen.eigenvalues.shape[1])]
    measured: list[tuple[int, int]] = []
    if options.get("core", "full") == "full":
        assert eigen.core_pairs is not None
        measured = [(int(row), int(column)) for row, column in eigen.core_pairs.T]
    largest = sorted(pairs, key=lambda pair: (pair not in measured, -float(eigen.eigenvalues[pair])))[: options["rank"]]
    if options["support"] == "grid":
        rows, columns = {row for row, _ in largest}, {column for _, column in largest}
        largest = [(row, column) for row in rows for column in columns]
    core = torch.zeros(len(pairs), len(pairs), dtype=torch.float64)
    for one in largest:
        core[pairs.index(one), pairs.index(one)] = eigen.eigenvalues[one]
        for other in largest:
            if one in measured and other in measured:
                assert eigen.core is not None
                core[pairs.index(one), pairs.index(other)] = eigen.core[measured.index(one), measured.index(other)]
    return core


WITHOUT_INFORMATION: dict[str, dict[str, Any]] = {
    "a dead output": {"zero_rows": (1,)},
    "a dead input": {"zero_columns": (2,)},
    "dead outputs and inputs": {"zero_rows": (0, 3), "zero_columns": (4,)},
    "single weights": {"zero_weights": ((1, 2), (3, 0), (3, 5))},
    "a dead input and single weights": {"zero_columns": (5,), "zero_weights": ((0, 0), (2, 4))},
}
DEAD_UNITS = [name for name, zeros in WITHOUT_INFORMATION.items() if "zero_weights" not in zeros]


def layer_without(which: str, *, examples: int) -> Curvature:
    zeros = dict(WITHOUT_INFORMATION[which])
    single = zeros.pop("zero_weights", ())
    return make_curvature(*random_gradients(examples=examples, shape=(G, A), **zeros), zero_weights=single)


@every_prior
@every_case
@pytest.mark.parametrize("which", WITHOUT_INFORMATION)
def test_weights_without_information_have_the_prior(
    structure: str, options: dict[str, Any], which: str, prior: Callable[[Curvature, float], LayerPrior]
) -> None:
    curvature = layer_without(which, examples=12)
    posterior = build(structure, curvature, prior=prior(curvature, 0.7), **options)
    check_posterior(posterior, rtol=1e-9 if posterior.dtype == torch.float64 else 1e-5)


@pytest.mark.parametrize(
    ("structure", "options", "which"),
    [
        pytest.param(*case, which, id=f"{case}-{which}")
        for case in CASES
        # the additive correction gives single weights a precision, but D = 0: refused, tested below
        for which in (DEAD_UNITS if case in ADDITIVE else WITHOUT_INFORMATION)
    ],
)
def test_weights_without_information_are_held_fixed_without_a_prior(
    structure: str, options: dict[str, Any], which: str
) -> None:
    curvature = layer_without(which, examples=300)
    assert curvature.diagonal is not None
    fixed = curvature.diagonal == 0
    if structure in ("kfac", "efb"):  # which know of single weights only through their row and column
        fixed = fixed.all(1, keepdim=True) | fixed.all(0, keepdim=True)
    if options.get("correction") == "additive":
        options = options | {"rank": 1}  # at which D is positive for every other weight, so that P is invertible
    posterior = build(structure, curvature, prior=LayerPrior(0.0), **options)
    check_posterior(posterior, rtol=1e-9 if posterior.dtype == torch.float64 else 1e-4, fixed=fixed)


@pytest.mark.parametrize("rank", [1, 5, FULL_RANK - 1, FULL_RANK])
def test_the_scaled_correction_needs_no_prior_at_any_rank(rank: int) -> None:
    curvature = layer(examples=300)
    check_posterior(build("inf", curvature, prior=LayerPrior(0.0), rank=rank))


def test_a_singular_posterior_is_refused_and_names_the_prior_precision() -> None:
    few = layer(examples=3)
    enough = layer(examples=300)
    truncated = layer(examples=300, basis_columns=TRUNCATED)
    dead_weight = layer_without("single weights", examples=300)
    one = make_curvature(*random_gradients(examples=1, shape=(G, A), positions=1))
    none = LayerPrior(0.0)
    singular: dict[str, LayerPosterior] = {
        "full, fewer examples than weights": build("full", few, prior=none),
        "kfac, one example": build("kfac", one, prior=none),
        "okf, one example": build("kfac", one, prior=none, damping="exact"),
        "efb, one example": build("efb", one, prior=none),
        "efb, truncated": build("efb", truncated, prior=none),
        "inf, paper, clipped": build("inf", enough, prior=none, rank=FULL_RANK, correction="additive"),
        "inf, paper, indefinite": build("inf", enough, prior=none, rank=FULL_RANK, correction="additive", clip=False),
        "inf, paper, f = 0 < q": build("inf", dead_weight, prior=none, rank=1, correction="additive"),
    }
    x = torch.ones(G, A, dtype=torch.float64)
    for name, posterior in singular.items():
        for use in (posterior.transform, posterior.solve, lambda _, one=posterior: one.log_det()):
            with pytest.raises(ValueError, match="prior_precision"):
                use(x)
        assert posterior.dense().isfinite().all(), name  # what it is can be looked at all the same
        assert posterior.quadratic_form(x).isfinite(), name


@every_case
def test_repeated_eigenvalues_do_no_harm(structure: str, options: dict[str, Any]) -> None:
    outputs, inputs = 3, 4
    a = torch.eye(inputs, dtype=torch.float64).repeat(outputs, 1).unsqueeze(1)  # all pairs of unit vectors, so that
    g = torch.eye(outputs, dtype=torch.float64).repeat_interleave(inputs, 0).unsqueeze(1)  # every eigenvalue is equal
    curvature = make_curvature(a, g)
    for tau in (0.7, 0.0):
        if tau == 0 and options.get("correction") == "additive":
            continue  # D = f − q_T is exactly 0 where a pair is kept
        posterior = build(structure, curvature, prior=LayerPrior(tau), **options)
        check_posterior(posterior, rtol=1e-9 if posterior.dtype == torch.float64 else 1e-5)


@every_case
def test_an_example_without_any_gradient_leaves_the_prior(structure: str, options: dict[str, Any]) -> None:
    a, g = random_gradients(examples=3, shape=(G, A))
    posterior = build(structure, make_curvature(a, 0 * g), prior=LayerPrior(0.7), **options)
    check_posterior(posterior, rtol=1e-9 if posterior.dtype == torch.float64 else 1e-5)
    if options.get("damping") != "factored":
        expected = 0.7 * torch.eye(FULL_RANK, dtype=posterior.dtype)
        assert_close(posterior.dense(), expected, rtol=1e-9 if posterior.dtype == torch.float64 else 1e-6, atol=1e-9)


@every_case
@pytest.mark.parametrize("condition", [1e6, 1e9, 1e12])
def test_badly_conditioned_layers_lose_no_more_than_their_condition_number(
    structure: str, options: dict[str, Any], condition: float
) -> None:
    scales = torch.logspace(0, -6, A, dtype=torch.float64)
    curvature = make_curvature(*random_gradients(examples=300, shape=(G, A), input_scales=scales))
    curvature_size = float(build("full", curvature, prior=LayerPrior(0.0), num_data=1.0).diagonal().max())
    posterior = build(
        structure, curvature, prior=LayerPrior(1e-6), num_data=1e-6 * condition / curvature_size, **options
    )
    if posterior.dtype != torch.float64:
        return  # a diagonal, computed in float32: nothing that a condition number can spoil
    values = torch.linalg.eigvalsh(posterior.dense())
    measured = float(values[-1] / values[0])
    if options.get("damping") != "factored":  # which adds √τ times the factors, and so is never as bad
        assert measured > condition / 100, "the case is not as hard as it says"
    rounding = measured * torch.finfo(torch.float64).eps  # condition number times rounding
    check_posterior(posterior, rtol=max(10 * rounding, 1e-9), whitened=True)
    if options.get("correction") != "additive":  # whose D' spans as many magnitudes as P, and enters once more below
        check_posterior(posterior, rtol=max(100 * rounding, 1e-9))


@every_case
@pytest.mark.parametrize("stiffness", [1e3, 1e6, 1e9, 1e12])
def test_a_prior_that_is_stiff_in_a_few_directions_loses_no_more_than_the_condition_number(
    structure: str, options: dict[str, Any], stiffness: float
) -> None:
    curvature = layer()
    vectors, values = low_rank(curvature)
    prior = LayerPrior(torch.full((A,), 1e-6, dtype=torch.float64), vectors, values / values.max() * 1e-6 * stiffness)
    posterior = build(structure, curvature, prior=prior, num_data=1e-6, **options)
    if stiffness * torch.finfo(posterior.dtype).eps > 1e-3:
        return  # stored in half precision, computed in float32: P itself is but rounding
    eigenvalues = torch.linalg.eigvalsh(posterior.dense().double())
    rounding = float(eigenvalues[-1] / eigenvalues[0]) * torch.finfo(posterior.dtype).eps
    check_posterior(posterior, rtol=max(10 * rounding, 1e-9), whitened=True)


@every_case
def test_float32_loses_no_more_than_the_condition_number(structure: str, options: dict[str, Any]) -> None:
    curvature = make_curvature(*random_gradients(examples=12, shape=(G, A)), dtype=torch.float32)
    posterior = build(structure, curvature, prior=LayerPrior(0.7), num_data=4.0, **options)
    assert posterior.dtype == torch.float32
    values = torch.linalg.eigvalsh(posterior.dense().double())
    check_posterior(posterior, rtol=100 * float(values[-1] / values[0]) * torch.finfo(torch.float32).eps)


def test_statistics_that_were_not_collected_are_named() -> None:
    bare = Curvature("encoder.0", (G, A))
    for name, structure in STRUCTURES.items():
        with pytest.raises(ValueError, match=r"'encoder\.0'.*fit with"):
            structure().build(bare, prior=LayerPrior(1.0), num_data=1.0)
        assert structure.name == name
        assert structure().of_layer("encoder.0", (G, A)).name == structure.posterior.structure
    without_basis = Curvature("encoder.0", (G, A), diagonal=layer().diagonal)
    with pytest.raises(ValueError, match=r"gradient basis.*'encoder\.0'"):
        InfPosterior.from_curvature(without_basis, prior=LayerPrior(1.0), num_data=1.0)


def test_options_that_do_not_exist_are_refused() -> None:
    curvature = layer()
    for structure, options, message in (
        ("kfac", {"damping": "none"}, "damping must be one of 'factored', 'exact', got 'none'"),
        ("inf", {"rank": 5, "support": "all"}, "support must be one of 'top', 'grid', got 'all'"),
        ("inf", {"rank": 5, "correction": "no"}, "correction must be one of 'scaled', 'additive', got 'no'"),
        ("inf", {"rank": 0}, r"rank must be between 1 and 24 \(= G \* A\) for layer 'layer', got 0"),
        ("inf", {"rank": 25}, r"rank must be between 1 and 24 \(= G \* A\) for layer 'layer', got 25"),
    ):
        with pytest.raises(ValueError, match=message):
            build(structure, curvature, prior=LayerPrior(1.0), **options)
    with pytest.raises(ValueError, match=r"rank must be between 1 and 12 \(= the pairs of the truncated basis\)"):
        build("inf", layer(basis_columns=TRUNCATED), prior=LayerPrior(1.0), rank=13)


def test_samples_have_the_posterior_covariance() -> None:
    curvature = make_curvature(*random_gradients(examples=8, shape=(2, 3)))
    posterior = build("inf", curvature, prior=LayerPrior(0.7), num_data=2.0, rank=3)
    count = 200_000
    samples = posterior.sample(count, generator=torch.Generator().manual_seed(0)).flatten(1)
    expected = torch.linalg.inv(posterior.dense())
    deviations = expected.diag().sqrt()
    found = (samples.T @ samples / count) / (deviations[:, None] * deviations)
    # the standard error of a correlation is at most sqrt(2 / count); five of them
    assert_close(found, expected / (deviations[:, None] * deviations), rtol=0, atol=5 * (2 / count) ** 0.5)
    assert_close(samples.mean(0) / deviations, torch.zeros(6, dtype=torch.float64), rtol=0, atol=5 * count**-0.5)


def test_the_exact_block_is_the_reference() -> None:
    curvature = layer()
    posterior = build("full", curvature, prior=LayerPrior(0.7), num_data=40.0)
    assert isinstance(posterior, FullPosterior)
    assert curvature.block is not None
    assert curvature.diagonal is not None
    expected = 40.0 * curvature.block + 0.7 * torch.eye(FULL_RANK, dtype=torch.float64)
    assert_close(posterior.dense(), expected, rtol=1e-9, atol=1e-9)
    assert_close(posterior.diagonal(), 40.0 * curvature.diagonal + 0.7, rtol=1e-9, atol=0)


@pytest.mark.parametrize("prior_rank", [0, 2])
@pytest.mark.parametrize("shape", [(20, 3), (3, 20)])
def test_inf_conforms_whichever_side_of_a_layer_is_the_narrow_one(shape: tuple[int, int], prior_rank: int) -> None:
    curvature = make_curvature(*random_gradients(examples=6, shape=shape))
    vectors = torch.linalg.qr(torch.randn(shape[1], 2, generator=torch.Generator().manual_seed(1)).double()).Q
    low_rank = (vectors[:, :prior_rank], torch.tensor([2.0, 0.4], dtype=torch.float64)[:prior_rank])
    prior = LayerPrior(torch.full((shape[1],), 0.7, dtype=torch.float64), *(low_rank if prior_rank else ()))
    for rank in (4, 60):
        check_posterior(build("inf", curvature, prior=prior, rank=rank))


@pytest.mark.parametrize("structure", ["full", "efb"])
def test_a_layer_without_information_and_prior_is_fixed_and_has_no_determinant(structure: str) -> None:
    curvature = make_curvature(*(0 * one for one in random_gradients(examples=3, shape=(G, A))))
    posterior = build(structure, curvature, prior=LayerPrior(0.0))
    assert float(posterior.log_det()) == 0
    assert not posterior.transform(torch.ones(1, G, A, dtype=torch.float64)).any()
