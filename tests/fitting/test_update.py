"""Information adds: a fit on more data, in the basis kept, is the fit on all of it."""

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import infoform
from dense import (
    assert_close,
    exact_vectors,
    make_reference,
    read_logits,
    sampled_vectors,
    score_vectors,
)
from flat import flat_laplace
from infoform import Curvature, Laplace, Regression
from infoform.curvature.eigenbasis import Eigenbasis
from infoform.curvature.merge import merge_fits
from infoform.likelihoods import FISHER_KINDS, LIKELIHOODS, Likelihood
from infoform.posteriors import PRESETS, STRUCTURES
from likelihood_cases import WITH_THREE_OUTPUTS
from models import MODELS

EVERY = [*STRUCTURES, *PRESETS]
WITHOUT_BASIS = ["diag", "kfac", "okf-paper", "full"]
WITH_BASIS = ["efb", "inf", "efb-paper", "inf-paper"]
CASES = ["linear", "linear on tokens", "grouped conv", "tied weights"]
FIRST, SECOND = 11, 6  # examples
SEED, SAMPLES = 4, 2

Data = list[tuple[Tensor, Tensor]]


def make_data(case: str, *, likelihood: str = "classification") -> tuple[Data, Data]:
    """Return two data sets of different sizes, in batches of different sizes; the second is on another scale."""
    x = MODELS[case].inputs(FIRST + SECOND)
    x[FIRST:] *= 3
    generator = torch.Generator().manual_seed(7)
    y = torch.randint(0, 3, (len(x),), generator=generator)
    if likelihood != "classification":
        y = torch.rand(len(x), 3, dtype=torch.float64, generator=generator)
    cuts = [0, 4, 8, FIRST, FIRST + 1, FIRST + SECOND]
    batches = [(x[start:stop], y[start:stop]) for start, stop in itertools.pairwise(cuts)]
    return batches[:3], batches[3:]


def make_laplace(case: str, *, likelihood: str | Likelihood = "classification", **options: Any) -> Laplace:
    given: dict[str, Any] = {"rank": 5, "fisher_samples": SAMPLES, "seed": SEED} | options
    return flat_laplace(MODELS[case].model(), likelihood, **given)


def updated(case: str, first: Data, second: Data, **options: Any) -> Laplace:
    laplace = make_laplace(case, **options).fit(first, progress=False)
    return laplace.fit(second, update=True, progress=False)


def check_same_posterior(found: Laplace, expected: Laplace) -> None:
    assert found.num_data == expected.num_data
    posterior = expected.posterior()
    assert found.posterior().layers.keys() == posterior.layers.keys()
    for name, layer in found.posterior().layers.items():
        assert_close(layer.dense(), posterior.layers[name].dense())


@pytest.mark.parametrize("fisher", FISHER_KINDS)
@pytest.mark.parametrize("structure", WITHOUT_BASIS)
@pytest.mark.parametrize("case", CASES)
def test_an_update_is_the_fit_on_both_where_no_basis_is_needed(case: str, structure: str, fisher: str) -> None:
    first, second = make_data(case)
    found = updated(case, first, second, structure=structure, fisher=fisher)
    check_same_posterior(
        found, make_laplace(case, structure=structure, fisher=fisher).fit(first + second, progress=False)
    )


@pytest.mark.parametrize("likelihood", WITH_THREE_OUTPUTS)
@pytest.mark.parametrize("fisher", FISHER_KINDS)
def test_an_update_is_the_fit_on_both_for_every_likelihood(likelihood: str, fisher: str) -> None:
    first, second = make_data("linear", likelihood=likelihood)
    found = updated("linear", first, second, likelihood=likelihood, structure="full", fisher=fisher)
    whole = make_laplace("linear", likelihood=likelihood, structure="full", fisher=fisher).fit(
        first + second, progress=False
    )
    check_same_posterior(found, whole)


@pytest.mark.parametrize("basis_size", [None, 2])
@pytest.mark.parametrize("fisher", FISHER_KINDS)
@pytest.mark.parametrize("structure", WITH_BASIS)
@pytest.mark.parametrize("case", ["linear", "grouped conv"])
def test_an_update_measures_both_in_the_first_basis(
    case: str, structure: str, fisher: str, basis_size: int | None
) -> None:
    first, second = make_data(case)
    options: dict[str, Any] = {"structure": structure, "fisher": fisher, "basis_size": basis_size}
    before = make_laplace(case, **options).fit(first, progress=False)
    found = updated(case, first, second, **options)
    for name in MODELS[case].layers:
        expected = naive_curvature(case, name, first + second, fisher, before.curvature[name].bases)
        own = found.curvature[name]
        for basis, eigen in own.bases.items():
            assert torch.equal(eigen.input_vectors, before.curvature[name].bases[basis].input_vectors)
            assert torch.equal(eigen.gradient_vectors, before.curvature[name].bases[basis].gradient_vectors)
            assert_close(eigen.eigenvalues, expected.bases[basis].eigenvalues)
            assert (eigen.residual is None) == (basis_size is None)
            if eigen.residual is not None and expected.bases[basis].residual is not None:
                torch.testing.assert_close(
                    eigen.residual,
                    expected.bases[basis].residual,
                    rtol=1e-9,
                    atol=1e-12 * float(eigen.eigenvalues.max()),
                )
        if own.diagonal is not None:
            assert expected.diagonal is not None
            assert_close(own.diagonal, expected.diagonal)
        layer = found.posterior().layers[name]
        assert layer.num_data == FIRST + SECOND
        rebuilt = found.structure.build(expected, prior=layer.prior, num_data=layer.num_data)
        assert_close(layer.diagonal(), rebuilt.diagonal())
        if structure != "inf":  # whose scales are rounded to steps: the last digit may decide over one
            assert_close(layer.dense(), rebuilt.dense())


def naive_curvature(case: str, name: str, data: Data, fisher: str, bases: Mapping[str, Eigenbasis]) -> Curvature:
    """Return the statistics of all data in given bases, example by example."""
    model, likelihood = MODELS[case].model(), LIKELIHOODS["classification"]()
    x, y = torch.cat([one for one, _ in data]), torch.cat([one for _, one in data])
    outputs = read_logits(model(x)).detach()
    if fisher == "exact":
        vectors = exact_vectors(likelihood, outputs)
    elif fisher == "empirical":
        vectors = score_vectors(likelihood, outputs, y).unsqueeze(0)
    else:
        vectors = sampled_vectors(likelihood, outputs, samples=SAMPLES, seed=SEED)
    reference = make_reference(model, name, x, vectors)
    measured = {
        basis: Eigenbasis(
            eigen.input_vectors,
            eigen.gradient_vectors,
            reference.eigenvalues(eigen.input_vectors, eigen.gradient_vectors),
            None if eigen.residual is None else reference.residual(eigen.input_vectors, eigen.gradient_vectors),
            eigen.core_pairs,
            reference.core(eigen.input_vectors, eigen.gradient_vectors, eigen.core_pairs),
        )
        for basis, eigen in bases.items()
    }
    rows, columns = reference.diagonal.shape
    return Curvature(name, (rows, columns), diagonal=reference.diagonal, bases=measured)


@pytest.mark.parametrize("structure", WITH_BASIS)
def test_in_a_basis_that_both_share_an_update_is_the_fit_on_both(structure: str) -> None:
    first, _ = make_data("linear")
    x, y = torch.cat([one for one, _ in first]), torch.cat([one for _, one in first])
    again = [(x.flip(0), y.flip(0))]  # the same data in another order: the same basis
    found = updated("linear", first, again, structure=structure, fisher="exact", basis_size=None)
    once = make_laplace("linear", structure=structure, fisher="exact").fit(first, progress=False)
    assert found.num_data == 2 * FIRST
    expected = once.posterior(num_data=2 * FIRST)
    for name, layer in found.posterior().layers.items():
        assert_close(layer.dense(), expected.layers[name].dense())


@pytest.mark.parametrize("structure", EVERY)
def test_many_updates_are_one(structure: str) -> None:
    first, second = make_data("linear")
    found = make_laplace("linear", structure=structure).fit(first, progress=False)
    for batch in second:
        found.fit([batch], update=True, progress=False)
    check_same_posterior(found, updated("linear", first, second, structure=structure))


def test_all_statistics_are_updated_together() -> None:
    first, second = make_data("grouped conv")
    found = updated("grouped conv", first, second, statistics="all").curvature
    whole = make_laplace("grouped conv", statistics="all").fit(first + second, progress=False).curvature
    for name, one in whole.items():
        assert found[name].positions == one.positions
        for key in ("input_factor", "gradient_factor", "diagonal", "block"):
            assert_close(getattr(found[name], key), getattr(one, key))


@pytest.mark.parametrize("structure", ["diag", "kfac", "full"])
def test_the_activation_prior_sees_the_inputs_of_both(structure: str) -> None:
    first, second = make_data("linear")
    options: dict[str, Any] = {"structure": structure, "prior": "activation", "prior_rank": 2}
    laplace = make_laplace("linear", **options).fit(first, progress=False)
    laplace.posterior()  # so that there is a spectrum of the first data to leave behind
    laplace.fit(second, update=True, progress=False)
    check_same_posterior(laplace, make_laplace("linear", **options).fit(first + second, progress=False))


@pytest.mark.parametrize("fisher", FISHER_KINDS)
def test_noise_and_number_of_data_are_those_of_both(fisher: str) -> None:
    first, second = make_data("linear", likelihood="regression")
    options: dict[str, Any] = {"likelihood": "regression", "structure": "diag", "fisher": fisher}
    found = updated("linear", first, second, **options)
    whole = make_laplace("linear", **options).fit(first + second, progress=False)
    alone = make_laplace("linear", **options).fit(first, progress=False)
    assert found.num_data == FIRST + SECOND
    assert found.noise == pytest.approx(whole.noise, rel=1e-12)
    assert found.noise != pytest.approx(alone.noise, rel=1e-3)
    x, y = torch.cat([one for one, _ in first + second]), torch.cat([one for _, one in first + second])
    residual = found.model(x).detach() - y
    assert found.noise == pytest.approx(float(residual.square().mean().sqrt()), rel=1e-12)


def test_a_known_noise_stays() -> None:
    first, second = make_data("linear", likelihood="regression")
    assert updated("linear", first, second, likelihood=Regression(noise=0.3), structure="diag").noise == 0.3


def test_an_update_reads_its_data_once() -> None:
    first, second = make_data("linear")
    laplace = make_laplace("linear").fit(first, progress=False)
    laplace.fit(iter(second), update=True, progress=False)
    check_same_posterior(laplace, updated("linear", first, second))


@pytest.mark.parametrize("structure", ["diag", "inf"])
def test_an_update_before_a_fit_is_refused(structure: str) -> None:
    laplace = make_laplace("linear", structure=structure)
    with pytest.raises(RuntimeError, match=r"no posterior yet; call fit\(loader\) first"):
        laplace.fit(make_data("linear")[0], update=True, progress=False)


def test_an_update_of_a_loaded_posterior_needs_its_curvature(tmp_path: Path) -> None:
    first, second = make_data("linear")
    laplace = make_laplace("linear").fit(first, progress=False)
    laplace.save(tmp_path / "without")
    loaded = infoform.load(tmp_path / "without", laplace.model)
    with pytest.raises(ValueError, match="holds no curvature; save it with curvature=True"):
        loaded.fit(second, update=True, progress=False)
    assert loaded.num_data == FIRST
    laplace.save(tmp_path / "with", curvature=True)
    loaded = infoform.load(tmp_path / "with", laplace.model)
    loaded.fit(second, update=True, progress=False)
    check_same_posterior(loaded, updated("linear", first, second))


@pytest.mark.parametrize("structure", EVERY)
def test_a_failed_update_leaves_the_old_posterior(structure: str) -> None:
    first, second = make_data("linear")
    laplace = make_laplace("linear", structure=structure).fit(first, progress=False)
    before = {name: layer.dense() for name, layer in laplace.posterior().layers.items()}
    bad = [second[0], (second[1][0] * torch.nan, second[1][1])]
    with pytest.raises(ValueError, match="in batch 1: the inputs must be finite"):
        laplace.fit(bad, update=True, progress=False)
    with pytest.raises(ValueError, match="no examples"):
        laplace.fit([], update=True, progress=False)
    with pytest.raises(ValueError, match="class indices must be between 0 and 2"):
        laplace.fit([(second[0][0], second[0][1] + 3)], update=True, progress=False)
    assert laplace.num_data == FIRST
    for name, layer in laplace.posterior().layers.items():
        assert torch.equal(layer.dense(), before[name])
    laplace.fit(second, update=True, progress=False)
    check_same_posterior(laplace, updated("linear", first, second, structure=structure))


def test_an_update_without_targets_cannot_fit_the_noise() -> None:
    first, second = make_data("linear", likelihood="regression")
    laplace = make_laplace("linear", likelihood="regression", structure="diag").fit(first, progress=False)
    before, noise = laplace.posterior().layers["0"].dense(), laplace.noise
    with pytest.raises(ValueError, match="fitting the noise needs targets"):
        laplace.fit([x for x, _ in second], update=True, progress=False)
    assert laplace.noise == noise
    assert torch.equal(laplace.posterior().layers["0"].dense(), before)


class Branches(nn.Module):
    """Uses `extra` only for batches that begin with a positive number."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(4, 3)
        self.extra = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        out = self.base(x)
        assert isinstance(out, Tensor)
        return out + self.extra(x).tanh() if bool(x[0, 0] > 0) else out


@pytest.mark.parametrize("structure", EVERY)
def test_a_layer_that_no_gradient_reaches_later_gets_no_more_information(structure: str) -> None:
    torch.manual_seed(0)
    model = Branches().double()
    first = [(torch.randn(7, 4).double(), torch.randint(0, 3, (7,)))]
    second = [(torch.randn(5, 4).double(), torch.randint(0, 3, (5,)))]
    first[0][0][:, 0], second[0][0][:, 0] = 1.0, -1.0  # of all: else a smaller batch might begin otherwise
    options: dict[str, Any] = {"structure": structure, "rank": 5, "fisher": "exact", "prior": "isotropic"}
    before = flat_laplace(model, "classification", **options).fit(first, progress=False)
    found = flat_laplace(model, "classification", **options).fit(first, progress=False)
    found.fit(second, update=True, progress=False)
    assert found.num_data == 12
    if structure in WITHOUT_BASIS:
        whole = flat_laplace(model, "classification", **options).fit(first + second, progress=False)
        check_same_posterior(found, whole)
    if structure not in ("kfac", "okf-paper"):  # products of two averages, which do not add up
        # 12 examples with 7/12 of the information each: what 7 examples knew
        expected, layer = before.posterior().layers["extra"], found.posterior().layers["extra"]
        assert_close(layer.diagonal(), expected.diagonal())
        assert_close(layer.dense(), expected.dense())
    assert all(row.covered for row in found.coverage())


def test_an_update_that_reaches_no_layer_is_refused() -> None:
    torch.manual_seed(0)
    model = Branches().double()
    x, y = torch.randn(6, 4).double(), torch.randint(0, 3, (6,))
    x[:, 0] = 1.0  # of all: else a smaller batch might begin otherwise
    laplace = Laplace(model, "classification", layers=["extra"], structure="diag").fit([(x, y)], progress=False)
    before = laplace.posterior().layers["extra"].dense()
    with pytest.raises(ValueError, match="a gradient must reach at least one layer"):
        laplace.fit([(-x, y)], update=True, progress=False)
    assert torch.equal(laplace.posterior().layers["extra"].dense(), before)


def test_merging_does_not_depend_on_the_order() -> None:
    first, second = make_data("linear")
    one = make_laplace("linear", structure="full", fisher="exact").fit(first, progress=False)
    other = make_laplace("linear", structure="full", fisher="exact").fit(second, progress=False)
    assert one._fit is not None
    assert other._fit is not None
    there, back = merge_fits(one._fit, other._fit), merge_fits(other._fit, one._fit)
    assert there.summary.num_examples == back.summary.num_examples == FIRST + SECOND
    for name, curvature in there.curvature.items():
        block = back.curvature[name].block
        assert block is not None
        assert_close(curvature.block, block)


class Gate(nn.Module):
    """A second branch that only inputs with a positive first entry take: a batch may leave it untouched."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.first(x)
        return out + self.second(x).tanh() if bool((x[:, 0] > 0).all()) else out


@pytest.mark.parametrize("basis_size", [None, 2])
@pytest.mark.parametrize("structure", STRUCTURES)
def test_a_layer_that_only_more_data_reach_is_as_if_fitted_on_both(structure: str, basis_size: int | None) -> None:
    torch.manual_seed(0)
    model = Gate().double()
    x = torch.randn(12, 4, dtype=torch.float64)
    first, second = x[x[:, 0] <= 0], x[x[:, 0] > 0]
    options: dict[str, Any] = {"structure": structure, "fisher": "exact", "basis_size": basis_size, "rank": 4}
    parts = flat_laplace(model, "classification", **options).fit([first], progress=False)
    assert not parts.coverage()[2].covered
    parts.fit([second], update=True, progress=False)
    whole = flat_laplace(model, "classification", **options).fit([first, second], progress=False)
    assert all(row.covered for row in parts.coverage())
    found, expected = parts.posterior().layers["second"], whole.posterior().layers["second"]
    assert_close(found.diagonal(), expected.diagonal())
    assert_close(found.log_det(), expected.log_det())
    if structure != "inf":  # whose scales are rounded to steps
        assert_close(found.dense(), expected.dense())


def test_a_new_layer_with_a_basis_needs_data_that_can_be_read_twice() -> None:
    torch.manual_seed(0)
    x = torch.randn(12, 4, dtype=torch.float64)
    laplace = infoform.Laplace(Gate().double(), "classification").fit([x[x[:, 0] <= 0]], progress=False)
    with pytest.raises(ValueError, match=r"'second' is reached for the first time .* pass list\(loader\)"):
        laplace.fit(iter([x[x[:, 0] > 0]]), update=True, progress=False)


def test_a_layer_that_only_skipped_batches_reach_is_held_fixed_and_said_so() -> None:
    torch.manual_seed(0)
    x = torch.randn(12, 4, dtype=torch.float64)
    batches = [x[x[:, 0] <= 0], x[x[:, 0] > 0]]  # of which basis_data=0.5 takes the first
    laplace = flat_laplace(Gate().double(), "classification", basis_data=0.5).fit(batches, progress=False)
    assert [row.covered for row in laplace.coverage()] == [True, True, False, False]
    assert list(laplace.posterior().layers) == ["first"]
