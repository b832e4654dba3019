"""What a likelihood owns: its default prior, its plain prediction, its scores, what the command asks of it."""

import ast
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import infoform
from infoform import Classification, Likelihood, MultiLabel, Regression, metrics
from infoform.likelihoods import LIKELIHOODS
from likelihood_cases import targets_of, width_of

SOURCES = Path(infoform.__file__).parent
NOISE = {"regression": 0.5}
EXEMPT = ("likelihoods", "experiments")
ANSWERS = {"classification": "class", "multilabel": "labels", "regression": "numbers"} | {
    "heteroscedastic": "numbers",
    "poisson": "numbers",
    "negative-binomial": "numbers",
    "ordinal": "class",
}


def plain(likelihood: Likelihood, outputs: Tensor) -> infoform.Prediction:
    return likelihood.plain_prediction(outputs, noise=NOISE.get(likelihood.name))


def outputs(examples: int = 7, width: int = 3) -> Tensor:
    return 2 * torch.randn(examples, width, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_the_default_prior_of_the_default_structure_is_the_likelihoods(name: str) -> None:
    laplace = infoform.Laplace(nn.Linear(3, width_of(name)), name)
    assert laplace.prior.name == LIKELIHOODS[name].default_prior
    assert infoform.Laplace(nn.Linear(3, 2), name, structure="kfac").prior.name == "isotropic"


@pytest.mark.parametrize("width", [1, 2, 3])
@pytest.mark.parametrize("name", LIKELIHOODS)
def test_a_prediction_knows_what_it_answers(name: str, width: int) -> None:
    try:
        likelihood = LIKELIHOODS[name]()
        likelihood.check_outputs(outputs(width=width))
    except ValueError:  # outputs of that width are not for it
        return
    assert plain(likelihood, outputs(width=width)).answer == ANSWERS[name]
    assert likelihood.one_of_many == (name == "classification")


def test_the_plain_prediction_is_the_trained_networks_own() -> None:
    f = outputs()
    expected = {"classification": f.softmax(1), "multilabel": f.sigmoid(), "regression": f}
    for name, value in expected.items():
        prediction = plain(LIKELIHOODS[name](), f)
        assert_close(prediction.value, value)
        assert_close(prediction.plain, f)
        assert float(prediction.epistemic.abs().max()) < 1e-15
        assert float(prediction.mutual_information.abs().max()) < 1e-12
    assert_close(plain(Regression(), f).std, torch.full_like(f, 0.5))
    probs = f.softmax(1)
    assert_close(plain(Classification(), f).entropy, -(probs * probs.log()).sum(1))


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_scores_are_those_of_the_metrics(name: str) -> None:
    likelihood, f = LIKELIHOODS[name](), outputs(width=width_of(name))
    targets = targets_of(likelihood, f)
    prediction = plain(likelihood, f)
    expected = metrics.evaluate(prediction, targets)
    if likelihood.own_density:  # of the network alone: that of its outputs
        expected["log_likelihood"] = float(likelihood.log_prob(f, targets).mean())
        expected["nll"] = -expected["log_likelihood"]
    assert likelihood.scores(prediction, targets) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("likelihood", [MultiLabel(), Regression()])
def test_targets_of_a_file_are_numbers_in_the_networks_type(likelihood: Likelihood) -> None:
    for given in (torch.tensor([0, 1]), torch.tensor([0.0, 1.0]).double(), torch.tensor([False, True])):
        read = likelihood.read_targets(given, torch.float32)
        assert read.dtype == torch.float32
        assert read.tolist() == [0.0, 1.0]


def test_classes_of_a_file_are_whole_numbers_in_whatever_type() -> None:
    for given in (torch.tensor([0, 1]), torch.tensor([0.0, 1.0]).double(), torch.tensor([False, True])):
        read = Classification().read_targets(given, torch.float32)
        assert read.dtype == torch.int64
        assert read.tolist() == [0, 1]
    fractions = Classification().read_targets(torch.tensor([0.5, 1.0]).double(), torch.float32)
    assert fractions.dtype == torch.float32  # which check_targets refuses, with a sentence
    with pytest.raises(ValueError, match="integer class indices"):
        Classification().check_targets(fractions, torch.zeros(2, 2))


def test_a_noise_can_be_set_where_there_is_one() -> None:
    assert {name for name, kind in LIKELIHOODS.items() if kind.takes_noise} == {"regression"}
    assert Regression().with_noise(0.25).settings() == {"noise": 0.25}
    for likelihood in (Classification(), MultiLabel()):
        with pytest.raises(ValueError, match="noise is for regression, got 1"):
            likelihood.with_noise(1.0)


def test_sampled_networks_that_are_much_worse_are_told_of() -> None:
    f, wrong = torch.eye(4).double().repeat(10, 1) * 9, torch.eye(4).roll(1, 0).double().repeat(10, 1) * 9
    bad, targets = Classification().from_samples(wrong[None], f, noise=None), f.argmax(1)
    assert Classification().sampling_trouble(bad, targets) == "their accuracy is 0.0%, the trained network's 100.0%"
    told = Classification().sampling_trouble(bad, None)
    assert told == "they agree with the trained network on 0% of 40 inputs"
    assert Classification().sampling_trouble(plain(Classification(), f), targets) is None
    lost = Regression().from_samples(wrong[None] * torch.nan, f, noise=0.5)
    assert Regression().sampling_trouble(lost, None) == "the sampled networks' outputs are not finite"
    far = Regression().from_samples(wrong[None], f + 0.01, noise=0.5)
    told = Regression().sampling_trouble(far, f)
    assert told is not None
    assert told.startswith("their RMSE is 6.36, the trained network's 0.01")
    assert Regression().sampling_trouble(far, None) is None
    assert MultiLabel().sampling_trouble(MultiLabel().from_samples(wrong[None], f, noise=None), None) is None


def test_no_room_but_the_likelihoods_asks_which_likelihood_it_has() -> None:
    paths = [path for path in SOURCES.rglob("*.py") if path.relative_to(SOURCES).parts[0] not in EXEMPT]
    assert len(paths) > 100
    asked = [
        f"{path.relative_to(SOURCES)}:{node.lineno}"
        for path in paths
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.expr) and _asks(node)
    ]
    assert asked == []


def _asks(node: ast.expr) -> bool:
    """Whether this is `isinstance(x, Regression)`, or a comparison with "regression"."""
    kinds = {kind.__name__ for kind in LIKELIHOODS.values()}
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
        return any(isinstance(one, ast.Name) and one.id in kinds for one in ast.walk(node.args[1]))
    if isinstance(node, ast.Compare):
        return any(isinstance(one, ast.Constant) and one.value in LIKELIHOODS for one in (node.left, *node.comparators))
    return False


def test_a_share_of_agreement_needs_enough_inputs() -> None:
    f, wrong = torch.eye(4).double() * 9, torch.eye(4).roll(1, 0).double() * 9
    one = Classification().from_samples(wrong[None, :1], f[:1], noise=None)
    assert Classification().sampling_trouble(one, None) is None  # of one input, 0 % say nothing
    many = Classification().from_samples(wrong[None].repeat(1, 5, 1), f.repeat(5, 1), noise=None)
    assert Classification().sampling_trouble(many, None) == "they agree with the trained network on 0% of 20 inputs"
