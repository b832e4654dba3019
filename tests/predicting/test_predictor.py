"""Predictions equal what dense Jacobians and loops over sampled networks give, and leave everything as found."""

import random
import warnings
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.data import DataLoader, TensorDataset

from dense import as_rows, assert_close, read_logits
from flat import flat_laplace
from infoform import Laplace, Regression
from infoform.layers.attention import InProjection
from infoform.likelihoods import LIKELIHOODS, LINKS, GaussianOutputs, Likelihood
from infoform.network.batches import read_inputs
from infoform.posteriors import PRESETS, STRUCTURES
from infoform.posteriors.network_posterior import Posterior
from infoform.predicting.linear import gaussian_outputs
from infoform.predicting.predictor import KINDS, Predictor
from infoform.prediction import TEXTS, Prediction
from likelihood_cases import WITH_THREE_OUTPUTS
from models import MODELS, Case, TokenPool, Wrapped

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # by torch's own jvp, once
RTOL = 1e-8
WHOLE = 64  # a prior_rank above the inputs of every layer in MODELS


class Heads(nn.Module):
    """Layers that reach some of the outputs only: one call of `shared` the first, another all but the last."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = nn.Linear(4, 2)
        self.one = nn.Linear(2, 1)
        self.two = nn.Linear(2, 1)

    def forward(self, x: Tensor) -> Tensor:
        first, second = self.shared(x).tanh(), self.shared(x.flip(1)).tanh()
        return torch.cat([self.one(first) + self.two(second), self.two(second), x[:, :1]], dim=1)


class TokenHeads(nn.Module):
    """As `Heads`, with layers on tokens and a convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Linear(4, 2)
        self.positions = nn.Conv1d(3, 2, 2)

    def forward(self, x: Tensor) -> Tensor:  # (N, 3, 4)
        return torch.cat([self.tokens(x).tanh().mean(1)[:, :1], self.positions(x).mean(2)], dim=1)


CASES: dict[str, Case] = MODELS | {
    "two transformers": Case(
        lambda: nn.Sequential(
            *(nn.TransformerEncoderLayer(4, 2, dim_feedforward=3, dropout=0.0, batch_first=True) for _ in range(2)),
            TokenPool(),
            nn.Linear(4, 3),
        ),
        (3, 4),
        (
            *(
                f"{block}.{name}"
                for block in "01"
                for name in ("self_attn", "self_attn.out_proj", "linear1", "linear2")
            ),
            "3",
        ),
    ),
    "layers that reach some outputs": Case(Heads, (4,), ("shared", "one", "two")),
    "tokens that reach some outputs": Case(TokenHeads, (3, 4), ("tokens", "positions")),
}
ALL_LIKELIHOODS: dict[str, Likelihood] = {name: LIKELIHOODS[name]() for name in WITH_THREE_OUTPUTS} | {
    "regression with a noise for each output": Regression(noise=[0.5, 2.0, 1.5])
}
PRIORS: dict[str, tuple[str, int]] = {
    "isotropic": ("isotropic", 0),
    "activation, diagonal": ("activation", 0),
    "activation, rank 3": ("activation", 3),
    "activation, whole": ("activation", WHOLE),
}


@cache
def fitted(
    case: str, likelihood: str = "regression", prior_rank: int = 3, basis_size: int | None = None, **options: Any
) -> Laplace:
    """Return a fit with all statistics, on other data than is predicted."""
    torch.manual_seed(2)
    x = CASES[case].inputs(11)[4:]
    targets = {"classification": torch.randint(0, 3, (7,)), "multilabel": torch.randint(0, 2, (7, 3))}
    given = targets.get(likelihood, torch.randn(7, 3, dtype=torch.float64))
    laplace = flat_laplace(
        CASES[case].model(),
        ALL_LIKELIHOODS[likelihood],
        statistics="all",
        rank=4,
        prior_rank=prior_rank,
        basis_size=basis_size,
        **options,
    )
    laplace.prior_precision = 20.0  # sampled networks of these untrained ones stay close
    return laplace.fit([(x, given)], progress=False)


@cache
def jacobians(case: str) -> dict[str, Tensor]:  # (N, C, G * A) each
    """Return d outputs / d weights of every layer, by `jacrev` of the whole network, bias as last column."""
    laplace, x = fitted(case), CASES[case].inputs()
    model = laplace.model
    parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}
    with sdpa_kernel(SDPBackend.MATH):  # vmap has no rule for fused attention
        whole = jacrev(lambda values: read_logits(functional_call(model, values, (x,))))(parameters)
    rows = {}
    for name in CASES[case].layers:
        layer = laplace.layers[name]
        keys = ("weight", "in_proj_weight", "bias", "in_proj_bias")
        own = [whole[layer.parameters[key]] for key in keys if key in layer.parameters]
        formed = [torch.stack([as_rows(layer.module, one) for one in part.flatten(0, 1)]) for part in own]
        matrix = torch.cat(formed, dim=2).unflatten(0, own[0].shape[:2])  # (N, C, G, A)
        rows[name] = matrix.flatten(2)
    return rows


def dense_covariance(case: str, posterior: Posterior) -> Tensor:  # (N, C, C)
    total = torch.zeros(())
    for name, jacobian in jacobians(case).items():
        half = torch.linalg.solve(posterior.layers[name].dense(), jacobian.mT)  # (N, G * A, C)
        total = total + jacobian @ half
    return total


def linear(laplace: Laplace, posterior: Posterior, x: Tensor) -> tuple[Tensor, Tensor]:
    predictor = Predictor(laplace.model, laplace.layers, laplace.likelihood, posterior)
    return predictor.linear(read_inputs(x, torch.device("cpu")))


def plain(laplace: Laplace, x: Tensor) -> Tensor:
    with torch.no_grad():
        return read_logits(laplace.model.eval()(x))


@pytest.mark.parametrize("kind", KINDS)
def test_predictions_are_the_same_where_gradients_are_forbidden(kind: str) -> None:
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 4)).eval()
    x = torch.randn(6, 2, 4, 4)
    laplace = Laplace(model, "classification").fit([(x, torch.arange(6) % 4)], progress=False)
    expected = laplace.predict(x, kind=kind).probs
    with torch.no_grad():
        found = laplace.predict(x, kind=kind).probs
    assert found is not None
    assert expected is not None
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("structure", [*STRUCTURES, *PRESETS])
@pytest.mark.parametrize("case", CASES)
def test_linear_equals_the_dense_jacobian(case: str, structure: str, prior: str) -> None:
    name, rank = PRIORS[prior]
    for likelihood in ALL_LIKELIHOODS:
        laplace = fitted(case, likelihood, rank)
        posterior = laplace.posterior(structure=structure, prior=name, prior_precision=0.7)
        mean, covariance = linear(laplace, posterior, CASES[case].inputs())
        assert_close(mean, plain(laplace, CASES[case].inputs()), rtol=RTOL)
        assert_close(covariance, dense_covariance(case, posterior), rtol=RTOL)


@pytest.mark.parametrize("structure", ["inf", "full"])
@pytest.mark.parametrize("case", CASES)
def test_linear_with_one_backward_pass_for_each_output_equals_the_dense_jacobian(
    case: str, structure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("infoform.predicting.checks.AT_ONCE", 0)
    laplace = fitted(case, "classification")
    posterior = laplace.posterior(structure=structure, prior_precision=0.7)
    _, covariance = linear(laplace, posterior, CASES[case].inputs())
    assert_close(covariance, dense_covariance(case, posterior), rtol=RTOL)


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("structure", ["efb", "inf", "efb-paper", "inf-paper"])
@pytest.mark.parametrize("case", CASES)
def test_linear_equals_the_dense_jacobian_in_a_truncated_basis(case: str, structure: str, prior: str) -> None:
    name, rank = PRIORS[prior]
    laplace = fitted(case, "classification", rank, basis_size=2)
    posterior = laplace.posterior(structure=structure, prior=name, prior_precision=0.7)
    _, covariance = linear(laplace, posterior, CASES[case].inputs())
    assert_close(covariance, dense_covariance(case, posterior), rtol=RTOL)


@pytest.mark.parametrize("structure", ["inf", "kfac"])
@pytest.mark.parametrize("case", ["linear", "grouped conv", "layer called several times"])
def test_a_precision_for_each_layer_reaches_the_prediction(case: str, structure: str) -> None:
    laplace = fitted(case)
    precision = {name: 0.5 + index for index, name in enumerate(CASES[case].layers)}
    posterior = laplace.posterior(structure=structure, prior_precision=precision)
    _, covariance = linear(laplace, posterior, CASES[case].inputs())
    assert_close(covariance, dense_covariance(case, posterior), rtol=RTOL)


@pytest.mark.parametrize("chunk", [1, 500, 3000])
@pytest.mark.parametrize("case", CASES)
def test_linear_does_not_depend_on_the_chunk_size(case: str, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    laplace, x = fitted(case), CASES[case].inputs(9)
    posterior = laplace.posterior(prior="activation")
    mean, covariance = linear(laplace, posterior, x)
    monkeypatch.setattr("infoform.predicting.checks.AT_ONCE", 0)
    monkeypatch.setattr("infoform.predicting.linear.CHUNK_BYTES", chunk)
    again_mean, again_covariance = linear(laplace, posterior, x)
    assert_close(again_mean, mean)
    assert_close(again_covariance, covariance)


def test_a_layer_without_a_gradient_at_all_adds_nothing() -> None:
    torch.manual_seed(0)
    model = nn.ModuleDict({"used": nn.Linear(3, 2), "unused": nn.Linear(3, 2)}).double()

    class Sometimes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = model
            self.both = True

        def forward(self, x: Tensor) -> Tensor:
            out = self.parts["used"](x)
            assert isinstance(out, Tensor)
            return out + self.parts["unused"](x) if self.both else out

    network = Sometimes()
    x, y = torch.randn(6, 3).double(), torch.randn(6, 2).double()
    laplace = Laplace(network, Regression(noise=0.5), structure="full").fit([(x, y)], progress=False)
    network.both = False
    _, covariance = linear(laplace, laplace.posterior(), x)
    _, alone = linear(laplace, Posterior({"parts.used": laplace.posterior().layers["parts.used"]}), x)
    assert_close(covariance, alone)
    assert covariance.abs().min() > 0


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("likelihood", ALL_LIKELIHOODS)
def test_linear_is_the_likelihoods_prediction_of_the_gaussian(likelihood: str, link: str) -> None:
    laplace, x = fitted("linear", likelihood), CASES["linear"].inputs()
    found = laplace.predict(x, link=link, samples=50, seed=3)
    outputs = GaussianOutputs(*linear(laplace, laplace.posterior(), x), samples=50, seed=3)
    expected = laplace.likelihood.from_gaussian(outputs, noise=laplace.noise, link=link)
    check_same(found, expected)
    assert torch.equal(found.plain, plain(laplace, x))


def drawn_deviations(posterior: Posterior, samples: int, *, seed: int, together: bool) -> list[dict[str, Tensor]]:
    """Return the deviations that a prediction with this seed has, network by network: each, and then its opposite."""
    generator, pairs = torch.Generator().manual_seed(seed), -(-samples // 2)
    if together:
        drawn = posterior.sample(pairs, generator=generator)
        each = [{name: value[index] for name, value in drawn.items()} for index in range(pairs)]
    else:
        parts = [posterior.sample(1, generator=generator) for _ in range(pairs)]
        each = [{name: value[0] for name, value in part.items()} for part in parts]
    both = ((one, {name: -value for name, value in one.items()}) for one in each)
    return [one for pair in both for one in pair][:samples]


def networks_run_together(laplace: Laplace) -> bool:
    return all(isinstance(layer.module, nn.Linear | InProjection) for layer in laplace.layers.values())


@pytest.mark.parametrize("vmapped", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_mc_equals_a_loop_over_networks_with_the_same_weights(
    case: str, vmapped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    laplace, x = fitted(case), CASES[case].inputs()
    if not vmapped:
        monkeypatch.setattr("infoform.predicting.sampled_networks.VMAP_WEIGHTS", 0)
    together = vmapped and networks_run_together(laplace)
    found = laplace.predict(x, kind="mc", samples=5, seed=5)
    networks = drawn_deviations(laplace.posterior(), 5, seed=5, together=together)
    with torch.no_grad():
        expected = [
            read_logits(functional_call(laplace.model.eval(), laplace.weights(network), (x,))) for network in networks
        ]
    assert_close(found.samples, torch.stack(expected), rtol=RTOL)
    assert_close(found.mean, torch.stack(expected).mean(0), rtol=RTOL)
    assert torch.equal(found.plain, plain(laplace, x))


@pytest.mark.parametrize("vmapped", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_linear_mc_equals_the_dense_jacobian_on_the_same_weights(
    case: str, vmapped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    laplace, x = fitted(case), CASES[case].inputs()
    if not vmapped:
        monkeypatch.setattr("infoform.predicting.sampled_networks.VMAP_WEIGHTS", 0)
    together = vmapped and networks_run_together(laplace)
    found = laplace.predict(x, kind="linear-mc", samples=4, seed=5)
    expected = []
    for network in drawn_deviations(laplace.posterior(), 4, seed=5, together=together):
        moved = [jacobian @ network[name].flatten() for name, jacobian in jacobians(case).items()]  # (N, C) each
        expected.append(plain(laplace, x) + torch.stack(moved).sum(0))
    assert_close(found.samples, torch.stack(expected), rtol=RTOL)


class Branching(nn.Module):
    """Decides by a value that it has computed, and writes its outputs in place: vmap can do neither."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.inner(x)
        out = torch.zeros_like(x[:, :3])
        out += hidden if bool(hidden.abs().max() < 100) else hidden / 2
        return out


@pytest.mark.parametrize("kind", ["mc", "linear-mc"])
def test_models_that_cannot_be_run_together_are_run_one_by_one(kind: str) -> None:
    torch.manual_seed(0)
    model, x = Branching().double(), MODELS["linear"].inputs()
    y = torch.zeros(5, 3).double()
    laplace = Laplace(model, Regression(noise=0.3)).fit([(x, y)], progress=False)
    plain_model = Laplace(nn.Sequential(model.inner), Regression(noise=0.3)).fit([(x, y)], progress=False)
    check_same(laplace.predict(x, kind=kind, samples=4), plain_model.predict(x, kind=kind, samples=4))


@pytest.mark.parametrize("likelihood", ["classification", "multilabel"])
@pytest.mark.parametrize("kind", ["mc", "linear-mc"])
def test_samples_of_a_classifier_are_probabilities_of_single_networks(kind: str, likelihood: str) -> None:
    laplace, x = fitted("linear", likelihood), CASES["linear"].inputs()
    predictor = Predictor(laplace.model, laplace.layers, laplace.likelihood, laplace.posterior())
    networks, batch = predictor.sampled(linear=kind == "linear-mc"), read_inputs(x, torch.device("cpu"))
    (outputs,) = networks.outputs([batch], samples=6, generator=torch.Generator().manual_seed(2))
    found = laplace.predict(x, kind=kind, samples=6, seed=2)
    expected = outputs.softmax(2) if likelihood == "classification" else outputs.sigmoid()
    assert_close(found.samples, expected)
    assert_close(found.probs, expected.mean(0))


@pytest.mark.parametrize("structure", ["full", "inf", "diag"])
def test_all_kinds_agree_on_a_network_that_is_linear_in_its_weights(structure: str) -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 2).double()
    x, y = torch.randn(30, 4).double(), torch.randn(30, 2).double()
    laplace = Laplace(model, Regression(noise=0.4), structure=structure, prior="activation").fit(
        [(x, y)], progress=False
    )
    count, test = 20_000, torch.randn(5, 4).double()
    exact = laplace.predict(test)
    sampled = laplace.predict(test, kind="mc", samples=count, seed=1)
    check_same(laplace.predict(test, kind="linear-mc", samples=count, seed=1), sampled)
    # five standard errors: of a mean √(v / M), of a variance v √(2 / M)
    error = (sampled.value - exact.value).abs() / (exact.epistemic / count).sqrt()
    assert error.max() < 5
    error = (sampled.epistemic / exact.epistemic - 1).abs() / (2 / count) ** 0.5
    assert error.max() < 5
    assert_close(sampled.aleatoric, exact.aleatoric)
    # ½ log det moves by less than ½ C times the relative error of the covariance
    assert (sampled.mutual_information - exact.mutual_information).abs().max() < 5 * 2 * (2 / count) ** 0.5


def make_classifier(*, steps: int = 150, separation: float = 3.0) -> tuple[nn.Module, Tensor, Tensor]:
    """Return a trained network with batch-norm and dropout, and its data: three clouds of points."""
    torch.manual_seed(0)
    labels = torch.arange(90) % 3
    centres = separation * torch.tensor([[1.0, 0.0], [-0.5, 0.9], [-0.5, -0.9]])
    x = (centres[labels] + torch.randn(90, 2)).double()
    model = nn.Sequential(nn.Linear(2, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 3)).double()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.03)
    for _ in range(steps):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(x), labels).backward()
        optimiser.step()
    optimiser.zero_grad(set_to_none=True)
    return model, x, labels


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_model_and_global_randomness_are_left_as_found(kind: str, training: bool) -> None:
    model, x, labels = make_classifier()
    model.train(training)
    model[3].train(not training)  # type: ignore[index]
    laplace = Laplace(model, "classification").fit([(x, labels)], progress=False)
    laplace.prior_precision = 20.0
    before = {name: value.clone() for name, value in model.state_dict().items()}
    flags = [module.training for module in model.modules()]
    states = (torch.get_rng_state(), random.getstate(), np.random.get_state())  # noqa: NPY002
    laplace.predict(x, kind=kind, samples=3)
    laplace.predict_loader(
        DataLoader(TensorDataset(x, labels), batch_size=40, shuffle=True), kind=kind, samples=3, progress=False
    )
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert [module.training for module in model.modules()] == flags
    assert all(parameter.grad is None and parameter.requires_grad for parameter in model.parameters())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert str(np.random.get_state()) == str(states[2])  # noqa: NPY002


@pytest.mark.parametrize("kind", KINDS)
def test_training_mode_predicts_what_evaluation_mode_does(kind: str) -> None:
    model, x, labels = make_classifier()
    laplace = Laplace(model.eval(), "classification").fit([(x, labels)], progress=False)
    evaluated = laplace.predict(x, kind=kind, samples=3)
    model.train()
    check_same(laplace.predict(x, kind=kind, samples=3), evaluated)


@pytest.mark.parametrize("kind", KINDS)
def test_the_model_is_left_as_found_when_its_forward_fails(kind: str) -> None:
    model, x, labels = make_classifier(steps=1)
    laplace = Laplace(model.train(), "classification").fit([(x, labels)], progress=False)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(RuntimeError):
        laplace.predict(x[:, :1], kind=kind)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(module.training for module in model.modules())
    assert not any(module._forward_hooks for module in model.modules())


@pytest.mark.parametrize("likelihood", ["classification", "regression"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_gives_the_same_prediction(kind: str, likelihood: str) -> None:
    laplace, x = fitted("linear", likelihood), CASES["linear"].inputs()
    first = laplace.predict(x, kind=kind, link="mc", samples=5, seed=1)
    torch.manual_seed(9)
    check_same(laplace.predict(x, kind=kind, link="mc", samples=5, seed=1), first, exactly=True)
    default = laplace.predict(x, kind=kind, link="mc", samples=5)
    check_same(laplace.predict(x, kind=kind, link="mc", samples=5, seed=laplace.settings.seed), default, exactly=True)
    if (kind, likelihood) != ("linear", "regression"):  # which draws nothing
        assert not torch.equal(laplace.predict(x, kind=kind, link="mc", samples=5, seed=2).value, first.value)


@pytest.mark.parametrize("likelihood", ALL_LIKELIHOODS)
@pytest.mark.parametrize(("kind", "link"), [("mc", "mc"), ("linear-mc", "mc"), *(("linear", link) for link in LINKS)])
def test_predict_loader_equals_predict_on_all_data(kind: str, link: str, likelihood: str) -> None:
    laplace, x = fitted("linear", likelihood), CASES["linear"].inputs(10)
    y = {"classification": torch.arange(10) % 3, "multilabel": (torch.arange(30) % 2).reshape(10, 3)}.get(
        likelihood, torch.randn(10, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    )
    loader = DataLoader(TensorDataset(x, y), batch_size=4)
    found, targets = laplace.predict_loader(loader, kind=kind, link=link, samples=6, progress=False)
    assert targets is not None
    assert torch.equal(targets, y.to(targets))
    assert len(found) == 10
    check_same(found, laplace.predict(x, kind=kind, link=link, samples=6))


def test_predict_loader_takes_inputs_alone() -> None:
    laplace, x = fitted("linear"), CASES["linear"].inputs(6)
    found, targets = laplace.predict_loader([x[:4], x[4:]], progress=False)
    assert targets is None
    check_same(found, laplace.predict(x))


def test_predict_loader_gives_no_targets_where_some_are_missing() -> None:
    laplace, x = fitted("linear"), CASES["linear"].inputs(6)
    y = torch.zeros(4, 3).double()
    found, targets = laplace.predict_loader([(x[:4], y), x[4:]], progress=False)
    assert targets is None
    assert len(found) == 6


@pytest.mark.parametrize("kind", KINDS)
def test_dicts_are_taken_as_hugging_face_models_do(kind: str) -> None:
    case = MODELS["linear"]
    inner, x = case.model(), case.inputs(6)
    labels = torch.arange(6) % 3
    batches: list[Mapping[str, Any]] = [
        {"pixel_values": x[:4], "scale": 2.0, "labels": labels[:4]},
        {"pixel_values": x[4:], "scale": 2.0, "labels": labels[4:]},
    ]
    laplace = Laplace(Wrapped(inner), "classification").fit(batches, progress=False)
    bare = Laplace(inner, "classification").fit([(2 * x, labels)], progress=False)
    laplace.prior_precision = bare.prior_precision = 100.0
    found, targets = laplace.predict_loader(batches, kind=kind, samples=5, progress=False)
    assert targets is not None
    assert torch.equal(targets, labels)
    expected = bare.predict(2 * x, kind=kind, samples=5)
    assert_close(found.probs, expected.value)
    single = laplace.predict({"pixel_values": x, "scale": 2.0, "labels": labels}, kind=kind, samples=5)
    check_same(single, expected)
    check_same(laplace.predict((x, 2.0), kind=kind, samples=5), expected)


def test_a_terrible_prior_is_named_once_with_its_remedy() -> None:
    model, x, labels = make_classifier()
    laplace = Laplace(model, "classification", structure="diag").fit([(x, labels)], progress=False)
    laplace.prior_precision = 1e-6

    def predict_often() -> None:
        for seed in range(10):  # a few networks may agree by chance
            laplace.predict(x, kind="mc", samples=5, seed=seed)

    with pytest.warns(
        UserWarning, match=r"agree with .* on \d+% of \d+ inputs.*tune\(val_loader.*kind='linear'"
    ) as caught:
        predict_often()
    assert len(caught) == 1
    assert caught[0].filename == __file__
    laplace.predict(x, kind="mc", samples=5)  # warnings are errors here: the second time it is silent
    laplace.predict_loader([(x, labels)], kind="mc", samples=5, progress=False)


def test_predict_loader_names_a_terrible_prior_by_its_accuracy() -> None:
    model, x, labels = make_classifier()
    laplace = Laplace(model, "classification", structure="diag").fit([(x, labels)], progress=False)
    laplace.prior_precision = 1e-6
    with pytest.warns(UserWarning, match=r"accuracy is [\d.]+%, the trained network's [\d.]+%.*prior_precision"):
        laplace.predict_loader([(x, labels)], kind="mc", samples=5, progress=False)
    laplace.predict(x, kind="mc", samples=5)


def test_a_terrible_prior_is_named_by_its_rmse_in_regression() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1), nn.Flatten(0)).double()
    x = torch.randn(40, 2).double()
    y = model(x).detach() + 0.1 * torch.randn(40).double()
    laplace = Laplace(model, "regression", structure="diag").fit([(x, y)], progress=False)
    laplace.predict_loader([(x, y)], kind="mc", samples=20, progress=False)
    laplace.prior_precision, laplace.num_data = 1e-6, 1e-6
    laplace.predict(x, kind="mc", samples=5)  # without targets there is nothing to compare with
    with pytest.warns(UserWarning, match=r"RMSE is .*, the trained network's 0\.\d+.*tune\(val_loader"):
        laplace.predict_loader([(x, y)], kind="mc", samples=5, progress=False)


@pytest.mark.parametrize("likelihood", ["classification", "multilabel", "regression"])
def test_outputs_that_are_not_finite_are_named(likelihood: str) -> None:
    laplace = fitted("linear", likelihood)
    broken = Laplace(
        nn.Sequential(*laplace.model.children(), Exploding()).double(), laplace.likelihood, structure="diag"
    )
    x = CASES["linear"].inputs(6)
    y = {"classification": torch.arange(6) % 3, "multilabel": torch.ones(6, 3)}.get(likelihood, torch.randn(6, 3))
    broken.fit([(x, y)], progress=False)
    broken.prior_precision, broken.num_data = 1e-12, 1e-12
    with pytest.warns(UserWarning, match="outputs are not finite.*kind='linear'"):
        broken.predict(x, kind="mc", samples=5)


class Exploding(nn.Module):
    """The identity near the trained outputs, infinite far from them."""

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.where(x.abs() > 1e3, torch.inf, 0.0) - torch.where(x.abs() > 1e3, torch.inf, 0.0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_good_prior_is_not_complained_of(kind: str) -> None:
    model, x, labels = make_classifier()
    laplace = Laplace(model, "classification").fit([(x, labels)], progress=False)
    laplace.prior_precision = 10.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        alone = laplace.predict(x, kind=kind, samples=20)
        loaded, _ = laplace.predict_loader([(x, labels)], kind=kind, samples=20, progress=False)
    assert_close(loaded.value, alone.value)


@pytest.mark.parametrize("kind", ["linear", "linear-mc"])
def test_kinds_that_run_no_sampled_network_never_warn(kind: str) -> None:
    model, x, labels = make_classifier()
    laplace = Laplace(model, "classification", structure="diag").fit([(x, labels)], progress=False)
    laplace.prior_precision = 1e-6
    prediction, _ = laplace.predict_loader([(x, labels)], kind=kind, samples=5, progress=False)
    assert bool(prediction.value.isfinite().all())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "exact"}, "kind must be one of 'auto', 'linear', 'mc', 'linear-mc', got 'exact'"),
        ({"link": "logit"}, "link must be one of 'probit', 'bridge', 'mc', got 'logit'"),
        ({"samples": 0}, "samples must be a whole number of at least 1, got 0"),
        ({"samples": 2.5}, "samples must be a whole number of at least 1, got 2.5"),
    ],
)
def test_wrong_arguments_are_refused(options: dict[str, Any], message: str) -> None:
    laplace, x = fitted("linear", "classification"), CASES["linear"].inputs()
    with pytest.raises(ValueError, match=message):
        laplace.predict(x, **options)
    with pytest.raises(ValueError, match=message):
        laplace.predict_loader([x], progress=False, **options)


def test_predicting_before_a_fit_says_so() -> None:
    laplace, x = Laplace(CASES["linear"].model(), "classification"), CASES["linear"].inputs()
    with pytest.raises(RuntimeError, match="no posterior yet; call fit"):
        laplace.predict(x)
    with pytest.raises(RuntimeError, match="no posterior yet; call fit"):
        laplace.predict_loader([x], progress=False)


@pytest.mark.parametrize("kind", KINDS)
def test_data_that_cannot_be_predicted_is_refused(kind: str) -> None:
    laplace, x = fitted("linear", "classification"), CASES["linear"].inputs()
    with pytest.raises(ValueError, match="the loader gave no examples"):
        laplace.predict_loader([], kind=kind, progress=False)
    with pytest.raises(ValueError, match="at least one example"):
        laplace.predict(x[:0], kind=kind)
    with pytest.raises(TypeError, match="a batch must be a tensor"):
        laplace.predict("an image", kind=kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("likelihood", "targets", "message"),
    [
        ("classification", torch.tensor([0, 1, 2, 3, 0]), r"between 0 and 2 \(the model has 3 logits\), got 3"),
        ("classification", torch.zeros(5, 3), "integer class indices"),
        ("classification", torch.zeros(4, dtype=torch.long), "one target for each of its 5 examples"),
        ("multilabel", torch.ones(5, 4), r"shape \(5, 3\), got \(5, 4\)"),
        ("regression", torch.ones(5, 2), r"shape \(5, 3\), got \(5, 2\)"),
    ],
)
def test_targets_that_do_not_fit_the_outputs_are_refused(
    likelihood: str, targets: Tensor, message: str, kind: str
) -> None:
    laplace, x = fitted("linear", likelihood), CASES["linear"].inputs()
    with pytest.raises(ValueError, match=message):
        laplace.predict_loader([(x, targets)], kind=kind, samples=3, progress=False)


def test_predictions_in_float32_follow_the_model() -> None:
    case = MODELS["conv2d"]
    model, x = case.model().float(), case.inputs().float()
    laplace = Laplace(model, "classification").fit([(x, torch.arange(5) % 3)], progress=False)
    laplace.prior_precision = 1000.0
    for kind in KINDS:
        prediction = laplace.predict(x, kind=kind, samples=3)
        assert prediction.value.dtype == torch.float32
        assert prediction.epistemic.dtype == torch.float32


def check_same(found: Prediction, expected: Prediction, *, exactly: bool = False) -> None:
    """Compare all that two predictions hold, besides how they were made; novelty where both are of a fitted model."""
    if expected.input_novelty is not None:
        assert found.input_novelty is not None
        for one in ("novelty", "by_part", "by_layer"):
            assert_close(getattr(found.input_novelty, one), getattr(expected.input_novelty, one))
    for name, value in vars(expected).items():
        if name in (*TEXTS, "input_novelty"):
            continue
        other = getattr(found, name)
        if isinstance(value, Tensor) and exactly:
            assert torch.equal(other, value), name
        elif isinstance(value, Tensor):
            assert_close(other, value)
        else:
            assert other == value or (other != other and value != value), name


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("case", CASES)
def test_covariances_under_several_posteriors_are_those_of_each(case: str, structure: str) -> None:
    laplace, x = fitted(case), CASES[case].inputs()
    posteriors = [laplace.posterior(structure=structure, prior_precision=tau) for tau in (0.3, 2.0, 50.0)]
    predictor = Predictor(laplace.model, laplace.layers, laplace.likelihood, posteriors[0])
    _, covariances = gaussian_outputs(predictor, read_inputs(x, torch.device("cpu")), posteriors)
    for covariance, posterior in zip(covariances, posteriors, strict=True):
        assert_close(covariance, dense_covariance(case, posterior), rtol=RTOL)


@pytest.mark.parametrize("case", MODELS)
def test_linear_does_not_depend_on_the_number_of_threads(case: str) -> None:
    threads = torch.get_num_threads()
    model, x = MODELS[case].model(), MODELS[case].inputs(25)
    laplace = Laplace(model, Regression(noise=0.5)).fit([(x, torch.zeros(25, 3).double())], progress=False)
    posterior = laplace.posterior(prior_precision=5.0)
    torch.set_num_threads(2)
    try:
        by_two = linear(laplace, posterior, x)
    finally:
        torch.set_num_threads(threads)
    for found, expected in zip(by_two, linear(laplace, posterior, x), strict=True):
        assert_close(found, expected, rtol=RTOL)
