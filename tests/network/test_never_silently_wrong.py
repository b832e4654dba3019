"""Networks that do not keep the examples of a batch on the first axis: exact, held fixed with a reason, or refused.

The judge is autograd, one example at a time and in pairs: the diagonal of a fit, and the covariance of a prediction,
over exactly the parameters that `coverage()` says have a posterior.
"""

import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev
from torch.nn import functional

import infoform
from infoform.network.batches import read_inputs

OUTPUTS = 3
pytestmark = pytest.mark.filterwarnings("ignore:There is a performance drop")  # of vmap over attention, in the judge


class SequenceFirst(nn.Module):
    """(N, T, D) as an encoder with the tokens first takes them."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(8, 2, 12, batch_first=False), 1, enable_nested_tensor=False
        )
        self.head = nn.Linear(8, OUTPUTS)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.encoder(x.transpose(0, 1)).mean(0))  # type: ignore[no-any-return]


class TiedAutoencoder(nn.Module):
    """A weight that its module uses, and a function once more."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.head = nn.Linear(5, 4), nn.Linear(5, OUTPUTS)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(functional.linear(self.encoder(x).tanh(), self.encoder.weight.t()).tanh())  # type: ignore[no-any-return]


class Centred(nn.Module):
    """Takes the mean over the batch away."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(5, 4), nn.Linear(4, OUTPUTS)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x)
        return self.head((hidden - hidden.mean(0)).tanh())  # type: ignore[no-any-return]


class GraphConvolution(nn.Module):
    """One graph of which the examples are the nodes."""

    def __init__(self, nodes: int) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(5, 4), nn.Linear(4, OUTPUTS)
        generator = torch.Generator().manual_seed(2)
        adjacency = torch.rand(nodes, nodes, generator=generator, dtype=torch.float64)
        self.register_buffer("adjacency", adjacency / adjacency.sum(1, keepdim=True))

    def forward(self, x: Tensor) -> Tensor:
        count = len(x)  # of a part of the graph the edges inside it
        return self.head(self.adjacency[:count, :count] @ self.first(x).tanh())  # type: ignore[no-any-return, index]


class GraphOfNodes(nn.Module):
    """One graph again, given by its edges: nodes cannot be taken out of it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(5, 4), nn.Linear(4, OUTPUTS)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:  # (N, 5), (2, E)
        hidden = self.first(x).tanh()
        return self.head(hidden.index_add(0, edges[1], hidden[edges[0]]))  # type: ignore[no-any-return]


class Sorted(nn.Module):
    """Sorts the batch on its way in and undoes that at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.inside, self.head = nn.Linear(5, 4), nn.Linear(4, 4), nn.Linear(4, OUTPUTS)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.before(x).tanh()
        order = x[:, 0].argsort()
        inside = self.inside(hidden[order]).tanh()
        return self.head(inside[order.argsort()])  # type: ignore[no-any-return]


class RelativePositions(nn.Module):
    """As DeBERTa: the layer of the tokens also runs over a table of positions that has no batch."""

    def __init__(self) -> None:
        super().__init__()
        self.shared, self.head = nn.Linear(6, 6), nn.Linear(6, OUTPUTS)
        self.register_buffer("table", torch.randn(1, 4, 6, generator=torch.Generator().manual_seed(3)).double())

    def forward(self, x: Tensor) -> Tensor:
        scores = self.shared(x) @ self.shared(self.table).mT
        return self.head((scores.softmax(-1) @ self.table).mean(1).tanh())  # type: ignore[no-any-return]


class Normalised(nn.Module):
    """A gradient that arrives transposed at the batch norm: torch gets it wrong for one example."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(2, 16, 3, padding=1), nn.BatchNorm2d(16), nn.Linear(16, OUTPUTS)
        generator = torch.Generator().manual_seed(4)
        self.norm.running_var = torch.rand(16, generator=generator) + 0.5
        self.norm.running_mean = torch.rand(16, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.norm(self.conv(x))
        tokens = hidden.permute(2, 3, 0, 1).tanh().flatten(0, 1).contiguous()  # (S, N, G)
        return self.head(tokens.square().mean(0))  # type: ignore[no-any-return]


class Windows(nn.Module):
    """As Swin: windows of an image go on as examples of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.mix, self.head = nn.Conv1d(4, 4, 3, padding=1), nn.Linear(4, 4), nn.Linear(4, OUTPUTS)

    def forward(self, x: Tensor) -> Tensor:  # (N, 6, 4)
        windows = self.mix(x.reshape(-1, 2, 4)).tanh()  # (3 N, 2, 4)
        windows = self.conv(windows.mT).tanh().mT
        return self.head(windows.reshape(len(x), 6, 4).mean(1))  # type: ignore[no-any-return]


class IdleWindows(Windows):
    """Windows whose layer has no influence: nothing tells where its examples are."""

    def forward(self, x: Tensor) -> Tensor:
        windows = x.reshape(-1, 2, 4) + 0 * self.mix(x.reshape(-1, 2, 4))
        windows = self.conv(windows.mT).tanh().mT
        return self.head(windows.reshape(len(x), 6, 4).mean(1))  # type: ignore[no-any-return]


def inputs(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def make(build: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return build().double().eval()


def fitted(model: nn.Module, batches: list[Tensor], **options: object) -> infoform.Laplace:
    laplace = infoform.Laplace(
        model,
        infoform.likelihoods.Regression(noise=1.0),
        structure="diag",
        fit_options=infoform.FitOptions(fisher="exact", novelty=False),
    )
    return laplace.fit(batches, progress=False, **options)  # type: ignore[arg-type]


def jacobians(model: nn.Module, x: Tensor, names: list[str]) -> dict[str, Tensor]:  # (N, C, *shape) each
    """Return autograd's gradients of every output, the examples in pairs because of torch's error for one alone."""
    state = {name: parameter.detach() for name, parameter in model.named_parameters()}
    found: dict[str, list[Tensor]] = {name: [] for name in names}
    for n in range(len(x)):
        pair = x[[n, (n + 1) % max(2, len(x)) if len(x) > 1 else n]]

        def outputs(own: dict[str, Tensor], pair: Tensor = pair) -> Tensor:
            return functional_call(model, {**state, **own}, (pair,))[0]  # type: ignore[no-any-return]

        for name, one in jacrev(outputs)({name: state[name] for name in names}).items():
            found[name].append(one)
    return {name: torch.stack(ones) for name, ones in found.items()}


def check_exact(laplace: infoform.Laplace, fit_on: Tensor, x: Tensor) -> None:
    """Compare the diagonal of the fit and the covariance of a prediction with autograd's."""
    model, posterior = laplace.model, laplace.posterior()
    layers = {name: laplace.layers[name] for name in posterior.layers}
    covered = [row.parameter for row in laplace.coverage() if row.covered]
    assert sorted(covered) == sorted(name for layer in layers.values() for name in layer.parameters.values())
    for name, one in jacobians(model, fit_on, covered).items():
        layer = next(layer for layer in layers.values() if name in layer.parameters.values())
        diagonal = laplace.curvature[layer.name].diagonal
        assert diagonal is not None
        measured = layer.as_parameters(diagonal)[name]
        torch.testing.assert_close(measured, one.square().sum(1).mean(0), rtol=1e-8, atol=1e-12)
    covariance = torch.zeros(len(x), OUTPUTS, OUTPUTS, dtype=torch.float64)
    variances = {}
    for name, layer in layers.items():
        variances.update(layer.as_parameters(posterior.layers[name].diagonal().reciprocal()))
    for name, one in jacobians(model, x, covered).items():
        flat = one.flatten(2)
        covariance += (flat * variances[name].flatten()) @ flat.mT
    with laplace._predictor().private() as predictor:
        _, found = predictor.linear(read_inputs(x, x.device))
    torch.testing.assert_close(found.double(), covariance, rtol=1e-7, atol=1e-12)


def test_an_encoder_with_the_tokens_first_is_exact_also_where_it_has_as_many_tokens_as_examples() -> None:
    model, x = make(SequenceFirst), inputs(6, 6, 8)
    laplace = fitted(model, [x])
    assert {"encoder.layers.0.linear1", "encoder.layers.0.linear2", "head"} <= set(laplace.posterior().layers)
    check_exact(laplace, x, x)
    check_exact(laplace, x, inputs(4, 6, 8))


def test_a_weight_that_is_used_by_its_module_and_by_a_function_is_held_fixed() -> None:
    model, x = make(TiedAutoencoder), inputs(6, 5)
    with pytest.warns(UserWarning, match="'encoder' is held fixed"):
        laplace = fitted(model, [x])
    assert set(laplace.posterior().layers) == {"head"}
    assert {row.reason for row in laplace.coverage() if row.layer == "encoder"} == {
        "its gradients are not those of autograd: the weight is also used outside of its module's call, say, or the "
        "examples of a batch change places"
    }
    check_exact(laplace, x, x)


@pytest.mark.parametrize("build", [Centred, lambda: GraphConvolution(6)])
def test_a_fit_is_refused_where_outputs_depend_on_the_rest_of_the_batch(build: Callable[[], nn.Module]) -> None:
    with pytest.raises(ValueError, match="outputs of an example must not depend on the other examples of its batch"):
        fitted(make(build), [inputs(6, 5)])


def test_of_a_graph_given_by_its_edges_the_layers_after_the_last_exchange_alone_have_a_posterior() -> None:
    model, x, edges = make(GraphOfNodes), inputs(6, 5), torch.tensor([[0, 1, 2, 3, 4, 5, 0], [1, 2, 3, 4, 5, 0, 3]])
    laplace = infoform.Laplace(
        model,
        infoform.likelihoods.Regression(noise=1.0),
        structure="diag",
        fit_options=infoform.FitOptions(fisher="exact", novelty=False),
    )
    with pytest.warns(UserWarning, match="'first' is held fixed"):
        laplace.fit([(x, edges, torch.zeros(6, OUTPUTS).double())], progress=False)
    assert set(laplace.posterior().layers) == {"head"}
    outputs = model(x, edges)
    leaves = [dict(model.named_parameters())[name] for name in ("head.weight", "head.bias")]
    squares = [torch.zeros_like(one) for one in leaves]
    for n in range(6):
        for index in range(OUTPUTS):
            for total, one in zip(
                squares, torch.autograd.grad(outputs[n, index], leaves, retain_graph=True), strict=True
            ):
                total += one.square() / 6
    diagonal = laplace.curvature["head"].diagonal
    assert diagonal is not None
    torch.testing.assert_close(diagonal, torch.cat([squares[0], squares[1].unsqueeze(1)], dim=1))


def test_layers_between_which_the_batch_is_permuted_are_held_fixed() -> None:
    model, x = make(Sorted), inputs(6, 5)
    with pytest.warns(UserWarning, match="'inside' is held fixed"):
        laplace = fitted(model, [x])
    assert set(laplace.posterior().layers) == {"before", "head"}
    check_exact(laplace, x, x)


def test_what_was_fitted_on_batches_of_one_is_exact_on_a_larger_batch_or_says_why_not() -> None:
    model, x = make(RelativePositions), inputs(6, 3, 6)
    laplace = fitted(model, list(x.split(1)))
    with pytest.warns(UserWarning, match="one example at a time"):
        check_exact(laplace, x, x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it is said once
        check_exact(laplace, x, x)


def test_a_layer_that_sees_no_batch_is_held_fixed_by_a_fit_on_larger_batches() -> None:
    model, x = make(RelativePositions), inputs(6, 3, 6)
    with pytest.warns(UserWarning, match="'shared' is held fixed"):
        laplace = fitted(model, [x])
    assert set(laplace.posterior().layers) == {"head"}
    check_exact(laplace, x, x)


def test_one_example_before_a_batch_norm_is_exact() -> None:
    model, x = make(Normalised), inputs(3, 2, 5, 4)
    laplace = fitted(model, list(x.split(1)))
    check_exact(laplace, x, x[:1])
    check_exact(laplace, x, x)


def test_a_layer_without_gradients_that_tell_where_its_examples_are_is_held_fixed_and_says_so() -> None:
    x = inputs(5, 6, 4)
    with pytest.warns(UserWarning, match="'mix' is held fixed: its inputs have the shape .* all gradients were zero"):
        laplace = fitted(make(IdleWindows), [x])
    assert set(laplace.posterior().layers) == {"conv", "head"}
    check_exact(laplace, x, x)


def test_parts_of_examples_on_the_first_axis_are_exact() -> None:
    model, x = make(Windows), inputs(5, 6, 4)
    laplace = fitted(model, [x])
    assert set(laplace.posterior().layers) == {"conv", "mix", "head"}
    check_exact(laplace, x, x)
    check_exact(laplace, x, inputs(1, 6, 4))


class Bags(nn.Module):
    """Words of all examples in one tensor, and where each example begins."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.EmbeddingBag(9, 4), nn.Linear(4, OUTPUTS)

    def forward(self, words: Tensor, offsets: Tensor) -> Tensor:
        return self.head(self.words(words, offsets).tanh())  # type: ignore[no-any-return]


class Masked(nn.Module):
    """Takes a mask of positions (T, T) with longer axes than the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.mix, self.head = nn.Linear(4, 4), nn.Linear(4, OUTPUTS)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.head((mask @ self.mix(x)).tanh().mean(1))  # type: ignore[no-any-return]


class TokensFirst(nn.Module):
    """Takes (T, N, D)."""

    def __init__(self) -> None:
        super().__init__()
        self.mix, self.head = nn.Linear(4, 4), nn.Linear(4, OUTPUTS)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.mix(x).tanh().mean(0))  # type: ignore[no-any-return]


class Edges(nn.Module):
    """Takes a list of edges (E, 2), longer than the batch, along which the nodes of every example tell each other."""

    def __init__(self) -> None:
        super().__init__()
        self.mix, self.head = nn.Linear(4, 4), nn.Linear(4, OUTPUTS)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        told = self.mix(x).tanh()  # (N, nodes, D)
        return self.head(torch.zeros_like(told).index_add(1, edges[:, 1], told[:, edges[:, 0]]).mean(1))  # type: ignore[no-any-return]


EDGES = torch.tensor([[0, 1], [1, 2], [2, 0], [0, 3], [3, 1], [2, 4], [4, 5], [5, 0], [1, 4]])


def gradients(model: nn.Module, one: tuple[Tensor, ...], names: set[str]) -> dict[str, Tensor]:  # (C, *shape) each
    """Return autograd's gradients of the outputs of one example alone."""
    leaves = {name: parameter for name, parameter in model.named_parameters() if name in names}
    outputs = model(*one)[0]
    found = [torch.autograd.grad(output, list(leaves.values()), retain_graph=True) for output in outputs]
    return {name: torch.stack([of_output[place] for of_output in found]) for place, name in enumerate(leaves)}


@pytest.mark.parametrize("structure", ["diag", "inf"])
@pytest.mark.parametrize(
    "case", ["bags", "mask", "mask of the batch's size", "edges", "tokens first", "as many tokens as examples"]
)
def test_arguments_that_have_no_row_for_each_example_are_never_cut(case: str, structure: str) -> None:
    whole: tuple[Tensor, ...]
    single: list[tuple[Tensor, ...]]
    if case == "bags":
        model, starts = make(Bags), [0, 3, 4, 8]
        words = torch.randint(9, (11,), generator=torch.Generator().manual_seed(5))
        whole = (words, torch.tensor(starts))
        single = [(words[a:b], torch.tensor([0])) for a, b in zip(starts, [*starts[1:], 11], strict=True)]
    elif case == "edges":
        model, x = make(Edges), inputs(4, 6, 4)
        whole, single = (x, EDGES), [(one, EDGES) for one in x.split(1)]
    elif case.startswith("mask"):
        tokens = 6 if case == "mask" else 4
        model, x, mask = make(Masked), inputs(4, tokens, 4), inputs(tokens, tokens).triu()
        whole, single = (x, mask), [(one, mask) for one in x.split(1)]
    else:
        model, x = make(TokensFirst), inputs(7 if case == "tokens first" else 4, 4, 4)
        whole, single = (x,), [(x[:, n : n + 1],) for n in range(4)]
    laplace = infoform.Laplace(
        model,
        infoform.likelihoods.Regression(noise=1.0),
        structure=structure,
        prior="isotropic",
        fit_options=infoform.FitOptions(fisher="exact", novelty=False, statistics="all"),
    )
    laplace.fit([(*whole, torch.zeros(4, OUTPUTS).double())], progress=False)
    layers, posterior = laplace.layers, laplace.posterior()
    covered = {row.parameter for row in laplace.coverage() if row.covered}
    found = [gradients(model, one, covered) for one in single]
    for name in posterior.layers:
        diagonal = laplace.curvature[name].diagonal
        assert diagonal is not None
        for parameter, measured in layers[name].as_parameters(diagonal).items():
            expected = torch.stack([one[parameter].square().sum(0) for one in found]).mean(0)
            torch.testing.assert_close(measured, expected, rtol=1e-8, atol=1e-12)
    with laplace._predictor().private() as predictor:
        _, covariance = predictor.linear(read_inputs(whole, whole[0].device))
    for n, one in enumerate(found):
        expected = torch.zeros(OUTPUTS, OUTPUTS, dtype=torch.float64)
        for name, layer in posterior.layers.items():
            by_name = {key: one[parameter] for key, parameter in layers[name].parameters.items()}
            jacobian = torch.cat([by_name["weight"], by_name["bias"].unsqueeze(2)], dim=2).flatten(1)
            expected += jacobian @ torch.linalg.solve(layer.dense().double(), jacobian.T)
        torch.testing.assert_close(covariance[n].double(), expected, rtol=1e-6, atol=1e-10)


@pytest.mark.filterwarnings("ignore:the best prior_precision")
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
@pytest.mark.parametrize("case", ["bags", "mask", "mask of the batch's size", "edges"])
def test_the_number_of_examples_comes_from_the_outputs(case: str) -> None:
    words = torch.randint(9, (11,), generator=torch.Generator().manual_seed(5))
    size = 6 if case == "mask" else 4
    named: dict[str, Tensor] = {
        "bags": {"words": words, "offsets": torch.tensor([0, 3, 4, 8])},
        "edges": {"x": inputs(4, 6, 4), "edges": EDGES},
    }.get(case, {"x": inputs(4, size, 4), "mask": inputs(size, size).triu()})
    model = make({"bags": Bags, "edges": Edges}.get(case, Masked))
    y = torch.tensor([0, 1, 2, 0])
    laplace = infoform.Laplace(model, "classification").fit([dict(named)] * 3, progress=False)  # inputs alone
    assert laplace.num_data == 12
    laplace.fit([{**named, "labels": y}] * 3, progress=False).tune(
        [{**named, "labels": y}] * 2, trials=3, samples=10, progress=False
    )
    assert laplace.num_data == 12
    outputs = model(**named).detach()
    for kind in ("linear", "mc", "linear-mc"):
        prediction = laplace.predict(dict(named), kind=kind, samples=10)
        torch.testing.assert_close(prediction.plain, outputs)
        assert len(prediction) == 4
        several, targets = laplace.predict_loader([{**named, "labels": y}] * 2, kind=kind, samples=10, progress=False)
        assert targets is not None
        assert targets.tolist() == [0, 1, 2, 0] * 2
        torch.testing.assert_close(several.value[4:], prediction.value)
    assert len(laplace.novelty(dict(named))) == 4


class LargeBatches(nn.Module):
    """Does to more than eight examples what it does not to fewer."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.first, self.head, self.what = nn.Linear(5, 4), nn.Linear(4, OUTPUTS), what

    def forward(self, x: Tensor) -> Tensor:
        if len(x) <= 8:
            return self.head(self.first(x).tanh())  # type: ignore[no-any-return]
        if self.what == "flips":
            return self.head(self.first(x.flip(0)).tanh().flip(0))  # type: ignore[no-any-return]
        hidden = self.first(x)
        return self.head((hidden - hidden.mean(0)).tanh())  # type: ignore[no-any-return]


class FullExperts(nn.Module):
    """Experts that take three examples each, and leave the others as they are."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.head = nn.Linear(5, 2), nn.Linear(5, OUTPUTS)
        self.experts = nn.ModuleList([nn.Linear(5, 5), nn.Linear(5, 5)])

    def forward(self, x: Tensor) -> Tensor:
        gates = self.gate(x).softmax(1)
        out = x
        for number, expert in enumerate(self.experts):
            rows = (gates.argmax(1) == number).nonzero()[:3, 0]
            out = out.index_add(0, rows, expert(x[rows]).tanh() * gates[rows, number, None])
        return self.head(out)  # type: ignore[no-any-return]


def test_a_fit_is_refused_where_only_a_large_batch_mixes_its_examples() -> None:
    for build in (lambda: LargeBatches("centres"), FullExperts):
        with pytest.raises(ValueError, match="outputs of an example must not depend on the other examples"):
            fitted(make(build), [inputs(24, 5)])


def test_a_layer_whose_examples_change_places_in_large_batches_alone_is_held_fixed() -> None:
    model, x = make(lambda: LargeBatches("flips")), inputs(12, 5)
    with pytest.warns(UserWarning, match="'first' is held fixed"):
        laplace = fitted(model, [x])
    assert set(laplace.posterior().layers) == {"head"}
    check_exact(laplace, x, x)


def test_a_prediction_looks_anew_at_batches_of_another_order_of_size() -> None:
    model, x = make(lambda: LargeBatches("flips")), inputs(7, 5)
    laplace = fitted(model, [x])
    check_exact(laplace, x, x)
    with pytest.warns(UserWarning, match="'first' does not keep the examples of a batch apart"):
        check_exact(laplace, x, inputs(12, 5))


class Mapped(nn.Module):
    """Runs a layer inside vmap."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(5, 4), nn.Linear(4, OUTPUTS)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.vmap(lambda one: self.first(one).tanh())(x))  # type: ignore[no-any-return]


def test_a_layer_inside_vmap_is_held_fixed() -> None:
    model, x = make(Mapped), inputs(6, 5)
    with pytest.warns(UserWarning, match="'first' is held fixed: the model runs it inside torch.vmap"):
        laplace = fitted(model, [x])
    assert set(laplace.posterior().layers) == {"head"}
    check_exact(laplace, x, x)


def test_a_model_that_draws_random_numbers_is_said_to() -> None:
    class Noisy(LargeBatches):
        def forward(self, x: Tensor) -> Tensor:
            return self.head((self.first(x) + torch.randn(len(x), 4).to(x)).tanh())  # type: ignore[no-any-return]

    with pytest.warns(UserWarning, match="the model draws random numbers even in evaluation mode"):
        fitted(make(lambda: Noisy("")), [inputs(6, 5)])
