"""The last layer alone: one forward pass gives what dense Jacobians give, for every structure, prior and likelihood."""

import itertools
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import infoform
from dense import assert_close
from flat import flat_laplace
from infoform.likelihoods import LINKS, GaussianOutputs
from infoform.network.batches import read_inputs
from infoform.posteriors import PRESETS, STRUCTURES
from infoform.predicting.kinds import LAST, MANY_OUTPUTS
from infoform.predicting.predictor import PredictOptions

PRIORS = ("isotropic", "activation")
LIKELIHOODS = ("classification", "multilabel", "regression")
NAMES = (*STRUCTURES, *PRESETS)
FEW, MANY = 3, MANY_OUTPUTS + 6


class Head(nn.Module):
    """A body, and a head that is a linear layer or a convolution of one position."""

    def __init__(self, outputs: int, convolution: bool) -> None:
        super().__init__()
        self.body = nn.Linear(5, 4)
        self.head = nn.Conv1d(2, outputs, 2) if convolution else nn.Linear(4, outputs)
        self.convolution = convolution
        self.runs: list[int] = []  # which copies of the module share

    def forward(self, x: Tensor) -> Tensor:
        self.runs.append(len(x))
        features = self.body(x).tanh()
        out: Tensor = self.head(features.unflatten(1, (2, 2)) if self.convolution else features)
        return out.flatten(1)


def inputs(examples: int = 6, seed: int = 1) -> Tensor:
    return torch.randn(examples, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@cache
def fitted(
    likelihood: str,
    structure: str = "inf",
    prior: str = "activation",
    outputs: int = FEW,
    convolution: bool = False,
    layers: Any = "last",
) -> infoform.Laplace:
    torch.manual_seed(0)
    model, x = Head(outputs, convolution).double(), inputs(12, seed=2)
    targets = {
        "classification": torch.randint(0, outputs, (12,)),
        "multilabel": torch.randint(0, 2, (12, outputs)),
        "regression": torch.randn(12, outputs, dtype=torch.float64),
    }
    laplace = flat_laplace(
        model, likelihood, structure=structure, prior=prior, layers=layers, rank=4, basis_size=None, prior_rank=2
    )
    laplace.prior_precision = 2.0
    return laplace.fit([(x[:7], targets[likelihood][:7]), (x[7:], targets[likelihood][7:])], progress=False)


def dense_covariance(laplace: infoform.Laplace, x: Tensor) -> Tensor:  # (N, C, C)
    """Return J P⁻¹ Jᵀ with the Jacobian of the head by autograd, one output of one example at a time."""
    model, layer = laplace.model, laplace.posterior().layers["head"]
    assert isinstance(model, Head)
    inverse = torch.linalg.inv(layer.dense())
    covariances = []
    for one in x:
        rows = []
        outputs = model(one.unsqueeze(0))[0]
        for output in outputs:
            found = torch.autograd.grad(output, list(model.head.parameters()), retain_graph=True)
            rows.append(torch.cat([found[0].flatten(1), found[1].unsqueeze(1)], dim=1).flatten())
        jacobian = torch.stack(rows)
        covariances.append(jacobian @ inverse @ jacobian.T)
    return torch.stack(covariances)


def check_equal(found: infoform.Prediction, expected: infoform.Prediction, *, rtol: float = 1e-7) -> None:
    for name, value in expected.tensors().items():
        if name not in ("samples", "kind", "reason", "max_entropy"):
            assert_close(found.tensors()[name], value, rtol=rtol)


@pytest.mark.parametrize("convolution", [False, True], ids=["linear head", "convolution"])
@pytest.mark.parametrize(("structure", "prior"), list(itertools.product(NAMES, PRIORS)))
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_the_prediction_is_that_of_the_dense_covariance(
    likelihood: str, structure: str, prior: str, convolution: bool
) -> None:
    laplace, x = fitted(likelihood, structure, prior, convolution=convolution), inputs()
    with torch.no_grad():
        mean = laplace.model(x)
    outputs = GaussianOutputs(mean, dense_covariance(laplace, x), samples=50, seed=0)
    for link in LINKS:
        expected = laplace.likelihood.from_gaussian(outputs, noise=laplace.noise, link=link)
        found = laplace.predict(x, samples=50, link=link)
        assert (found.kind, found.reason) == ("linear", LAST)
        check_equal(found, expected)


@pytest.mark.parametrize(("structure", "prior"), list(itertools.product(NAMES, PRIORS)))
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_many_outputs_have_the_same_variances_as_dense_matrices(likelihood: str, structure: str, prior: str) -> None:
    laplace, x = fitted(likelihood, structure, prior, MANY), inputs(3)
    with torch.no_grad():
        mean = laplace.model(x)
    outputs = GaussianOutputs(mean, dense_covariance(laplace, x), samples=50, seed=0)
    if likelihood == "regression":
        check_equal(laplace.predict(x), laplace.likelihood.from_gaussian(outputs, noise=laplace.noise, link="mc"))
        return
    for link in ("probit", "bridge"):  # the draws of links are others, of the same distribution
        expected = laplace.likelihood.from_gaussian(outputs, noise=None, link=link)
        found = laplace.predict(x, samples=50, link=link)
        assert found.samples is None
        assert_close(found.value, expected.value, rtol=1e-7)
    many = laplace.predict(x, samples=4000)
    dense = GaussianOutputs(mean, dense_covariance(laplace, x), samples=4000)
    other = laplace.likelihood.from_gaussian(dense, noise=None, link="mc")
    assert many.probs is not None
    assert other.probs is not None
    error = (2 * other.epistemic / 4000).sqrt()  # of a difference of two means over draws
    assert ((many.probs - other.probs).abs() <= 6 * error).all()
    assert ((many.epistemic / other.epistemic).log().abs() < 6 * 4 / 4000**0.5).all()


@pytest.mark.parametrize("structure", ["inf", "diag"])
def test_no_matrix_of_all_outputs_is_formed(structure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("a dense covariance")

    for likelihood in LIKELIHOODS:
        laplace = fitted(likelihood, structure, outputs=MANY)
        laplace.posterior()
        with monkeypatch.context() as patched:
            patched.setattr("infoform.likelihoods.DiagonalCovariance.dense", refuse)
            for link in LINKS:
                laplace.predict(inputs(), link=link)


def test_examples_at_a_time_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    laplace, x = fitted("classification", outputs=MANY), inputs()
    whole = laplace.predict(x)
    monkeypatch.setattr("infoform.predicting.implicit_outputs.PART_BYTES", 1)
    check_equal(laplace.predict(x), whole)
    for place in range(len(x)):
        assert_close(laplace.predict(x[place : place + 1]).value, whole.value[place : place + 1], rtol=1e-7)


@pytest.mark.parametrize("outputs", [FEW, MANY])
def test_it_takes_one_forward_pass_and_no_gradient(outputs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    laplace, x = fitted("classification", outputs=outputs), inputs()
    laplace.posterior()

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a backward pass")

    monkeypatch.setattr(torch.autograd, "grad", refuse)
    model = laplace.model
    assert isinstance(model, Head)
    model.runs.clear()
    laplace.predict(x)
    assert model.runs == [len(x)]


@pytest.mark.parametrize("structure", NAMES)
def test_the_layer_by_its_name_is_predicted_in_the_same_way(structure: str) -> None:
    x = inputs()
    last, named = (fitted("classification", structure, layers=layers) for layers in ("last", ("head",)))
    found = named.predict(x)
    assert found.reason == LAST
    check_equal(found, last.predict(x), rtol=1e-12)
    assert list(last.layers) == list(named.layers) == ["head"]


@pytest.mark.parametrize("outputs", [FEW, MANY])
def test_temperature_divides_mean_and_covariance(outputs: int) -> None:
    laplace, x = fitted("classification", outputs=outputs), inputs(3)
    laplace.temperature = 2.0
    try:
        found = laplace.predict(x, link="probit")
    finally:
        laplace.temperature = 1.0
    with torch.no_grad():
        mean = laplace.model(x)
    scaled = GaussianOutputs(mean / 2, dense_covariance(laplace, x) / 4)
    expected = laplace.likelihood.from_gaussian(scaled, noise=None, link="probit")
    assert_close(found.value, expected.value, rtol=1e-7)
    assert_close(found.plain, mean)


class Sometimes(nn.Module):
    """A head that is the last layer for small batches alone."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(x)
        return out if len(x) < 4 else out * 1.0


def test_a_batch_whose_outputs_are_computed_goes_the_long_way() -> None:
    torch.manual_seed(0)
    model, x = Sometimes().double(), inputs()
    data = [(inputs(3, seed=5), torch.randint(0, 3, (3,)))]
    laplace = infoform.Laplace(model, "classification", layers=["head"]).fit(data, progress=False)
    long, short = laplace.predict(x), [laplace.predict(part) for part in x.split(3)]
    assert long.reason != LAST
    assert all(one.reason == LAST for one in short)
    assert_close(torch.cat([one.value for one in short]), long.value, rtol=1e-7)
    assert_close(torch.cat([one.epistemic for one in short]), long.epistemic, rtol=1e-7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("structure", STRUCTURES)
def test_narrow_networks_have_predictions(structure: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    for outputs in (FEW, MANY):
        model, x = Head(outputs, False).to(dtype), inputs(4).to(dtype)
        laplace = infoform.Laplace(model, "classification", structure=structure, layers="last")
        laplace.fit([(x, torch.randint(0, outputs, (4,)))], progress=False)
        for link in LINKS:
            found = laplace.predict(x, link=link)
            assert found.plain.dtype == dtype
            assert found.probs is not None
            torch.testing.assert_close(found.probs.sum(1).float(), torch.ones(4), rtol=0, atol=0.02)


def test_raw_outputs_hold_the_layers_inputs() -> None:
    for outputs in (FEW, MANY):
        laplace, x = fitted("classification", outputs=outputs), inputs()
        options = PredictOptions("auto", 10, "mc", 0)
        (raw,) = laplace._predictor().raw_outputs([read_inputs(x, x.device)], options)
        assert raw.inputs is not None
        assert raw.inputs.shape == (6, 5)
        assert (raw.covariance is None) == (outputs == MANY)
