from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

import infoform
from infoform.experiments.networks.shallow import ShallowStack, Training, train_stack
from infoform.experiments.uci.networks import networks, predictions, split_of, variances, width
from infoform.posteriors import STRUCTURES


def test_there_is_a_network_for_every_split_and_decay(small_uci: Path) -> None:
    stacks = networks("yacht", training=Training(3, 32), cache=small_uci, decays=[0.0, 0.0, 1.0, 1.0], kept=(1,))
    assert sorted(stacks) == [1, 3]
    assert stacks[3].flat.shape == (4, 5 * 50 + 1)
    split = split_of("yacht", 1)
    assert_close(predictions(stacks[3].network(1), split.test_x), stacks[3].network(1)(split.test_x).detach())


def test_weights_come_from_the_cache_if_all_settings_are_the_same(
    small_uci: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = networks("yacht", training=Training(2, 32), cache=small_uci)[2]

    calls = []

    def counted(*args: object, **options: object) -> object:
        calls.append(options)
        return train_stack(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr("infoform.experiments.uci.networks.train_stack", counted)
    assert torch.equal(networks("yacht", training=Training(2, 32), cache=small_uci)[2].flat, first.flat)
    assert not calls
    networks("yacht", training=Training(2, 32, 0.1), cache=small_uci)
    assert len(calls) == 1


def test_protein_is_wider_as_in_the_paper() -> None:
    assert width("protein") == 100
    assert width("boston") == 50


@pytest.mark.parametrize("structure", STRUCTURES)
def test_variances_are_those_of_a_linear_prediction(structure: str) -> None:
    generator = torch.Generator().manual_seed(0)
    model = ShallowStack.drawn(1, 3, 6, generator=generator).network(0)
    x = torch.randn(20, 3, generator=generator, dtype=torch.float64)
    laplace = infoform.Laplace(model, "regression", structure=structure).fit(
        [(x, x.sum(1, keepdim=True))], progress=False
    )
    assert_close(variances(laplace.posterior(), model, x), laplace.predict(x).epistemic[:, 0], rtol=1e-9, atol=0)
