"""Coverage: every parameter has a row that says whether it has a posterior, or why not."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import infoform
from flat import flat_laplace
from infoform import Coverage
from infoform.network.coverage import NOT_BY_DEFAULT, ON_DEMAND, find_layers
from models import MODELS


def coverage_of(model: nn.Module, x: Tensor, **options: list[str]) -> Coverage:
    return flat_laplace(model, "classification", **options).fit([x], progress=False).coverage()


def reasons(coverage: Coverage) -> dict[str, str]:
    return {row.parameter: row.reason for row in coverage if not row.covered}


@pytest.mark.parametrize("fit", [False, True])
@pytest.mark.parametrize("case", MODELS)
def test_every_parameter_has_one_row_that_says_why(case: str, fit: bool) -> None:
    model = MODELS[case].model()
    laplace = infoform.Laplace(model, "classification")
    if fit:
        laplace.fit([MODELS[case].inputs()], progress=False)
    rows = list(laplace.coverage())
    assert [(row.parameter, row.shape) for row in rows] == [(n, tuple(p.shape)) for n, p in model.named_parameters()]
    assert all(row.reason for row in rows)
    assert all(row.covered == (row.structure == "inf") for row in rows)
    if fit:
        assert {row.layer for row in rows if row.covered} == set(MODELS[case].layers)
        assert {row.parameter for row in rows if row.covered} == set(laplace.sample(1))


def test_a_parameter_without_a_rule_says_its_module() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(3))
            self.linear, self.norm = nn.Linear(4, 3), nn.LayerNorm(3)

        def forward(self, x: Tensor) -> Tensor:
            return self.scale * self.norm(self.linear(x))  # type: ignore[no-any-return]

    fixed = reasons(coverage_of(Scaled(), torch.ones(2, 4)))
    assert fixed == {
        "scale": f"a parameter of Scaled itself, not of a layer with a rule in infoform.layers; {ON_DEMAND}",
        "norm.weight": NOT_BY_DEFAULT,
        "norm.bias": NOT_BY_DEFAULT,
    }


def test_a_subclass_with_its_own_forward_is_held_fixed() -> None:
    class Doubled(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            return 2 * super().forward(input)

    fixed = reasons(coverage_of(nn.Sequential(Doubled(4, 2), nn.Linear(2, 3)), torch.ones(2, 4)))
    assert set(fixed) == {"0.weight", "0.bias"}
    assert fixed["0.weight"].endswith(".Doubled has a forward of its own, and no rule in infoform.layers; " + ON_DEMAND)
    assert fixed["0.weight"].startswith(f"{Doubled.__module__}.")


@pytest.mark.parametrize(
    "normalise",
    [nn.utils.parametrizations.weight_norm, nn.utils.spectral_norm, nn.utils.parametrizations.spectral_norm],
)
@pytest.mark.parametrize("bias", [False, True])
def test_a_weight_made_from_other_parameters_is_held_fixed(
    normalise: Callable[[nn.Module], nn.Module], bias: bool
) -> None:
    model = nn.Sequential(normalise(nn.Linear(4, 2, bias=bias)), nn.Linear(2, 3))
    laplace = infoform.Laplace(model, "classification").fit([torch.ones(2, 4)], progress=False)
    fixed = reasons(laplace.coverage())
    assert set(fixed) == {name for name, _ in model.named_parameters() if name.startswith("0.")}
    assert set(laplace.sample(1)) == {"1.weight", "1.bias"}


@pytest.mark.parametrize(
    ("patterns", "covered"),
    [
        (["first"], {"first"}),
        (["blocks.*"], {"blocks.0", "blocks.1"}),
        (["*.1", "first"], {"blocks.1", "first"}),
        (["b*[0]"], {"blocks.0"}),
        (["*"], {"first", "blocks.0", "blocks.1"}),
    ],
)
def test_layers_are_selected_by_name_or_glob(patterns: list[str], covered: set[str]) -> None:
    model = nn.Sequential()
    model.add_module("first", nn.Linear(4, 2))
    model.add_module("blocks", nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 3)))
    coverage = coverage_of(model, torch.ones(2, 4), layers=patterns)
    assert {row.layer for row in coverage if row.covered} == covered
    fixed = reasons(coverage)
    assert set(fixed.values()) <= {"not selected by layers="}
    assert {name.rpartition(".")[0] for name in fixed} == {"first", "blocks.0", "blocks.1"} - covered


def test_a_tied_layer_is_selected_by_any_of_its_names() -> None:
    layers, _ = find_layers(MODELS["tied weights"].model(), ["second"])
    assert list(layers) == ["first"]


def test_a_pattern_without_a_layer_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'missing\*' matches none; the model has '0', '2'"):
        infoform.Laplace(MODELS["linear"].model(), "classification", layers=["0", "missing*"])
    with pytest.raises(ValueError, match="'1' matches none"):  # there, but without a rule
        infoform.Laplace(MODELS["linear"].model(), "classification", layers=["1"])
    with pytest.raises(TypeError, match=r"write layers=\['0'\]"):
        infoform.Laplace(MODELS["linear"].model(), "classification", layers="0")


@pytest.mark.parametrize("model", [nn.Sequential(nn.Embedding(3, 2), nn.LayerNorm(2)), nn.ReLU()])
def test_a_model_without_any_layer_is_refused(model: nn.Module) -> None:
    expected = "Embedding, LayerNorm" if list(model.parameters()) else "no module"
    with pytest.raises(ValueError, match=f"at least one layer with a rule .* got parameters only in {expected}"):
        infoform.Laplace(model, "classification")


class Partial(nn.Module):
    """Layers that are never called, called for nothing, or called where no gradient is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.spare, self.idle = nn.Linear(4, 3), nn.Linear(4, 3), nn.Linear(4, 3)
        self.stopped = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        self.idle(x)
        with torch.no_grad():
            x = self.stopped(x)
        return self.used(x)  # type: ignore[no-any-return]


def test_a_layer_that_no_gradient_reaches_says_so() -> None:
    model = Partial()
    laplace = infoform.Laplace(model, "classification")
    assert all(row.covered for row in laplace.coverage())  # before a fit nothing else is known
    fixed = reasons(laplace.fit([torch.ones(2, 4)], progress=False).coverage())
    assert {name.split(".")[0] for name in fixed} == {"spare", "idle", "stopped"}
    assert fixed["spare.weight"] == fixed["spare.bias"] == "its forward was never called during the fit"
    assert fixed["idle.weight"].startswith("no gradient reached it during the fit")
    assert fixed["stopped.weight"] == "it ran under torch.no_grad() during the fit"
    assert set(laplace.sample(1)) == {"used.weight", "used.bias"}


def test_a_model_that_no_gradient_reaches_is_refused() -> None:
    class Detached(nn.Linear):
        def __call__(self, *args: Tensor) -> Tensor:
            with torch.no_grad():
                return super().__call__(*args)  # type: ignore[no-any-return]

    with pytest.raises(ValueError, match="a gradient must reach at least one layer"):
        coverage_of(nn.Sequential(Detached(4, 3)), torch.ones(2, 4))


class LanguageModel(nn.Module):
    """The output layer uses the embedding's weight, as language models do."""

    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 4)
        self.body = nn.Linear(4, 4)
        self.decoder = nn.Linear(4, 5, bias=bias)
        self.decoder.weight = self.embedding.weight

    def forward(self, ids: Tensor) -> Tensor:
        return self.decoder(self.body(self.embedding(ids)))  # type: ignore[no-any-return]


@pytest.mark.parametrize("bias", [False, True])
def test_a_weight_shared_with_another_kind_of_module_is_held_fixed(bias: bool) -> None:
    coverage = coverage_of(LanguageModel(bias), torch.tensor([0, 1, 4]))
    fixed = reasons(coverage)
    assert set(fixed) == {"embedding.weight"} | ({"decoder.bias"} if bias else set())
    assert {row.layer for row in coverage if row.covered} == {"body"}
    if bias:
        assert set(fixed.values()) == {
            f"shares a parameter with {other}, which does not use it in the same way; {ON_DEMAND}"
            for other in ("'decoder'", "'embedding'")
        }


def test_layers_that_share_only_a_weight_are_held_fixed() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3))
    model[1].weight = model[0].weight
    fixed = reasons(coverage_of(model, torch.ones(2, 4)))
    assert set(fixed) == {"0.weight", "0.bias", "1.bias"}
    assert all("shares a parameter" in reason for reason in fixed.values())


def test_coverage_is_a_sequence_and_prints_as_a_table() -> None:
    model = MODELS["transformer"].model()
    coverage = coverage_of(model, MODELS["transformer"].inputs())
    assert len(coverage) == len(list(model.parameters()))
    assert coverage[0] is next(iter(coverage))
    assert coverage[0] in coverage
    printed = str(coverage)
    for row in coverage:
        assert row.parameter in printed
    assert "12×4" in printed  # the attention's in_proj_weight
    assert "fixed" in printed
    assert "MultiheadAttention '0.self_attn'" in printed
    assert all(len(line) <= 120 for line in printed.splitlines())


def test_a_name_too_long_for_the_table_is_printed_in_full() -> None:
    model: nn.Module = nn.Linear(4, 3)
    for _ in range(20):
        model = nn.Sequential(nn.Sequential(model))
    lines = str(infoform.Laplace(model, "classification").coverage()).splitlines()
    column = "".join(line.split("│")[1].strip() for line in lines if line.startswith("│"))
    assert column == "".join(name for name, _ in model.named_parameters())


def test_a_model_that_is_a_layer_itself_is_covered() -> None:
    laplace = infoform.Laplace(nn.Linear(4, 3), "classification").fit([torch.ones(2, 4)], progress=False)
    assert [row.parameter for row in laplace.coverage() if row.covered] == ["weight", "bias"]
    assert set(laplace.sample(2)) == {"weight", "bias"}
