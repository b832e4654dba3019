import pytest
import torch
from torch.func import functional_call
from torch.testing import assert_close

from export_cases import batches, fitted
from exported_graphs import graph_of, outputs_of


@pytest.mark.parametrize("likelihood", ["classification", "regression"])
def test_a_graph_is_the_mean_of_networks_in_opposite_pairs(likelihood: str) -> None:
    laplace, (x, _) = fitted(likelihood, layers=None), batches(likelihood)[0]
    laplace.temperature = 1.7 if likelihood == "classification" else 1.0
    drawn = laplace.posterior().sample(3, generator=torch.Generator().manual_seed(5))
    outputs = []
    for pair in range(3):
        for sign in (1, -1):
            weights = laplace.weights({name: sign * one[pair] for name, one in drawn.items()})
            outputs.append(functional_call(laplace.model, weights, (x,)).detach())
    samples = torch.stack(outputs)
    found = outputs_of(laplace, x, "samples", samples=6, seed=5)
    if likelihood == "classification":
        assert_close(found["probs"], (samples / 1.7).softmax(-1).mean(0), rtol=1e-9, atol=1e-12)
    else:
        assert_close(found["mean"], samples.mean(0), rtol=1e-9, atol=1e-12)
    assert_close(found["variance"], samples.var(0), rtol=1e-9, atol=1e-12)


def test_sampled_heads_are_networks_of_which_the_last_layer_alone_is_sampled() -> None:
    laplace, (x, _) = fitted("classification"), batches("classification")[0]
    networks = outputs_of(laplace, x, "samples", samples=8)
    heads = outputs_of(laplace, x, "heads", samples=8)
    for name, one in networks.items():
        assert_close(heads[name], one, rtol=1e-9, atol=1e-12)


def test_opposite_networks_share_their_storage() -> None:
    laplace, (x, _) = fitted("classification", layers=None), batches("classification")[0]
    weights = sum(one.numel() for one in laplace.model.parameters())
    graph = graph_of(laplace, x, "samples", samples=8)
    stored = {one.data_ptr(): one for one in (*graph.parameters(), *graph.buffers())}
    assert sum(one.numel() for one in stored.values()) == (1 + 4) * weights


def test_int8_deviations_keep_the_spread() -> None:
    laplace, (x, _) = fitted("classification", layers=None), batches("classification")[0]
    exact = outputs_of(laplace, x, "samples", samples=8)
    found = outputs_of(laplace, x, "samples", samples=8, precision="int8")
    assert_close(found["probs"], exact["probs"], rtol=0, atol=0.01)


def test_an_odd_number_of_networks_is_refused() -> None:
    laplace, (x, _) = fitted("classification"), batches("classification")[0]
    with pytest.raises(ValueError, match=r"samples must be even, .*got 7"):
        outputs_of(laplace, x, "samples", samples=7)
