"""The facade: settings are checked early, bad data is told in one sentence, and hyperparameters act as they should."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.testing import assert_close

import infoform
from flat import flat_laplace
from infoform.posteriors import PRESETS, STRUCTURES

Data = list[tuple[Tensor, Tensor]]


def make_model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)).double()


def make_data() -> Data:
    torch.manual_seed(1)
    return [(torch.randn(6, 5).double(), torch.randint(0, 3, (6,))) for _ in range(3)]


def fitted(**options: Any) -> infoform.Laplace:
    return flat_laplace(make_model(), "classification", **options).fit(make_data(), progress=False)


def test_fit_returns_the_object_and_sets_the_number_of_examples() -> None:
    laplace = infoform.Laplace(make_model(), "classification")
    assert laplace.fit(make_data(), progress=False) is laplace
    assert laplace.num_data == 18


def test_given_hyperparameters_win_over_the_objects_own() -> None:
    laplace = fitted(structure="diag")
    f = laplace.curvature["0"].diagonal
    assert f is not None
    assert_close(laplace.posterior().layers["0"].diagonal(), 18 * f + 1)
    laplace.prior_precision, laplace.num_data = 3.0, 5.0
    assert_close(laplace.posterior().layers["0"].diagonal(), 5 * f + 3)
    assert_close(laplace.posterior(prior_precision=0.5, num_data=7).layers["0"].diagonal(), 7 * f + 0.5)
    by_layer = laplace.posterior(prior_precision={"0": 2.0, "2": 4.0}, num_data=1)
    assert_close(by_layer.layers["0"].diagonal(), f + 2)


def test_regression_information_is_scaled_by_the_noise() -> None:
    model = make_model()
    torch.manual_seed(2)
    data = [(torch.randn(30, 5).double(), torch.randn(30, 3).double())]
    one = flat_laplace(model, infoform.Regression(noise=1.0), structure="diag", fisher="exact")
    half = flat_laplace(model, infoform.Regression(noise=0.5), structure="diag", fisher="exact")
    free = flat_laplace(model, "regression", structure="diag", fisher="exact").fit(data, progress=False)
    first = one.fit(data, progress=False).posterior(prior_precision=0).layers["0"].diagonal()
    assert_close(half.fit(data, progress=False).posterior(prior_precision=0).layers["0"].diagonal(), 4 * first)
    residual = (model(data[0][0]) - data[0][1]).detach()
    assert free.noise == pytest.approx(float(residual.square().mean().sqrt()), rel=1e-12)
    assert_close(free.posterior(prior_precision=0).layers["0"].diagonal(), first / residual.square().mean())


def test_samples_are_weights_for_functional_call() -> None:
    laplace = fitted()
    drawn = laplace.sample(4, seed=1)
    assert {name: value.shape[1:] for name, value in drawn.items()} == {
        name: parameter.shape for name, parameter in laplace.model.named_parameters()
    }
    x = make_data()[0][0]
    outputs = torch.vmap(lambda weights: functional_call(laplace.model, weights, (x,)))(drawn)
    assert outputs.shape == (4, 6, 3)
    assert not torch.equal(outputs[0], outputs[1])


def test_samples_scatter_around_the_trained_weights_as_the_posterior_says() -> None:
    laplace = fitted(structure="diag")
    drawn = laplace.sample(20_000, seed=3)["0.weight"]
    expected = laplace.posterior().layers["0"].diagonal()[:, :-1] ** -0.5
    assert_close(drawn.std(0), expected, rtol=0.03, atol=0)
    assert_close(drawn.mean(0), laplace.layers["0"].mean[:, :-1], rtol=0, atol=0.02)


def test_rank_may_be_a_number_a_share_or_given_by_layer() -> None:
    ranks = {
        name: layer.state_dict()["eigenvalues"].numel() for name, layer in fitted(rank=0.5).posterior().layers.items()
    }
    assert ranks == {"0": 12, "2": 8}
    by_layer = fitted(rank={"0": 3, "2": 5}).posterior().layers
    assert [layer.state_dict()["eigenvalues"].numel() for layer in by_layer.values()] == [3, 5]
    whole = fitted(rank=100).posterior().layers  # more than there are: all of them
    assert [layer.state_dict()["eigenvalues"].numel() for layer in whole.values()] == [24, 15]


def test_a_structure_that_the_fit_has_no_statistics_for_says_how_to_get_it() -> None:
    for structure in ("kfac", "full"):
        with pytest.raises(ValueError, match="statistics='all'"):
            fitted().posterior(structure=structure)
    with pytest.raises(ValueError, match="activation basis"):
        fitted().posterior(basis="activation")
    with pytest.raises(TypeError, match="takes the options"):
        fitted(structure="diag").posterior(rank=3)


def test_a_new_fit_replaces_the_old_one_and_a_failed_one_does_not() -> None:
    laplace = fitted()
    before = laplace.posterior().layers["0"].dense()
    with pytest.raises(ValueError, match="no examples"):
        laplace.fit([], progress=False)
    assert torch.equal(laplace.posterior().layers["0"].dense(), before)
    laplace.fit(make_data()[:1], progress=False)
    assert not torch.equal(laplace.posterior().layers["0"].dense(), before)
    assert laplace.num_data == 6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"structure": "banded"}, "structure must be one of 'diag'"),
        ({"basis": "fourier"}, "basis must be one of"),
        ({"support": "all"}, "support must be one of"),
        ({"correction": "none"}, "correction must be one of"),
        ({"damping": "strong"}, "damping must be one of"),
        ({"fisher": "true"}, "fisher must be one of"),
        ({"storage": "int8"}, "storage must be one of"),
        ({"statistics": "some"}, "statistics must be one of"),
        ({"rank": 0}, "rank must be a whole number of at least 1, got 0"),
        ({"rank": 1.5}, "rank as a share"),
        ({"rank": "many"}, "rank must be"),
        ({"fisher_samples": 0}, "fisher_samples must be"),
        ({"basis_size": -1}, "basis_size must be"),
        ({"layers": ["head*"]}, "'head\\*' matches none; the model has '0', '2'"),
    ],
)
def test_wrong_settings_are_refused_at_once(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        flat_laplace(make_model(), "classification", **options)


def test_wrong_objects_are_refused_at_once() -> None:
    with pytest.raises(TypeError, match=r"model must be a torch\.nn\.Module"):
        infoform.Laplace(lambda x: x, "classification")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"layers=\['0'\]"):
        infoform.Laplace(make_model(), "classification", layers="0")
    with pytest.raises(ValueError, match="likelihood must be one of"):
        infoform.Laplace(make_model(), "weibull")
    with pytest.raises(ValueError, match=r"at least one layer with a rule.*LayerNorm"):
        infoform.Laplace(nn.LayerNorm(3), "classification")
    with pytest.raises(ValueError, match="no module"):
        infoform.Laplace(nn.ReLU(), "classification")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"prior_precision": -1.0}, "prior_precision must be finite and not negative, got -1.0"),
        ({"prior_precision": float("nan")}, "prior_precision must be finite"),
        ({"prior_precision": {"0": 1.0}}, "none for '2'"),
        ({"num_data": 0}, "num_data must be positive and finite, got 0"),
        ({"num_data": float("inf")}, "num_data must be positive"),
    ],
)
def test_wrong_hyperparameters_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fitted().posterior(**settings)


def test_everything_that_needs_a_fit_says_so() -> None:
    laplace = infoform.Laplace(make_model(), "classification")
    for action in (laplace.posterior, lambda: laplace.sample(1), lambda: laplace.curvature):
        with pytest.raises(RuntimeError, match=r"call fit\(loader\) first"):
            action()
    assert [row.covered for row in laplace.coverage()] == [True] * 4


def nan_input(data: Data) -> Data:
    data[1][0][2, 3] = float("nan")
    return data


def infinite_input(data: Data) -> Data:
    data[1][0][0, 0] = float("inf")
    return data


@pytest.mark.parametrize("spoil", [nan_input, infinite_input])
def test_inputs_that_are_not_finite_are_named_with_their_batch(spoil: Callable[[Data], Data]) -> None:
    with pytest.raises(ValueError, match="in batch 1: the inputs must be finite"):
        infoform.Laplace(make_model(), "classification").fit(spoil(make_data()), progress=False)


class Spoil(nn.Module):
    """Passes its input on, or spoils the forward or the backward pass of the second whole batch."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.where, self.first = where, torch.empty(0)

    def forward(self, x: Tensor) -> Tensor:
        if not len(self.first):
            self.first = x.detach()
        if len(x) < 6 or torch.equal(x, self.first):  # a self-check runs the first batch again, and parts of it
            return x
        if self.where == "forward":
            return x / 0
        return x + 0 * (x.detach() - x).abs().sqrt()  # 0 · ∞ in the backward pass


def test_outputs_that_are_not_finite_name_the_layer_and_the_batch() -> None:
    model = nn.Sequential(nn.Linear(5, 4), Spoil("forward"), nn.Linear(4, 3)).double()
    with pytest.raises(
        ValueError, match=r"in batch 1: the outputs must be finite.*first seen in the inputs of layer '2'"
    ):
        infoform.Laplace(model, "classification").fit(make_data(), progress=False)
    model = make_model()
    with torch.no_grad():
        next(model[2].parameters())[0, 0] = float("inf")
    with pytest.raises(ValueError, match=r"in batch 0: the outputs must be finite.*last layers"):
        infoform.Laplace(model, "classification").fit(make_data(), progress=False)


def test_gradients_that_are_not_finite_name_the_layer_and_the_batch() -> None:
    model = nn.Sequential(nn.Linear(5, 4), Spoil("backward"), nn.Linear(4, 3)).double()
    with pytest.raises(ValueError, match="in batch 1: the gradients of layer '0' must be finite"):
        infoform.Laplace(model, "classification").fit(make_data(), progress=False)


@pytest.mark.parametrize(
    ("likelihood", "targets", "message"),
    [
        ("classification", torch.zeros(6), "integer class indices"),
        ("classification", torch.zeros(6, 3, dtype=torch.long), "argmax"),
        ("classification", torch.zeros(5, dtype=torch.long), "one target for each of its 6 examples"),
        ("classification", torch.tensor([0, 1, 2, 3, 0, 0]), "between 0 and 2 .*, got 3"),
        ("classification", torch.tensor([0, 1, 2, -1, 0, 0]), "got -1"),
        ("multilabel", torch.zeros(6, dtype=torch.long), "outputs' shape"),
        ("multilabel", torch.full((6, 3), 2.0), "between 0 and 1, got 2.0"),
        ("multilabel", torch.full((6, 3), float("nan")), "between 0 and 1, got nan"),
        ("regression", torch.zeros(6), "outputs' shape"),
        ("regression", torch.full((6, 3), float("nan")), "finite real numbers"),
        ("regression", torch.tensor(1.0), "one target for each"),
    ],
)
def test_wrong_targets_are_refused_in_one_sentence(likelihood: str, targets: Tensor, message: str) -> None:
    data = [(make_data()[0][0], targets)]
    with pytest.raises(ValueError, match=message) as error:
        infoform.Laplace(make_model(), likelihood).fit(data, progress=False)
    assert str(error.value).startswith("in batch 0: ")
    assert "\n" not in str(error.value)


def test_wrong_outputs_are_refused() -> None:
    data = make_data()
    with pytest.raises(ValueError, match="at least 2 logits"):
        infoform.Laplace(nn.Linear(5, 1).double(), "classification").fit(data, progress=False)
    model = nn.Sequential(nn.Linear(5, 3), nn.Flatten(0)).double()
    with pytest.raises(ValueError, match=r"outputs of shape \(examples, outputs\), got \(18,\)"):
        infoform.Laplace(model, "classification").fit(data, progress=False)
    model = nn.Sequential(nn.Linear(5, 3), nn.Unflatten(1, (3, 1))).double()  # three positions of one logit
    with pytest.raises(ValueError, match="at least 2 logits"):
        infoform.Laplace(model, "classification").fit(data, progress=False)
    likelihood = infoform.Regression(noise=[1.0, 2.0])
    with pytest.raises(ValueError, match="one standard deviation for each of the model's 3 outputs, got 2"):
        infoform.Laplace(make_model(), likelihood).fit([data[0][0]], progress=False)

    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(5, 3)

        def forward(self, x: Tensor) -> tuple[Tensor, None]:
            return self.inner(x), None

    with pytest.raises(TypeError, match=r"object with \.logits, got tuple"):
        infoform.Laplace(Pair().double(), "classification").fit(data, progress=False)


def test_bad_loaders_are_refused() -> None:
    laplace = infoform.Laplace(make_model(), "classification")
    with pytest.raises(ValueError, match="no examples"):
        laplace.fit([], progress=False)
    with pytest.raises(ValueError, match="read twice"):
        laplace.fit(iter(make_data()), progress=False)
    with pytest.raises(TypeError, match="a batch must be a tensor"):
        laplace.fit([3], progress=False)
    with pytest.raises(ValueError, match="fisher='empirical' needs targets"):
        flat_laplace(make_model(), "classification", fisher="empirical").fit([make_data()[0][0]], progress=False)
    with pytest.raises(ValueError, match="fitting the noise needs targets"):
        infoform.Laplace(make_model(), "regression").fit([make_data()[0][0]], progress=False)

    class Shrinking:
        def __init__(self) -> None:
            self.left = 3

        def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
            yield from make_data()[: self.left]
            self.left -= 1

    with pytest.raises(ValueError, match="same data in both passes, got 18 examples, then 12"):
        laplace.fit(Shrinking(), progress=False)


def test_an_iterator_is_enough_for_a_structure_of_one_pass() -> None:
    laplace = infoform.Laplace(make_model(), "classification", structure="diag")
    once = laplace.fit(iter(make_data()), progress=False).posterior().layers["0"].diagonal()
    assert_close(once, fitted(structure="diag").posterior().layers["0"].diagonal())


def test_models_whose_examples_are_not_apart_are_refused() -> None:
    mixed = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4, track_running_stats=False), nn.Linear(4, 3)).double()
    with pytest.raises(ValueError, match="'1' is a BatchNorm1d without running statistics"):
        infoform.Laplace(mixed, "classification").fit(make_data(), progress=False)


class Steps(nn.Module):
    """Has two steps of time, before the examples or after them."""

    def __init__(self, axis: int) -> None:
        super().__init__()
        self.inner, self.outer, self.axis = nn.Linear(5, 4), nn.Linear(4, 3), axis

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.inner(torch.stack([x, x.square()], self.axis)).tanh()
        return self.outer(hidden.mean(self.axis))  # type: ignore[no-any-return]


def test_time_may_come_before_the_examples() -> None:
    first, second = Steps(0).double(), Steps(1).double()
    second.load_state_dict(first.state_dict())
    found, expected = (
        infoform.Laplace(one, "classification", structure="full", fit_options=infoform.FitOptions(fisher="exact")).fit(
            make_data(), progress=False
        )
        for one in (first, second)
    )
    for name, layer in expected.posterior().layers.items():
        torch.testing.assert_close(found.posterior().layers[name].dense(), layer.dense())


def test_layers_too_large_for_the_exact_block_are_named() -> None:
    with pytest.raises(ValueError, match="block_limit=20 weights, got 24 in layer '0'"):
        fitted(structure="full", block_limit=20)
    assert set(fitted(structure="full", block_limit=20, layers=["2"]).posterior().layers) == {"2"}


def test_a_model_none_of_whose_layers_is_reached_is_refused() -> None:
    class Blocked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(5, 3)

        def forward(self, x: Tensor) -> Tensor:
            with torch.no_grad():
                return self.inner(x)  # type: ignore[no-any-return]

    with pytest.raises(ValueError, match="a gradient must reach at least one layer"):
        infoform.Laplace(Blocked().double(), "classification").fit(make_data(), progress=False)


@pytest.mark.parametrize("structure", [*STRUCTURES, *PRESETS])
def test_only_our_form_of_a_classifier_has_the_activation_prior_by_default(structure: str) -> None:
    """The paper's setting is one preset away, whether it is chosen before the fit or after it."""
    expected = "activation" if structure in ("inf", "by-layer", "auto") else "isotropic"
    assert infoform.Laplace(make_model(), "classification", structure=structure).prior.name == expected
    assert infoform.Laplace(make_model(), "regression", structure=structure).prior.name == "isotropic"
    assert infoform.Laplace(make_model(), "classification", structure=structure, prior="isotropic").prior.name == (
        "isotropic"
    )
    laplace = fitted(statistics="all")
    layer = laplace.posterior(structure=structure, prior_precision=3.0).layers["0"]
    assert layer.prior.isotropic == (expected == "isotropic")
    given = fitted(statistics="all", prior="activation").posterior(structure=structure).layers["0"]
    assert not given.prior.isotropic
