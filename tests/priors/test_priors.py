"""The activation prior is its formula, every structure carries it, and files and errors know of it."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import infoform
from checks import check_posterior
from dense import assert_close
from flat import flat_laplace
from infoform import Laplace, LayerPrior, Prior
from infoform.curvature.input_spectrum import input_spectrum
from infoform.posteriors import PRESETS, STRUCTURES
from infoform.posteriors.row_blocks import RowBlocks, row_covariance
from infoform.priors import PRIORS, Activation, Isotropic, get_prior
from models import MODELS

CASES = ["linear", "linear without bias", "grouped conv", "linear on tokens"]
EVERY = [*STRUCTURES, *PRESETS]
WHOLE = 64  # a prior_rank above the inputs of every layer in MODELS


def fitted(case: str = "linear", **options: Any) -> Laplace:
    given: dict[str, Any] = {"prior": "activation", "structure": "diag", "rank": 4} | options
    data = [(MODELS[case].inputs(9), torch.arange(9) % 3)]
    return flat_laplace(MODELS[case].model(), "classification", **given).fit(data, progress=False)


def input_factor(laplace: Laplace, name: str) -> Tensor:  # (A, A)
    factor = laplace.curvature[name].input_factor
    assert factor is not None
    return factor


def layer_prior(laplace: Laplace, name: str, **hyperparameters: Any) -> LayerPrior:
    return laplace.posterior(**hyperparameters).layers[name].prior


def formula(laplace: Laplace, name: str, *, tau: float, num_data: float, strength: float = 30.0) -> Tensor:  # (A, A)
    factor = input_factor(laplace, name)
    return tau * torch.eye(len(factor)).double() + strength * math.sqrt(num_data * tau) * factor


def over_rows(one: Tensor, rows: int) -> Tensor:  # (A, A) -> (G * A, G * A)
    return torch.kron(torch.eye(rows, dtype=one.dtype), one)


@pytest.mark.parametrize("strength", [30.0, 0.3])
@pytest.mark.parametrize("case", CASES)
def test_the_whole_prior_is_its_formula(case: str, strength: float) -> None:
    laplace = fitted(case, prior=Activation(0.4, strength=strength), prior_rank=WHOLE)
    for name in MODELS[case].layers:
        found = layer_prior(laplace, name)
        expected = formula(laplace, name, tau=0.4, num_data=9, strength=strength)
        assert_close(found.dense(len(expected), like=expected), expected)
        found = layer_prior(laplace, name, prior_precision=3.0, num_data=50.0)
        expected = formula(laplace, name, tau=3.0, num_data=50, strength=strength)
        assert_close(found.dense(len(expected), like=expected), expected)


@pytest.mark.parametrize("prior_rank", [0, 1, 2, 3, 5, WHOLE])
@pytest.mark.parametrize("case", CASES)
def test_the_diagonal_is_exact_and_the_rest_leading_eigenpairs(case: str, prior_rank: int) -> None:
    laplace = fitted(case, prior=Activation(0.4, strength=1.0), prior_rank=prior_rank)
    for name in MODELS[case].layers:
        factor = input_factor(laplace, name)
        whole = formula(laplace, name, tau=0.4, num_data=9, strength=1.0)
        found = layer_prior(laplace, name)
        assert found.rank == min(prior_rank, len(factor))
        dense = found.dense(len(factor), like=factor)
        assert_close(dense.diag(), whole.diag())
        values, vectors = torch.linalg.eigh(factor)
        values, vectors = values.flip(0)[:prior_rank], vectors.flip(1)[:, :prior_rank]
        leading = math.sqrt(9 * 0.4) * (vectors * values) @ vectors.T
        assert_close(dense - dense.diag().diag(), leading - leading.diag().diag(), rtol=1e-8)
        if prior_rank:
            assert found.vectors is not None
            assert found.values is not None
            eye = torch.eye(found.rank, dtype=torch.float64)
            assert_close(found.vectors.T @ found.vectors, eye)
            assert_close(found.values, math.sqrt(9 * 0.4) * values.clamp_min(0))
            assert torch.isfinite(found.vectors).all()
        assert (torch.as_tensor(found.precision) >= 0.4).all()  # what is left of A's diagonal is never negative


@settings(max_examples=50, deadline=None)
@given(size=st.integers(1, 7), examples=st.integers(1, 9), rank=st.integers(0, 8), seed=st.integers(0, 1000))
def test_a_spectrum_has_the_exact_diagonal_and_the_exact_leading_part(
    size: int, examples: int, rank: int, seed: int
) -> None:
    inputs = torch.randn(examples, size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    factor = inputs.T @ inputs
    found = input_spectrum(factor, rank=rank, name="layer")
    low_rank = (found.vectors * found.values) @ found.vectors.T
    assert_close(found.remainder + low_rank.diag(), factor.diag())
    assert (found.remainder >= 0).all()
    assert len(found.values) == min(rank, size)
    leading = torch.linalg.eigvalsh(factor).flip(0)[:rank]
    torch.testing.assert_close(found.values, leading.clamp_min(0), rtol=1e-9, atol=1e-9 * float(factor.trace()))


@pytest.mark.parametrize("prior_rank", [0, 3, WHOLE])
def test_the_quadratic_form_along_columns_is_the_dense_one(prior_rank: int) -> None:
    laplace = fitted("grouped conv", prior_rank=prior_rank)
    columns = torch.randn(9, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for prior in (layer_prior(laplace, "0"), LayerPrior(0.7)):
        dense = prior.dense(9, like=columns)
        assert_close(prior.along(columns), (columns.T @ dense @ columns).diag())


@pytest.mark.parametrize("basis_size", [None, 2])
@pytest.mark.parametrize("prior_rank", [0, 2, WHOLE])
@pytest.mark.parametrize("structure", EVERY)
@pytest.mark.parametrize("case", ["linear", "grouped conv"])
def test_every_structure_conforms_with_it(case: str, structure: str, prior_rank: int, basis_size: int | None) -> None:
    laplace = fitted(case, structure=structure, prior_rank=prior_rank, basis_size=basis_size)
    for tau in (0.05, 2.0):
        posterior = laplace.posterior(prior_precision=tau)
        for layer in posterior.layers.values():
            check_posterior(layer)


@pytest.mark.parametrize("prior_rank", [0, 2, WHOLE])
@pytest.mark.parametrize("structure", ["diag", "inf", "inf-paper", "full"])
@pytest.mark.parametrize("case", CASES)
def test_structures_that_are_not_kronecker_have_all_of_it(case: str, structure: str, prior_rank: int) -> None:
    laplace = fitted(case, structure=structure, prior_rank=prior_rank)
    check_sum_of_information_and_prior(laplace)


@pytest.mark.parametrize("structure", ["okf-paper", "efb-paper"])
@pytest.mark.parametrize("case", CASES)
def test_kronecker_structures_in_the_activation_basis_have_all_of_a_whole_prior(case: str, structure: str) -> None:
    check_sum_of_information_and_prior(fitted(case, structure=structure, prior_rank=WHOLE))


def check_sum_of_information_and_prior(laplace: Laplace) -> None:
    """P = N (what the structure has without a prior) + kron(I_G, Q)."""
    bare = laplace.posterior(prior="isotropic", prior_precision=0, num_data=1)
    posterior = laplace.posterior(prior_precision=0.4, num_data=30)
    for name, layer in posterior.layers.items():
        rows, columns = layer.shape
        information = bare.layers[name].dense()
        prior = layer.prior.dense(columns, like=information)
        assert_close(layer.dense(), 30 * information + over_rows(prior, rows))
        assert_close(layer.diagonal().flatten(), (30 * information + over_rows(prior, rows)).diag())


@pytest.mark.parametrize("structure", EVERY)
def test_without_strength_it_is_the_isotropic_prior(structure: str) -> None:
    laplace = fitted(structure=structure, prior=Activation(0.4, strength=0.0))
    isotropic = laplace.posterior(prior="isotropic")
    for name, layer in laplace.posterior().layers.items():
        assert_close(layer.dense(), isotropic.layers[name].dense())


def test_factored_damping_of_kfac_is_where_the_prior_comes_from() -> None:
    laplace = fitted(structure="kfac", prior="isotropic", statistics="all", prior_rank=WHOLE)
    n, tau = 30.0, 0.4
    factored = laplace.posterior(prior_precision=tau, num_data=n)
    prior = laplace.posterior(prior=Activation(tau, strength=1.0), structure="diag", num_data=n)
    for name, layer in factored.layers.items():
        one = laplace.curvature[name]
        assert one.gradient_factor is not None
        assert one.positions is not None
        gradients = one.gradient_factor / one.positions
        rows, columns = layer.shape
        eye = torch.eye(columns, dtype=torch.float64)
        cross = torch.kron(gradients, math.sqrt(n * tau) * eye)  # the term that the prior leaves out
        expected = (
            n * torch.kron(gradients, input_factor(laplace, name))
            + over_rows(prior.layers[name].prior.dense(columns, like=eye), rows)
            + cross
        )
        assert_close(layer.dense(), expected)


def test_precisions_are_global_or_by_layer() -> None:
    laplace = fitted(prior_rank=2)
    by_layer = laplace.posterior(prior_precision={"0": 0.3, "2": 5.0})
    for name, tau in (("0", 0.3), ("2", 5.0)):
        same = laplace.posterior(prior_precision=tau).layers[name]
        assert torch.equal(by_layer.layers[name].dense(), same.dense())
    laplace.prior_precision = {"0": 0.3, "2": 5.0}
    assert laplace.prior_precision == {"0": 0.3, "2": 5.0}
    assert torch.equal(laplace.posterior().layers["2"].dense(), by_layer.layers["2"].dense())
    with pytest.raises(ValueError, match="a value for each layer, got none for '2'"):
        laplace.posterior(prior_precision={"0": 0.3})


def test_another_precision_keeps_the_strength() -> None:
    laplace = fitted(prior=Activation(1.0, strength=0.25), prior_rank=WHOLE)
    laplace.prior_precision = 4.0
    assert isinstance(laplace.prior, Activation)
    assert laplace.prior.strength == 0.25
    expected = formula(laplace, "0", tau=4.0, num_data=9, strength=0.25)
    assert_close(layer_prior(laplace, "0").dense(5, like=expected), expected)


def test_the_information_scale_of_a_regression_counts_as_data() -> None:
    model, x = MODELS["linear"].model(), MODELS["linear"].inputs(9)
    y = torch.zeros(9, 3).double()
    laplace = flat_laplace(
        model, infoform.Regression(noise=0.5), structure="diag", prior="activation", prior_rank=WHOLE
    )
    laplace.fit([(x, y)], progress=False)
    expected = formula(laplace, "0", tau=1.0, num_data=9 / 0.5**2)
    assert_close(layer_prior(laplace, "0").dense(5, like=expected), expected)


@pytest.mark.parametrize("structure", EVERY)
def test_a_fit_with_all_statistics_gives_it_to_every_structure(structure: str) -> None:
    everything = fitted(structure="inf", prior="isotropic", statistics="all", prior_rank=2)
    everything.prior_precision = 0.4
    own = fitted(structure=structure, prior=Activation(0.4), prior_rank=2)
    found = everything.posterior(structure=structure, prior="activation")
    for name, layer in own.posterior().layers.items():
        assert_close(found.layers[name].dense(), layer.dense())
    given_whole = everything.posterior(structure=structure, prior=Activation(0.4))
    assert_close(given_whole.layers["0"].dense(), found.layers["0"].dense())
    assert isinstance(everything.prior, Isotropic)  # asking does not change the object


def test_a_prior_object_brings_its_own_precision() -> None:
    laplace = fitted(prior=Activation(0.4), prior_rank=2)
    found = laplace.posterior(prior=Isotropic(7.0)).layers["0"].prior
    assert found.precision == 7.0
    assert laplace.posterior(prior="isotropic").layers["0"].prior.precision == 0.4
    assert laplace.posterior(prior=Isotropic(7.0), prior_precision=2.0).layers["0"].prior.precision == 2.0


@pytest.mark.parametrize("structure", EVERY)
def test_a_file_without_curvature_holds_all_that_it_needs(structure: str, tmp_path: Path) -> None:
    laplace = fitted("grouped conv", structure=structure, prior=Activation(0.4, strength=0.3), prior_rank=2)
    laplace.save(tmp_path / "file")
    loaded = infoform.load(tmp_path / "file", MODELS["grouped conv"].model())
    assert isinstance(loaded.prior, Activation)
    assert (loaded.prior.precision, loaded.prior.strength) == (0.4, 0.3)
    others: list[dict[str, Any]] = [{}, {"prior_precision": 3.0, "num_data": 20.0}, {"prior": "isotropic"}]
    for hyperparameters in others:
        expected = laplace.posterior(**hyperparameters)
        for name, layer in loaded.posterior(**hyperparameters).layers.items():
            assert_close(layer.dense(), expected.layers[name].dense(), rtol=1e-12)
    x = MODELS["grouped conv"].inputs()
    assert_close(loaded.predict(x).epistemic, laplace.predict(x).epistemic)
    loaded.prior_precision = 2.0
    assert_close(loaded.predict(x).probs, laplace.predict(x, posterior=laplace.posterior(prior_precision=2.0)).value)
    loaded.save(tmp_path / "again")
    again = infoform.load(tmp_path / "again", MODELS["grouped conv"].model())
    assert torch.equal(again.posterior().layers["0"].dense(), loaded.posterior().layers["0"].dense())


def test_precisions_by_layer_survive_a_file(tmp_path: Path) -> None:
    laplace = fitted(prior_rank=2)
    laplace.prior_precision = {"0": 0.3, "2": 5.0}
    laplace.save(tmp_path / "file")
    loaded = infoform.load(tmp_path / "file", MODELS["linear"].model())
    assert loaded.prior_precision == {"0": 0.3, "2": 5.0}
    assert torch.equal(loaded.posterior().layers["2"].dense(), laplace.posterior().layers["2"].dense())


def test_a_file_of_an_isotropic_posterior_cannot_give_it(tmp_path: Path) -> None:
    fitted(prior="isotropic").save(tmp_path / "file")
    loaded = infoform.load(tmp_path / "file", MODELS["linear"].model())
    with pytest.raises(ValueError, match="needs the inputs of layer '0'"):
        loaded.posterior(prior="activation")


def test_inputs_that_were_not_collected_are_named_with_the_remedy() -> None:
    laplace = fitted(prior="isotropic")
    with pytest.raises(ValueError, match=r"needs the inputs of layer '0', which the fit did not collect; fit with"):
        laplace.posterior(prior="activation")
    laplace.prior = Activation(1.0)
    with pytest.raises(ValueError, match="fit with prior='activation' or statistics='all'"):
        laplace.predict(MODELS["linear"].inputs())


def test_priors_that_do_not_exist_are_refused() -> None:
    message = "prior must be one of 'isotropic', 'activation' or a Prior object, got 'horseshoe'"
    with pytest.raises(ValueError, match=message):
        Laplace(MODELS["linear"].model(), "classification", prior="horseshoe")
    with pytest.raises(ValueError, match=message):
        fitted().posterior(prior="horseshoe")


@pytest.mark.filterwarnings("ignore:.*at an end of the searched range")
def test_its_strength_goes_with_how_its_precision_was_found(tmp_path: Path) -> None:
    loader = [(torch.randn(9, 4, dtype=torch.float64), torch.arange(9) % 3)]
    model = torch.nn.Sequential(torch.nn.Linear(4, 3)).double()
    laplace = flat_laplace(model, "classification", prior="activation", prior_rank=WHOLE).fit(loader, progress=False)
    expected = {"": 30.0, "evidence": 1.0, "held out": 30.0}
    for how, strength in expected.items():
        if how:
            laplace.tune(loader if how == "held out" else None, progress=False)
        assert isinstance(laplace.prior, Activation)
        assert laplace.prior.strength == strength
        tau = laplace.prior.precision
        assert isinstance(tau, float)
        hows: list[dict[str, Any]] = [{}, {"prior": "activation"}, {"structure": "inf"}, {"prior_precision": tau}]
        for options in hows:
            prior = formula(laplace, "0", tau=tau, num_data=9, strength=strength)
            assert_close(layer_prior(laplace, "0", **options).dense(5, like=prior), prior)
        laplace.save(tmp_path / "saved.safetensors", curvature=True)
        loaded = infoform.load(tmp_path / "saved.safetensors", model)
        assert isinstance(loaded.prior, Activation)
        assert (loaded.prior.strength, loaded.prior.by_evidence) == (strength, how == "evidence")


@pytest.mark.filterwarnings("ignore:.*at an end of the searched range")
@pytest.mark.parametrize("how", ["evidence", "held out"])
def test_a_strength_that_was_given_stays(how: str) -> None:
    loader = [(torch.randn(9, 4), torch.arange(9) % 3)]
    laplace = Laplace(torch.nn.Sequential(torch.nn.Linear(4, 3)), "classification", prior=Activation(strength=2.0))
    laplace.fit(loader, progress=False).tune(loader if how == "held out" else None, progress=False)
    assert isinstance(laplace.prior, Activation)
    assert laplace.prior.strength == 2.0


@pytest.mark.parametrize("strength", [-0.1, math.inf, math.nan])
def test_a_strength_that_is_no_strength_is_refused(strength: float) -> None:
    with pytest.raises(ValueError, match="strength of the activation prior must be finite and not negative, got"):
        Activation(strength=strength)


@pytest.mark.parametrize("name", PRIORS)
@pytest.mark.parametrize("precision", [-1.0, math.inf, math.nan, {"0": -1.0}])
def test_a_precision_that_is_no_precision_is_refused(name: str, precision: float | dict[str, float]) -> None:
    with pytest.raises(ValueError, match="prior_precision must be finite and not negative, got"):
        get_prior(name).with_precision(precision)


@pytest.mark.parametrize("prior_rank", [-1, 1.5, True])
def test_a_prior_rank_that_is_no_number_of_eigenpairs_is_refused(prior_rank: Any) -> None:
    with pytest.raises(ValueError, match="prior_rank must be a whole number of at least 0, got"):
        fitted(prior_rank=prior_rank)


@pytest.mark.parametrize("name", PRIORS)
def test_settings_make_the_same_prior_again(name: str) -> None:
    prior = get_prior(name).with_precision({"0": 0.3, "2": 5.0})
    again: Prior = PRIORS[name](**prior.settings())
    assert again.settings() == prior.settings()
    assert get_prior(prior) is prior


G, A = 4, 6


def row_blocks(rank: int) -> RowBlocks:
    generator = torch.Generator().manual_seed(3)
    diagonal = torch.rand(G, A, generator=generator, dtype=torch.float64) + 0.1
    if rank == 0:
        return RowBlocks(diagonal, LayerPrior(0.1))
    vectors = torch.linalg.qr(torch.randn(A, rank, generator=generator, dtype=torch.float64)).Q
    values = torch.logspace(0, 2, rank, dtype=torch.float64)
    return RowBlocks(diagonal, LayerPrior(torch.full((A,), 0.1).double(), vectors, values))


def row_inverses(blocks: RowBlocks) -> list[Tensor]:  # G of (A, A)
    """Return R_g⁻¹ of every row, formed."""
    low_rank = torch.zeros(A, A, dtype=torch.float64)
    if blocks.prior.vectors is not None and blocks.prior.values is not None:
        low_rank = blocks.prior.vectors @ blocks.prior.values.diag() @ blocks.prior.vectors.T
    return [torch.linalg.inv(row.diag() + low_rank) for row in blocks.diagonal]


def normal(*size: int) -> Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.mark.parametrize("rank", [0, 1, 2, A])
def test_row_blocks_are_their_dense_selves(rank: int) -> None:
    blocks = row_blocks(rank)
    inverse = torch.block_diag(*row_inverses(blocks))
    dense = torch.linalg.inv(inverse)
    eye = torch.eye(G * A, dtype=torch.float64).reshape(G * A, G, A)
    factor = blocks.transform(eye).flatten(1).T
    x = normal(3, G, A)
    assert_close(blocks.dense(), dense)
    assert_close(blocks.solve(eye).flatten(1), inverse)
    assert_close(factor @ factor.T, inverse)
    assert_close(blocks.log_det(), torch.linalg.slogdet(dense).logabsdet)
    assert_close(blocks.diagonal_of().flatten(), dense.diag())
    assert_close(blocks.quadratic_form(x), torch.einsum("ni,ij,nj->n", x.flatten(1), dense, x.flatten(1)))


@pytest.mark.parametrize("rank", [0, 1, 2, A])
def test_variances_by_row_are_quadratic_forms(rank: int) -> None:
    blocks, inputs = row_blocks(rank), normal(5, A)
    variances = torch.stack([((inputs @ inverse) * inputs).sum(1) for inverse in row_inverses(blocks)], dim=1)
    assert_close(blocks.row_variance(inputs), variances)
    outputs = normal(5, 3, G)
    jacobians = torch.einsum("ncg,na->ncga", outputs, inputs).flatten(2)
    expected = jacobians @ torch.block_diag(*row_inverses(blocks)) @ jacobians.mT
    assert_close(row_covariance(blocks.row_variance(inputs), outputs), expected)


@pytest.mark.parametrize("stiff", [0.0, 1e9])  # whether Jacobians are split
@pytest.mark.parametrize("rank", [0, 1, 2, A])
def test_covariances_by_row_are_quadratic_forms(rank: int, stiff: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infoform.posteriors.row_blocks.STIFF", stiff)
    blocks, jacobians = row_blocks(rank), normal(5, 3, G, A)
    expected = jacobians.flatten(2) @ torch.block_diag(*row_inverses(blocks)) @ jacobians.flatten(2).mT
    assert_close(blocks.covariance(jacobians), expected)


@pytest.mark.parametrize("rank", [1, 2, A])
def test_inputs_are_split_into_what_the_shared_part_explains_and_the_rest(rank: int) -> None:
    blocks, inputs = row_blocks(rank), normal(5, A)
    assert blocks.factor is not None
    rest, along = blocks.split(inputs)
    assert_close(rest + along @ blocks.factor.T, inputs)
    # the explained part is that of least squares with the mean D over rows, and a penalty of 1
    weights = blocks.diagonal.reciprocal().mean(0)
    gram = blocks.factor.T @ (weights.unsqueeze(1) * blocks.factor) + torch.eye(rank, dtype=torch.float64)
    assert_close(along, torch.linalg.solve(gram, (inputs * weights @ blocks.factor).T).T)


@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("rank", [0, 1, 2, A])
def test_what_rows_and_columns_share_and_grams_are_products(rank: int, scaled: bool) -> None:
    blocks, inputs, columns = row_blocks(rank), normal(5, A), normal(A, 3)
    scale = torch.rand(G, A, generator=torch.Generator().manual_seed(2), dtype=torch.float64) if scaled else None
    rows_of_scale = torch.ones(G, A).double() if scale is None else scale
    if rank:  # what the shared part takes from products of inputs with scaled columns
        inverses = torch.stack([row.reciprocal().diag() for row in blocks.diagonal]) - torch.stack(row_inverses(blocks))
        shared = blocks.whitened_shared(blocks.row_shared(scale, columns))
        raw = torch.einsum("ga,na,ap->gnp", blocks.inverse, inputs, blocks.factor)
        expected = inputs @ inverses @ (rows_of_scale.unsqueeze(2) * columns)  # (G, N, a)
        assert_close((raw @ blocks.taken(shared))[..., rank:], expected)
    gradient_vectors = normal(G, 2)
    rows, picked = torch.tensor([0, 1, 1, 0]), torch.tensor([0, 0, 2, 1])
    kept = torch.stack(
        [torch.outer(gradient_vectors[:, g], columns[:, a]).flatten() for g, a in zip(rows, picked, strict=True)], dim=1
    )
    kept = rows_of_scale.flatten().unsqueeze(1) * kept
    expected = kept.T @ torch.block_diag(*row_inverses(blocks)) @ kept
    assert_close(blocks.gram(scale, columns, gradient_vectors, rows, picked), expected, rtol=1e-8)
    if rank:  # the form for stiff priors
        assert_close(blocks._gram_of_roots(scale, columns, gradient_vectors, rows, picked), expected, rtol=1e-8)


def test_a_weight_without_precision_is_held_fixed() -> None:
    diagonal = row_blocks(0).diagonal.clone()
    diagonal[1, 2] = 0
    blocks = RowBlocks(diagonal, LayerPrior(0.0))
    x = normal(3, G, A)
    assert not blocks.transform(x)[:, 1, 2].any()
    assert not blocks.solve(x)[:, 1, 2].any()
    assert blocks.row_variance(normal(5, A)).isfinite().all()
    assert_close(blocks.log_det(), diagonal[diagonal > 0].log().sum())


@pytest.mark.parametrize("rank", [0, 3])
def test_determinant_and_quadratic_form_of_a_prior_are_the_dense_ones(rank: int) -> None:
    generator = torch.Generator().manual_seed(rank)
    precision = torch.rand(7, generator=generator, dtype=torch.float64) + 0.1
    vectors = torch.linalg.qr(torch.randn(7, 7, generator=generator, dtype=torch.float64)).Q[:, :rank]
    values = torch.rand(rank, generator=generator, dtype=torch.float64)
    prior = LayerPrior(precision, vectors, values) if rank else LayerPrior(precision)
    dense = precision.diag() + vectors * values @ vectors.T
    weights = torch.randn(4, 7, generator=generator, dtype=torch.float64)
    assert_close(prior.log_det(7), torch.linalg.slogdet(dense).logabsdet)
    assert_close(prior.quadratic_form(weights), torch.einsum("gi,ij,gj->", weights, dense, weights))


@pytest.mark.parametrize("prior_rank", [1, 3, WHOLE])
def test_vectors_in_float32_are_stored_in_half_and_the_diagonal_stays_exact(prior_rank: int) -> None:
    inputs = torch.randn(30, 9, generator=torch.Generator().manual_seed(0)) * torch.linspace(0.1, 3, 9)
    factor = inputs.T @ inputs / 30
    whole = input_spectrum(factor, rank=prior_rank, name="layer")
    stored = whole.stored()
    assert stored.vectors.nbytes * 2 == whole.vectors.nbytes
    low_rank = stored.vectors.double() * stored.values.double() @ stored.vectors.double().T
    torch.testing.assert_close(stored.remainder.double() + low_rank.diag(), factor.diag().double(), rtol=1e-6, atol=0)
    error = low_rank - (whole.vectors * whole.values @ whole.vectors.T).double()
    assert float(error.norm() / low_rank.norm()) < 2**-6
    exact = input_spectrum(factor.double(), rank=prior_rank, name="layer")
    assert exact.stored() is exact
