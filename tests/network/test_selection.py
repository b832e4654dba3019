"""Which layers get a posterior: those that train, those that are named, all but some, or those a function chooses."""

import warnings
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import infoform

X = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
NAMES = {"body.0", "body.2", "head"}


class Adapted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 4))
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))  # type: ignore[no-any-return]


def model() -> Adapted:
    torch.manual_seed(0)
    return Adapted()


def covered(laplace: infoform.Laplace) -> set[str]:
    return {row.layer for row in laplace.coverage() if row.covered and row.layer}


def fitted(network: nn.Module, **options: object) -> infoform.Laplace:
    return infoform.Laplace(network, "classification", **options).fit([X], progress=False)  # type: ignore[arg-type]


def test_what_does_not_train_is_held_fixed_and_says_so() -> None:
    network = model()
    network.body.requires_grad_(False)
    laplace = fitted(network)
    assert covered(laplace) == {"head"}
    assert set(laplace.sample(1)) == {"head.weight", "head.bias"}
    reasons = {row.reason for row in laplace.coverage() if not row.covered}
    assert reasons == {"frozen: its parameters have requires_grad=False"}


def test_a_frozen_layer_that_is_named_gets_a_posterior() -> None:
    network = model()
    network.body.requires_grad_(False)
    assert covered(fitted(network, layers=["body.*"])) == {"body.0", "body.2"}


def test_a_layer_that_is_frozen_in_part_is_held_fixed_and_says_so() -> None:
    network = model()
    network.head.bias.requires_grad_(False)
    laplace = fitted(network)
    assert covered(laplace) == {"body.0", "body.2"}
    reason = {row.reason for row in laplace.coverage() if row.parameter == "head.weight"}
    assert reason == {"its bias is frozen, and a layer has a posterior as a whole; name it in layers="}


def test_a_wholly_frozen_model_warns_and_gets_the_posterior_of_one_that_trains() -> None:
    frozen = model().requires_grad_(False)
    with pytest.warns(UserWarning, match="all parameters have requires_grad=False"):
        laplace = fitted(frozen)
    assert covered(laplace) == NAMES
    for name, drawn in fitted(model()).sample(1).items():
        torch.testing.assert_close(laplace.sample(1)[name], drawn)


def test_a_saved_posterior_does_not_depend_on_the_flags_of_the_model_that_loads_it(tmp_path: Path) -> None:
    network = model()
    network.body.requires_grad_(False)
    laplace = fitted(network)
    laplace.save(tmp_path / "posterior.safetensors")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for other in (model(), model().requires_grad_(False)):
            loaded = infoform.load(tmp_path / "posterior.safetensors", other)
            assert covered(loaded) == {"head"}
            torch.testing.assert_close(loaded.predict(X).probs, laplace.predict(X).probs)
            assert str(loaded.coverage()) == str(laplace.coverage())


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        (["!body.*"], {"head"}),
        (["*", "!head"], {"body.0", "body.2"}),
        (["body.*", "!*.2"], {"body.0"}),
        (lambda name, module: module.out_features == 4, {"body.2"}),
    ],
)
def test_layers_are_left_out_by_patterns_and_chosen_by_functions(layers: object, expected: set[str]) -> None:
    assert covered(fitted(model(), layers=layers)) == expected


def test_patterns_to_leave_out_alone_leave_frozen_layers_out_too() -> None:
    network = model()
    network.body[0].requires_grad_(False)
    assert covered(fitted(network, layers=["!head"])) == {"body.2"}


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ([], "layers= must name layers with a rule, and the list is empty; the model has 'body.0', 'body.2', 'head'"),
        (["tail"], "layers= must name layers with a rule, and 'tail' matches none; the model has 'body.0'"),
        (["!tail"], "layers= must name layers with a rule, and '!tail' matches none; the model has 'body.0'"),
        (["head", "!head"], "layers= must leave at least one layer"),
        (lambda name, module: False, "layers= must choose at least one layer with a rule, and the function chose none"),
    ],
)
def test_a_selection_without_a_layer_is_refused_in_one_sentence(layers: object, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("(", r"\(").replace("!", "!")):
        infoform.Laplace(model(), "classification", layers=layers)  # type: ignore[arg-type]


def test_a_model_whose_layers_with_a_rule_are_all_frozen_says_what_to_do() -> None:
    network = nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3))
    network[0].requires_grad_(False)
    with pytest.raises(ValueError, match="at least one layer with a rule must train"):
        infoform.Laplace(network, "classification")
