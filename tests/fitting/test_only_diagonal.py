"""Layers of which the exact diagonal is all that is measured, beside others of any structure: treated like the rest."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import infoform
from dense import assert_close
from infoform.network.coverage import NOT_BY_DEFAULT
from infoform.options import FitOptions
from infoform.posteriors import DiagPosterior

STRUCTURES = ["inf", "inf-paper", "kfac", "efb", "diag", "full"]
ONLY_DIAGONAL = {"words", "norm", "last.1"}
pytestmark = [
    pytest.mark.filterwarnings("ignore:networks with sampled weights"),  # nothing is trained here
    pytest.mark.filterwarnings("ignore:the best"),
]


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.norm = nn.Embedding(9, 4), nn.LayerNorm(4)
        self.first, self.last = nn.Linear(4, 5), nn.Sequential(nn.Tanh(), nn.BatchNorm1d(5), nn.Linear(5, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.first(self.norm(self.words(x)).mean(1)))  # type: ignore[no-any-return]


def network() -> Network:
    torch.manual_seed(0)
    model = Network().double().eval()
    for norm in (model.norm, model.last[1]):
        nn.init.normal_(norm.weight, 1.0, 0.2)  # type: ignore[arg-type]
        nn.init.normal_(norm.bias, 0.0, 0.2)  # type: ignore[arg-type]
    return model


def data() -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [
        (torch.randint(9, (size, 3), generator=generator), torch.randint(3, (size,), generator=generator))
        for size in (7, 5, 8)
    ]


def fitted(structure: str = "inf", *, layers: list[str] | str | None = "all", **how: object) -> infoform.Laplace:
    laplace = infoform.Laplace(network(), "classification", structure=structure, layers=layers)
    return laplace.fit(data(), progress=False, **how)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def exact() -> infoform.Laplace:
    return fitted("diag")


@pytest.mark.parametrize("structure", STRUCTURES)
def test_they_have_the_exact_diagonal_beside_any_structure(structure: str, exact: infoform.Laplace) -> None:
    laplace = fitted(structure)
    layers = laplace.posterior().layers
    for name, layer in layers.items():
        assert isinstance(layer, DiagPosterior) == (name in ONLY_DIAGONAL or structure == "diag")
    for name in ONLY_DIAGONAL:
        expected = exact.curvature[name].diagonal
        assert expected is not None
        assert_close(laplace.curvature[name].diagonal, expected)
    structures = {row.layer: row.structure for row in laplace.coverage()}
    assert structures == {
        name: "diag" if name in ONLY_DIAGONAL else structure for name in ("words", "norm", "first", "last.1", "last.2")
    }


@pytest.mark.parametrize("structure", ["inf", "kfac", "full"])
def test_they_are_predicted_sampled_tuned_and_saved(structure: str, tmp_path: Path) -> None:
    laplace = fitted(structure)
    x, y = data()[0]
    laplace.tune()
    assert laplace.log_evidence() > -1e6
    laplace.tune([(x, y)], trials=3, progress=False)
    laplace.save(tmp_path / "whole", curvature=True)
    laplace.save(tmp_path / "small")
    assert laplace.sample(2).keys() == dict(laplace.model.named_parameters()).keys()
    for kind in ("linear", "mc", "linear-mc"):
        expected = laplace.predict(x, kind=kind)
        assert expected.probs is not None
        for name in ("whole", "small"):
            loaded = infoform.load(tmp_path / name, network())
            assert_close(loaded.predict(x, kind=kind).probs, expected.probs)
    loaded = infoform.load(tmp_path / "whole", network())
    assert loaded.posterior().nbytes == laplace.posterior().nbytes
    loaded.fit(data(), update=True, progress=False)
    assert loaded.curvature.keys() == laplace.curvature.keys()


def test_samples_have_the_variances_of_the_diagonal() -> None:
    laplace = fitted("inf")
    posterior = laplace.posterior(prior_precision=2.0)
    drawn = posterior.layers["words"].sample(20_000, generator=torch.Generator().manual_seed(3))
    torch.testing.assert_close(drawn.var(0), 1 / posterior.layers["words"].diagonal(), rtol=0.1, atol=0)


@pytest.mark.parametrize("structure", ["inf", "kfac"])
def test_updates_groups_and_checkpoints_come_to_the_same(structure: str, tmp_path: Path) -> None:
    whole = fitted(structure)
    model = network()
    parts = infoform.Laplace(model, "classification", structure=structure, layers="all")
    parts.fit(data()[:2], progress=False).fit(data()[2:], update=True, progress=False)
    grouped = fitted(structure, max_memory=3_300_000)
    saved = fitted(structure, checkpoint=tmp_path / "part", checkpoint_every=0)
    for name in ONLY_DIAGONAL:
        expected = whole.curvature[name].diagonal
        assert expected is not None
        for other in (grouped, saved):
            assert_close(other.curvature[name].diagonal, expected)
    # sampled labels go by the number of an example, so that an update draws the same
    assert_close(parts.curvature["norm"].diagonal, whole.curvature["norm"].diagonal)  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{}, {"basis_data": 0.5}, {"basis_floor": 0.0}, {"statistics": "all"}])
def test_every_plan_of_passes_sums_each_example_once(options: dict[str, object], exact: infoform.Laplace) -> None:
    fit_options = FitOptions(**options)  # type: ignore[arg-type]
    laplace = infoform.Laplace(network(), "classification", layers="all", fit_options=fit_options)
    laplace.fit(data(), progress=False)
    for name in ONLY_DIAGONAL:
        expected = exact.curvature[name].diagonal
        assert expected is not None
        assert_close(laplace.curvature[name].diagonal, expected)
        assert laplace.curvature[name].block is None


@pytest.mark.parametrize("structure", STRUCTURES)
def test_a_plan_knows_their_bytes(structure: str) -> None:
    laplace = infoform.Laplace(network(), "classification", structure=structure, layers="all")
    planned = {row.name: row for row in infoform.plan(laplace, example=data()[0][0]).layers}
    laplace.fit(data(), progress=False)
    for name in ONLY_DIAGONAL:
        assert planned[name].nbytes == laplace.posterior().layers[name].nbytes
        assert planned[name].rank is None
    if structure == "inf":
        ranks = infoform.plan(laplace, memory=laplace.posterior().nbytes)
        assert ranks.ranks.keys() == {"first", "last.2"}
        assert {row.name for row in ranks.layers} >= ONLY_DIAGONAL
        assert sum(row.nbytes for row in ranks.layers) <= laplace.posterior().nbytes


def test_by_default_they_are_held_fixed_and_named_they_are_not() -> None:
    laplace = fitted(layers=None)
    fixed = {row.parameter: row.reason for row in laplace.coverage() if not row.covered}
    assert set(fixed.values()) == {NOT_BY_DEFAULT}
    assert {name.rsplit(".", 1)[0] for name in fixed} == ONLY_DIAGONAL
    assert fitted(layers=["n?rm", "last.*"]).posterior().layers.keys() == {"norm", "last.2"}
    assert fitted(layers=["last.1", "last.2"]).posterior().layers.keys() == {"last.1", "last.2"}
    assert fitted(layers=["!first"]).posterior().layers.keys() == {"last.2"}
    assert fitted(layers=["all", "!word*"]).posterior().layers.keys() == {"norm", "first", "last.1", "last.2"}
    model = network()
    model.words.requires_grad_(False)
    partly = infoform.Laplace(model, "classification", layers="all").fit(data(), progress=False)
    assert "words" not in partly.posterior().layers


def test_novelty_does_not_look_at_them() -> None:
    laplace = fitted()
    assert laplace._known is not None
    assert laplace._known.layers.keys() == {"first", "last.2"}


def test_a_network_of_nothing_else_says_what_to_do() -> None:
    model = nn.Sequential(nn.LayerNorm(4), nn.Tanh(), nn.LayerNorm(4))
    with pytest.raises(ValueError, match=r"at least one layer with a rule .* pass layers=.all.\."):
        infoform.Laplace(model, "classification")
    laplace = infoform.Laplace(model, "classification", layers="all").fit([torch.randn(5, 4)], progress=False)
    assert all(row.structure == "diag" for row in laplace.coverage())
    assert laplace.predict(torch.randn(2, 4), kind="linear").probs is not None


def test_the_activation_prior_takes_their_inputs_for_ones() -> None:
    laplace = infoform.Laplace(network(), "classification", prior=infoform.Activation(2.0, strength=3.0), layers="all")
    laplace.fit(data(), progress=False)
    layer = laplace.posterior().layers["norm"]
    assert layer.prior.precision == pytest.approx(2 + 3 * (20 * 2) ** 0.5)
    assert layer.prior.pull == 2.0
