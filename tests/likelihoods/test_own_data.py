"""`fit` tells the network's own scores on its data, and warns, with a cause, where it looks untrained or misread."""

import math
import warnings

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import infoform
from infoform import Laplace, UntrainedWarning
from infoform.likelihoods.own_data import MANY, confusion, count_classes, other_order


def _digits() -> tuple[nn.Module, Tensor, Tensor]:
    """Return a network that is right on its data: three heaps in the plane."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(90) % 3
    centres = torch.tensor([[4.0, 0.0], [-4.0, 0.0], [0.0, 4.0]])
    x = centres[labels] + torch.randn(90, 2, generator=generator)
    layer = nn.Linear(2, 3)
    with torch.no_grad():
        layer.weight.copy_(centres)
        layer.bias.zero_()
    return nn.Sequential(layer), x, labels


def _warned(model: nn.Module, data: list[tuple[Tensor, Tensor]], likelihood: str = "classification") -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Laplace(model, likelihood).fit(data, progress=False)
    assert all(issubclass(one.category, UntrainedWarning) for one in caught)
    assert all(one.filename == __file__ for one in caught)
    return [str(one.message) for one in caught]


def test_scores_are_those_of_the_network_alone() -> None:
    model, x, labels = _digits()
    laplace = Laplace(model, "classification").fit([(x[:50], labels[:50]), (x[50:], labels[50:])], progress=False)
    with torch.no_grad():
        outputs = model(x).double()
    accuracy = float((outputs.argmax(1) == labels).double().mean())
    nll = float(functional.cross_entropy(outputs, labels))
    assert laplace.training_scores == pytest.approx({"accuracy": accuracy, "nll": nll}, rel=1e-6)
    assert laplace.training_troubles() == []


def test_scores_survive_an_update_and_a_file(tmp_path: "object") -> None:
    model, x, labels = _digits()
    whole = Laplace(model, "classification").fit([(x, labels)], progress=False)
    parts = Laplace(model, "classification").fit([(x[:40], labels[:40])], progress=False)
    parts.fit([(x[40:], labels[40:])], update=True, progress=False)
    assert parts.training_scores == pytest.approx(whole.training_scores)
    parts.save(f"{tmp_path}/posterior.safetensors")
    assert infoform.load(f"{tmp_path}/posterior.safetensors", model).training_scores == parts.training_scores


def test_a_good_network_is_not_warned_of() -> None:
    model, x, labels = _digits()
    assert _warned(model, [(x, labels)]) == []


def test_a_random_network_is_warned_of_with_the_likely_cause() -> None:
    _, x, labels = _digits()
    torch.manual_seed(3)
    (said,) = _warned(nn.Linear(2, 3), [(x, labels[torch.randperm(90)])])
    assert said.startswith("on the data of the fit the network is right in ")
    assert "the most frequent class alone is in 33.3%" in said
    assert "check that its trained weights were loaded" in said


def test_classes_in_another_order_are_told() -> None:
    model, x, labels = _digits()
    order = torch.tensor([2, 0, 1])  # the label of what output 0, 1, 2 stands for
    laplace = Laplace(model, "classification")
    with pytest.warns(UntrainedWarning, match=r"if output 0 answers class 2, output 1 answers class 0, output 2"):
        laplace.fit([(x, order[labels])], progress=False)
    (said,) = laplace.training_troubles(["ash", "birch", "cedar"])
    assert "if the classes stood in the order cedar,ash,birch" in said


def test_raw_pixels_are_told() -> None:
    model, x, labels = _digits()
    torch.manual_seed(0)
    pixels = torch.randint(0, 256, (90, 1, 4, 4)).float()
    (said,) = _warned(nn.Sequential(nn.Flatten(), nn.Linear(16, 3)), [(pixels, labels)])
    assert "whole numbers up to 255, as raw pixels are" in said
    del model, x


def test_outputs_that_are_probabilities_are_told() -> None:
    model, x, labels = _digits()
    (said,) = _warned(nn.Sequential(model, nn.Softmax(1)), [(x, labels)])
    assert said.startswith("the network's outputs look like probabilities")
    assert _warned(nn.Sequential(model, nn.LogSoftmax(1)), [(x, labels)]) == []
    yes = torch.nn.functional.one_hot(labels).float()
    (said,) = _warned(nn.Sequential(model, nn.Sigmoid()), [(x, yes)], "multilabel")
    assert "leave out the last sigmoid" in said
    assert _warned(model, [(x, yes)], "multilabel") == []


def test_labels_that_are_guessed_are_told() -> None:
    _, x, labels = _digits()
    torch.manual_seed(0)
    yes = torch.nn.functional.one_hot(labels).float()
    model = nn.Linear(2, 3)
    nn.init.zeros_(model.weight)
    (said,) = _warned(model, [(x, yes)], "multilabel")
    assert "of the labels rightly, and the more frequent answers alone 66.7%" in said


def test_numbers_are_held_against_their_mean() -> None:
    _, x, _ = _digits()
    target = x @ torch.tensor([[1.0], [2.0]]) + 100
    (said,) = _warned(nn.Linear(2, 1), [(x, target)], "regression")
    spread = float(target.std(correction=0))
    assert f"the mean of the targets alone has {spread:.3g}" in said
    good = nn.Linear(2, 1)
    with torch.no_grad():
        good.weight.copy_(torch.tensor([[1.0, 2.1]]))
        good.bias.fill_(100)
    laplace = Laplace(good, "regression").fit([(x, target)], progress=False)
    with torch.no_grad():
        rmse = float((good(x) - target).square().mean().sqrt())
    assert laplace.training_scores == pytest.approx({"rmse": rmse}, rel=1e-5)
    assert laplace.training_troubles() == []


def test_few_examples_and_no_targets_tell_nothing() -> None:
    _, x, labels = _digits()
    torch.manual_seed(3)
    assert _warned(nn.Linear(2, 3), [(x[:20], labels[:20])]) == []
    laplace = Laplace(nn.Linear(2, 3), "classification").fit([x], progress=False)
    assert laplace.training_scores == {}


def test_many_classes_are_counted_without_their_confusions() -> None:
    generator = torch.Generator().manual_seed(0)
    classes = MANY + 1
    outputs, targets = torch.randn(500, classes, generator=generator), torch.randint(classes, (500,))
    table = confusion(count_classes(outputs, targets), classes)
    assert float(table.diagonal().sum()) == int((outputs.argmax(1) == targets).sum())
    torch.testing.assert_close(table.sum(0), torch.bincount(targets, minlength=classes).double())
    assert other_order(table) is None
    assert math.isclose(float(table.sum()), 500)
