"""Moments against dense ones in float64, for every layer type, batch size and number of columns."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from infoform.likelihoods import Classification
from infoform.network.batches import Batch
from infoform.network.coverage import find_layers
from infoform.network.last_layer import plain_outputs
from infoform.novelty.fit_sums import NoveltySums
from infoform.novelty.left_out import LeftOut
from infoform.novelty.moments import EXACT, STRIDE, WHOLE, WIDE, MomentSums, example_weights
from infoform.novelty.pooled import pooling
from models import MODELS

EXAMPLES = 60


def pooled_rows(case: str, inputs: Tensor) -> dict[str, Tensor]:
    model = MODELS[case].model().eval()
    with pooling(find_layers(model)[0]) as pooled:
        pooled.begin(Batch((inputs,), {}, None))
        plain_outputs(model, Batch((inputs,), {}, None))
    return pooled.rows(len(inputs))


@pytest.mark.parametrize("size", [EXAMPLES, 7])
@pytest.mark.parametrize("case", MODELS)
def test_moments_are_those_of_all_examples_but_those_left_out(case: str, size: int) -> None:
    model, inputs = MODELS[case].model().eval(), MODELS[case].inputs(EXAMPLES)
    labels, sums = torch.arange(EXAMPLES) % 3, NoveltySums(model, Classification())
    with sums.watching():
        for start in range(0, EXAMPLES, size):
            numbers = torch.arange(start, min(start + size, EXAMPLES))
            batch = Batch((inputs[numbers],), {}, None)
            sums.begin(batch)
            sums.add(plain_outputs(model, batch), labels[numbers], numbers)
    left = sums._left_out.examples()
    assert 0 < len(left.numbers) < EXAMPLES / 2
    rest = torch.ones(EXAMPLES, dtype=torch.bool)
    rest[left.numbers] = False
    rows = pooled_rows(case, inputs)
    assert sums._head in rows
    for name, all_rows in rows.items():
        x, moments = all_rows[rest], sums._moments[name].sums
        mean = moments["total"][0] / moments["count"]
        assert moments["count"] == rest.sum()
        assert_close(mean, x.mean(0), rtol=1e-9, atol=1e-12)
        covariance = moments["second"] / moments["count"] - torch.outer(mean, mean)
        assert_close(covariance, x.T.cov(correction=0).reshape(len(mean), -1), rtol=1e-9, atol=1e-12)
        assert_close(left.rows[name], all_rows[~rest])
    head = torch.nn.functional.normalize(rows[str(sums._head)], dim=1)
    means = torch.stack([head[rest & (labels == label)].mean(0) for label in range(3)])
    within = (head - means[labels])[rest]
    found = sums._classes.gaussian(rank=99, class_rank=2)
    assert_close(found.means(), means, rtol=2e-3, atol=2e-3)
    variance = found.deviation.double().square()
    varies = within.square().mean(0) > 1e-6
    assert_close(variance[varies], within.square().mean(0)[varies], rtol=1e-6, atol=1e-12)


def test_a_sketch_finds_the_leading_pairs_and_the_exact_diagonal() -> None:
    torch.manual_seed(0)
    columns, rank = EXACT + 40, 5
    x = torch.randn(900, rank, dtype=torch.float64) @ torch.randn(rank, columns, dtype=torch.float64) * 3
    x += 2 * torch.randn(900, columns, dtype=torch.float64) + 4
    sums = MomentSums()
    for part, numbers in zip(x.split(70), torch.arange(900).split(70), strict=True):
        sums.add(part, example_weights(numbers))
    means, covariance = sums.gaussian(rank=rank).dense()
    expected = x.T.cov(correction=0)
    assert_close(means[0], x.mean(0), rtol=1e-6, atol=1e-6)
    assert_close(covariance.diagonal(), expected.diagonal(), rtol=1e-5, atol=1e-9)
    assert (covariance - expected).norm() < 0.03 * expected.norm()


@pytest.mark.parametrize("columns", [3, WIDE + 1, EXACT + 1])
def test_parts_add_up_to_the_whole(columns: int) -> None:
    x = torch.randn(2 * WHOLE, columns, dtype=torch.float64)
    labels = torch.arange(len(x)) % 3
    whole, first, second = (MomentSums(3) for _ in range(3))
    weights = example_weights(torch.arange(len(x)))
    whole.add(x, weights, labels)
    for sums, part in ((first, slice(0, 700)), (second, slice(700, None))):
        sums.add(x[part], weights[part], labels[part])
    for name, total in whole.state().items():
        assert_close(first.state()[name] + second.state()[name], total, rtol=1e-9, atol=1e-9)


def test_one_example_in_some_stands_for_its_neighbours() -> None:
    numbers = torch.arange(WHOLE + 40_000)
    weights = example_weights(numbers)
    assert bool((weights[:WHOLE] == 1).all())
    assert set(weights[WHOLE:].tolist()) == {0.0, float(STRIDE)}
    assert abs(float(weights.sum()) / len(numbers) - 1) < 0.02
    chosen = LeftOut(stride=64)._chosen(numbers)  # and the examples left out are no special ones
    assert abs(float(weights[chosen].mean()) - 1) < 0.3


def test_another_number_of_columns_is_refused() -> None:
    sums = MomentSums()
    sums.add(torch.randn(4, 3), torch.ones(4))
    with pytest.raises(ValueError, match="as many numbers at every call, got 3, then 5"):
        sums.add(torch.randn(4, 5), torch.ones(4))
