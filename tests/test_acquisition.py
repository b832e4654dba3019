"""Active learning: the choice against dense Gaussian conditioning, and what a batch must not do."""

from collections.abc import Iterable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import infoform
from dense import assert_close
from flat import flat_laplace
from infoform.acquisition import SCORES, condition
from infoform.likelihoods import Classification, MultiLabel, Regression
from likelihood_cases import WITH_THREE_OUTPUTS

KINDS = ("linear-mc", "mc")


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def fitted(likelihood: str = "regression", *, outputs: int = 2, layers: int = 2) -> infoform.Laplace:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, outputs)) if layers == 2 else nn.Linear(3, outputs)
    model = model.double()
    inputs = normal(40, 3)
    targets = {
        "regression": normal(40, outputs, seed=1),
        "classification": torch.arange(40) % outputs,
        "multilabel": (normal(40, outputs, seed=1) > 0).double(),
    }[likelihood]
    laplace = flat_laplace(model, likelihood, structure="full", fisher="exact")
    laplace.fit([(inputs, targets)], progress=False)
    laplace.prior_precision = 2.0
    return laplace


def pool(inputs: Tensor, size: int = 7) -> list[Any]:
    return list(inputs.split(size))


def choose(laplace: infoform.Laplace, inputs: Tensor, n: int, **options: Any) -> list[int]:
    chosen = infoform.acquire(laplace, pool(inputs), n, progress=False, **options)
    assert chosen.dtype == torch.long
    return chosen.tolist()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("by", SCORES)
@pytest.mark.parametrize("likelihood", WITH_THREE_OUTPUTS)
def test_one_point_is_the_best_score(likelihood: str, by: str, kind: str) -> None:
    laplace, inputs = fitted(likelihood), normal(30, 3, seed=5)
    prediction = laplace.predict(inputs, kind=kind, samples=20, seed=4)
    score = prediction.epistemic.sum(1) if by == "variance" else prediction.mutual_information
    for greedy in (True, False):
        assert choose(laplace, inputs, 1, by=by, kind=kind, samples=20, seed=4, greedy=greedy) == [int(score.argmax())]


@pytest.mark.parametrize("by", SCORES)
def test_without_greed_the_best_scores_are_taken_in_order(by: str) -> None:
    laplace, inputs = fitted("classification", outputs=3), normal(30, 3, seed=5)
    prediction = laplace.predict(inputs, kind="linear", seed=0)
    score = prediction.epistemic.sum(1) if by == "variance" else prediction.mutual_information
    expected = score.argsort(descending=True, stable=True)[:4].tolist()
    assert choose(laplace, inputs, 4, by=by, kind="linear", greedy=False) == expected


def test_a_regression_batch_is_that_of_dense_gaussian_conditioning() -> None:
    laplace, inputs = fitted(outputs=1), normal(25, 3, seed=5)
    laplace.noise = 0.3
    outputs = laplace.predict(inputs, kind="mc", samples=50, seed=0).samples
    assert outputs is not None
    covariance = outputs.squeeze(-1).T.cov()  # (N, N)
    expected: list[int] = []
    for _ in range(8):
        variance = covariance.diagonal().clone()
        variance[expected] = 0
        expected.append(int(variance.argmax()))
        row = covariance[expected[-1]]
        covariance = covariance - torch.outer(row, row) / (row[expected[-1]] + 0.3**2)
    assert choose(laplace, inputs, 8, kind="mc", samples=50, seed=0) == expected


@pytest.mark.parametrize("likelihood", [Regression(noise=[0.3, 0.7, 0.5]), Classification(), MultiLabel()])
def test_conditioned_samples_have_the_conditional_covariance(likelihood: infoform.Likelihood) -> None:
    samples, points, count, index = 40, 5, 3, 2
    outputs = normal(samples, points, count)
    noise = 1.0 if isinstance(likelihood, Regression) else None
    prediction = likelihood.from_samples(outputs, outputs[0], noise=noise)
    after = condition(likelihood, outputs.clone(), prediction, index)

    if isinstance(likelihood, Regression):
        means, noises = outputs[:, index], torch.tensor([0.09, 0.49, 0.25], dtype=torch.float64).diag()
    elif isinstance(likelihood, Classification):
        means = outputs[:, index].softmax(-1)
        noises = torch.stack([p.diag() - torch.outer(p, p) for p in means]).mean(0)
    else:
        means = outputs[:, index].sigmoid()
        noises = torch.stack([(p * (1 - p)).diag() for p in means]).mean(0)
    both = torch.cat([outputs.flatten(1), means], dim=1).T.cov()
    size = points * count
    gain = both[:size, size:] @ torch.linalg.pinv(both[size:, size:] + noises, hermitian=True) @ both[size:, :size]
    assert_close(after.flatten(1).T.cov(), both[:size, :size] - gain)
    assert_close(after.mean(0), outputs.mean(0))


def test_a_certain_answer_changes_nothing() -> None:
    outputs = normal(10, 4, 2)
    outputs[:, 1] = torch.tensor([1000.0, -1000.0], dtype=torch.float64)
    prediction = Classification().from_samples(outputs, outputs[0], noise=None)
    assert_close(condition(Classification(), outputs.clone(), prediction, 1), outputs)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("by", SCORES)
@pytest.mark.parametrize("likelihood", WITH_THREE_OUTPUTS)
def test_a_greedy_batch_does_not_take_near_duplicates(likelihood: str, by: str, kind: str) -> None:
    laplace = fitted(likelihood)
    laplace.noise = 0.1 if likelihood == "regression" else None
    laplace.prior_precision = 0.3
    inputs = normal(20, 3, seed=5)
    options: dict[str, Any] = {"by": by, "kind": kind, "samples": 200}
    best = choose(laplace, inputs, 1, **options)[0]
    duplicated = torch.cat([inputs, inputs[best] + 1e-6 * normal(4, 3, seed=6)])
    copies = {best, 20, 21, 22, 23}
    assert set(choose(laplace, duplicated, 4, greedy=False, **options)) <= copies
    chosen = choose(laplace, duplicated, 4, **options)
    assert len(set(chosen)) == 4
    assert len(copies & set(chosen)) < 4


def test_all_of_the_pool_can_be_chosen_and_none_twice() -> None:
    assert sorted(choose(fitted(), normal(9, 3), 9)) == list(range(9))


def test_the_choice_does_not_depend_on_batches_and_is_repeatable() -> None:
    laplace, inputs = fitted("classification"), normal(30, 3, seed=5)
    loader = DataLoader(TensorDataset(inputs, torch.zeros(30)), batch_size=11)
    once = infoform.acquire(laplace, loader, 5, progress=False)
    assert once.tolist() == choose(laplace, inputs, 5)


def test_the_model_and_the_global_seed_are_left_as_found() -> None:
    laplace = fitted()
    laplace.model.train()
    before = {name: value.clone() for name, value in laplace.model.state_dict().items()}
    state = torch.random.get_rng_state()
    loader = DataLoader(TensorDataset(normal(9, 3)), batch_size=4)
    for greedy in (True, False):
        infoform.acquire(laplace, loader, 2, greedy=greedy, progress=False)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in laplace.model.state_dict().items())
    assert all(module.training for module in laplace.model.modules())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n": 10}, "n must be at most the 9 inputs of the pool, got 10"),
        ({"n": 10, "greedy": False}, "n must be at most the 9 inputs of the pool, got 10"),
        ({"n": 0}, "n must be a whole number of at least 1, got 0"),
        ({"n": 1, "samples": 1}, "samples must be a whole number of at least 2"),
        ({"n": 1, "by": "entropy"}, "by must be one of 'variance', 'mutual_information', got 'entropy'"),
        ({"n": 1, "kind": "exact"}, "kind must be one of"),
        ({"n": 2, "kind": "linear"}, "use kind='linear-mc' or 'mc', or greedy=False"),
    ],
)
def test_bad_arguments_get_one_sentence(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        infoform.acquire(fitted(), pool(normal(9, 3)), progress=False, **options)


@pytest.mark.parametrize(
    ("loader", "message"),
    [
        ([], "at least one input"),
        ([torch.full((3, 3), torch.nan, dtype=torch.float64)], "scores of the pool must be finite"),
        (DataLoader(TensorDataset(normal(9, 3)), shuffle=True), "RandomSampler; use shuffle=False"),
    ],
)
def test_bad_pools_get_one_sentence(loader: Iterable[Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        infoform.acquire(fitted(), loader, 1, progress=False)


@pytest.mark.parametrize("greedy", [True, False])
def test_an_unfitted_posterior_is_named(greedy: bool) -> None:
    laplace = infoform.Laplace(nn.Linear(3, 2), "classification")
    with pytest.raises(RuntimeError, match=r"call fit\(loader\) first"):
        infoform.acquire(laplace, pool(torch.randn(9, 3)), 1, greedy=greedy, progress=False)


def test_a_large_pool_gives_the_batch_of_all_sampled_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    from infoform import acquisition

    laplace, inputs = fitted("classification"), normal(300, 3, seed=5)
    inputs[::2] = inputs[1::2] + 1e-3 * normal(150, 3, seed=6)  # near-duplicates must not be taken twice
    how: dict[str, Any] = {"samples": 400, "seed": 4}
    expected = set(choose(laplace, inputs, 6, **how))
    monkeypatch.setattr(acquisition, "SHORT", 20)
    drawn: list[int] = []
    pooled = acquisition._pool_outputs

    def counted(*arguments: Any, **more: Any) -> Any:
        outputs = pooled(*arguments, **more)
        drawn.append(len(outputs[1]))
        return outputs

    monkeypatch.setattr(acquisition, "_pool_outputs", counted)
    found = acquisition.choose_inputs(laplace, pool(inputs), 6, progress=False, **how)
    assert drawn
    assert sum(drawn) < 300  # most inputs get no sampled outputs
    # the same inputs, or their duplicates
    assert {place // 2 for place in found.positions.tolist()} == {place // 2 for place in expected}
    left_out = laplace.predict(inputs, kind="linear", samples=400, seed=4).epistemic.sum(1)
    kept = left_out.argsort(descending=True)[: drawn[-1]]
    outside = [index for index in range(300) if index not in set(kept.tolist())]
    assert float(found.scores.min()) >= float(left_out[outside].max())


def test_a_shortlist_grows_until_the_choice_is_sure(monkeypatch: pytest.MonkeyPatch) -> None:
    from infoform import acquisition

    laplace = fitted("regression", outputs=1)
    inputs = normal(200, 3, seed=5)
    inputs[:100] = 3 * inputs[0]  # the hundred best are the same input: after one label they tell nothing
    monkeypatch.setattr(acquisition, "SHORT", 10)
    found = acquisition.choose_inputs(laplace, pool(inputs), 2, samples=200, progress=False)
    first, second = found.positions.tolist()
    assert (first < 100) != (second < 100)
    assert float(found.scores[1]) > 0
