"""A structure by layer is, in every layer, what that layer's structure alone would be."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev

import infoform
from dense import assert_close
from infoform.network.batches import read_inputs
from infoform.posteriors import PRESETS, STRUCTURES, ByLayer, Structure

ALONE = [name for name in (*STRUCTURES, *PRESETS) if name not in ("by-layer", "auto", "inf-paper", "efb-paper")]
MIXED: dict[str, Any] = {"head": "full", "*.attention": "kfac", "first": infoform.Diag(), "*": infoform.Inf(rank=6)}
EXPECTED = {"first": "diag", "body.attention": "kfac", "body.rest": "inf", "head": "full"}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(4, 6), nn.Linear(5, 3)
        self.body = nn.ModuleDict({"attention": nn.Linear(6, 5), "rest": nn.Linear(5, 5)})

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.body["attention"](self.first(x).tanh()).tanh()
        return self.head(self.body["rest"](hidden).tanh())  # type: ignore[no-any-return]


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return Net().double().eval()


def batches(count: int = 3, seed: int = 1) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(8 * count, 4, generator=generator, dtype=torch.float64)
    return list(zip(x.split(8), torch.randint(3, (8 * count,), generator=generator).split(8), strict=True))


def fitted(model: nn.Module, structure: Any, **options: Any) -> infoform.Laplace:
    made = infoform.Laplace(model, "classification", structure=structure, prior=infoform.Isotropic(2.0), **options)
    return made.fit(batches(), progress=False)


def dense(laplace: infoform.Laplace) -> dict[str, Tensor]:
    return {name: layer.dense() for name, layer in laplace.posterior().layers.items()}


def test_the_first_pattern_that_matches_a_layer_says_its_structure(model: nn.Module) -> None:
    laplace = fitted(model, MIXED)
    assert {row.layer: row.structure for row in laplace.coverage()} == EXPECTED
    assert {name: layer.structure for name, layer in laplace.posterior().layers.items()} == EXPECTED
    turned = fitted(model, {"*": "diag", "head": "full"})
    assert {row.structure for row in turned.coverage()} == {"diag"}


@pytest.mark.parametrize("head", ALONE)
def test_every_layer_has_the_precision_of_its_structure_alone(head: str, model: nn.Module) -> None:
    found = dense(fitted(model, {"head": head, "*": "inf"}))
    alone, rest = dense(fitted(model, head)), dense(fitted(model, "inf"))
    assert_close(found["head"], alone["head"])
    if infoform.get_structure(head).statistics().bases <= {"gradient"}:  # else bases are those of every example
        for name in ("first", "body.attention", "body.rest"):
            assert_close(found[name], rest[name])


def test_layers_of_many_kinds_have_the_precision_of_each_alone(model: nn.Module) -> None:
    found = dense(fitted(model, MIXED))
    for name, kind in EXPECTED.items():
        own = infoform.Inf(rank=6) if kind == "inf" else kind
        assert_close(found[name], dense(fitted(model, own))[name])


def test_a_fit_collects_of_each_layer_what_its_structure_needs(model: nn.Module) -> None:
    laplace = fitted(model, MIXED)
    collected = {
        name: {
            "diagonal": one.diagonal is not None,
            "factors": one.gradient_factor is not None,
            "block": one.block is not None,
            "bases": bool(one.bases),
        }
        for name, one in laplace.curvature.items()
    }
    assert {name: [what for what, there in of.items() if there] for name, of in collected.items()} == {
        "first": ["diagonal"],
        "body.attention": ["factors"],
        "body.rest": ["diagonal", "bases"],
        "head": ["block"],
    }


def test_the_bases_of_a_share_of_the_batches_leave_the_other_layers_all_of_the_data(model: nn.Module) -> None:
    options = infoform.FitOptions(basis_data=0.5)
    found = dense(fitted(model, {"head": "full", "first": "diag", "*": "inf"}, fit_options=options))
    assert_close(found["head"], dense(fitted(model, "full"))["head"])
    assert_close(found["first"], dense(fitted(model, "diag"))["first"])
    assert_close(found["body.rest"], dense(fitted(model, "inf", fit_options=options))["body.rest"])


def test_a_linear_prediction_has_the_dense_covariance(model: nn.Module) -> None:
    laplace, x = fitted(model, MIXED), batches()[0][0]
    state = {name: parameter.detach() for name, parameter in model.named_parameters()}
    jacobians = jacrev(lambda own: functional_call(model, own, (x,)))(state)
    expected = torch.zeros(len(x), 3, 3, dtype=torch.float64)
    for name, precision in dense(laplace).items():
        weight, bias = jacobians[f"{name}.weight"], jacobians[f"{name}.bias"]
        jacobian = torch.cat([weight, bias.unsqueeze(-1)], dim=-1).flatten(2)
        expected += jacobian @ torch.linalg.solve(precision, jacobian.mT)
    with laplace._predictor().private() as predictor:
        _, covariance = predictor.linear(read_inputs(x, x.device))
    assert_close(covariance, expected)


@pytest.mark.parametrize("structure", [MIXED, "auto"])
def test_it_is_tuned_saved_loaded_updated_and_fitted_in_groups(
    structure: Any, model: nn.Module, tmp_path: Path
) -> None:
    exact = infoform.FitOptions(fisher="exact")
    laplace, x = fitted(model, structure, fit_options=exact), batches()[0][0]
    laplace.tune(batches(1, seed=2), progress=False)
    laplace.prior_precision = 50.0
    laplace.save(tmp_path / "one.safetensors", curvature=True)
    loaded = infoform.load(tmp_path / "one.safetensors", model)
    assert loaded.structure.of_layer("head", (3, 6)) == laplace.structure.of_layer("head", (3, 6))
    for kind in ("linear", "mc", "linear-mc"):
        torch.testing.assert_close(loaded.predict(x, kind=kind).probs, laplace.predict(x, kind=kind).probs)
    assert [tuple(row.__dict__.values()) for row in loaded.coverage()] == [
        tuple(row.__dict__.values()) for row in laplace.coverage()
    ]
    doubled = loaded.posterior(num_data=48)
    loaded.fit(batches(), update=True, progress=False)
    for name, layer in loaded.posterior().layers.items():  # the same data twice
        torch.testing.assert_close(layer.diagonal(), doubled.layers[name].diagonal(), rtol=1e-6, atol=1e-8)
    again = fitted(model, structure)
    small = infoform.FitOptions(novelty=False, chunk=4096)
    groups = infoform.Laplace(
        model, "classification", structure=structure, prior=infoform.Isotropic(2.0), fit_options=small
    )
    groups.fit(batches(), max_memory="60kB", progress=False)
    for name, precision in dense(again).items():
        assert_close(dense(groups)[name], precision)
    assert again.tune().log_evidence() > -1e9


def test_auto_takes_the_exact_block_where_it_is_small() -> None:
    model = nn.Sequential(nn.Linear(60, 30), nn.Tanh(), nn.Linear(30, 3)).double()
    structure = infoform.get_structure("auto")
    assert structure.label == "auto"
    laplace = infoform.Laplace(model, "classification", structure="auto")
    assert {row.layer: row.structure for row in laplace.coverage()} == {"0": "inf", "2": "full"}
    smaller = infoform.get_structure("auto", exact=50)
    assert {row.structure for row in infoform.Laplace(model, "classification", structure=smaller).coverage()} == {"inf"}


def test_planned_bytes_are_those_of_every_layers_structure(model: nn.Module) -> None:
    laplace = fitted(model, {"head": "full", "*": "kfac"})
    planned = infoform.plan(infoform.Laplace(model, "classification", structure={"head": "full", "*": "kfac"}))
    assert planned.exact
    assert planned.total_bytes == laplace.posterior().nbytes == infoform.plan(laplace).total_bytes
    assert not infoform.plan(infoform.Laplace(model, "classification", structure=MIXED)).exact


def test_a_budget_of_bytes_chooses_the_ranks_of_the_layers_that_have_one(model: nn.Module) -> None:
    structure = {"head": "full", "*": "inf"}
    laplace = fitted(model, structure)
    most = infoform.plan(laplace, memory=10**6)
    least = sum(layer.nbytes for layer in most.layers if layer.name == "head") + 2000
    budget = least + 400
    chosen = laplace.shrink(budget)
    assert chosen.total_bytes <= budget
    assert set(chosen.ranks) == {"first", "body.attention", "body.rest"}
    built = laplace.posterior()
    assert {name: layer.rank for name, layer in built.layers.items() if layer.rank} == chosen.ranks
    assert built.nbytes == chosen.total_bytes
    before = infoform.plan(
        infoform.Laplace(model, "classification", structure=structure).model, structure=structure, memory=12000
    )
    assert before.total_bytes <= 12000
    assert "head" not in before.ranks
    with pytest.raises(ValueError, match="chooses the ranks"):
        infoform.plan(fitted(model, {"head": "full", "*": "diag"}), memory=10**6)


def test_options_are_what_json_can_hold() -> None:
    parts: dict[str, Any] = {"a": infoform.Kfac(), "b": {"structure": "inf", "rank": 3}, "*": "auto"}
    structure = ByLayer(parts=parts, rank=9)
    read: Structure = ByLayer().with_options(**json.loads(json.dumps(structure.options())))
    shape = (30, 60)
    assert [read.of_layer(name, shape) for name in ("a", "b", "c")] == [
        infoform.Kfac(),
        infoform.Inf(rank=3),
        infoform.Inf(rank=9),
    ]
    assert ByLayer(parts={"*": "inf"}, rank=9).of_layer("c", shape) == infoform.Inf(rank=9)
    assert ByLayer(parts={"*": "inf"}, rank={"c": 4}).of_layer("c", shape) == infoform.Inf(rank={"c": 4})


@pytest.mark.parametrize(
    ("parts", "error", "told"),
    [
        ({"head": "full"}, ValueError, r"a pattern for every layer, and none of 'head' matches 'first'; end with '\*'"),
        ({"haed": "full", "*": "inf"}, ValueError, "'haed' matches none; they are 'first'"),
        ({}, ValueError, "at least one pattern"),
        ({"": "inf"}, ValueError, "must be names such as"),
        ({"head": "fool", "*": "inf"}, ValueError, "structure must be one of"),
        ({"head": 3, "*": "inf"}, TypeError, "must be a name, a Structure, or a mapping"),
        ({"head": {"structure": "diag", "rank": 3}, "*": "inf"}, TypeError, "takes the options storage"),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(
    parts: Any, error: type[Exception], told: str, model: nn.Module
) -> None:
    with pytest.raises(error, match=told):
        fitted(model, parts)


def test_an_exact_block_that_is_too_large_is_refused_by_its_layer(model: nn.Module) -> None:
    with pytest.raises(ValueError, match="block_limit=20 weights, got 30 in layer 'first'"):
        fitted(model, {"first": "full", "*": "inf"}, fit_options=infoform.FitOptions(block_limit=20))
