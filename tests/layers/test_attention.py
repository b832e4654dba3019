"""The projections that `nn.MultiheadAttention` computes by a function: exact, and torch's own attention otherwise."""

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import infoform
from dense import assert_close
from exactness import check_exact, spread
from infoform.layers.attention import InProjection, in_projection, in_projections, seen_projections
from infoform.network.batches import read_inputs
from infoform.network.capture import capturing
from infoform.network.coverage import find_layers


class Attention(nn.Module):
    """Attention of a sequence to itself, to a memory as keys and values, or to two memories."""

    def __init__(self, kind: str, *, batch_first: bool = True, need_weights: bool = False, **options: Any) -> None:
        super().__init__()
        self.kind, self.need_weights, self.batch_first = kind, need_weights, batch_first
        self.attention = nn.MultiheadAttention(4, 2, batch_first=batch_first, **options)
        self.head = nn.Linear(4, 3)
        if kind != "self":
            self.keys = nn.Linear(4, options.get("kdim") or 4)
        if kind == "three":
            self.values = nn.Linear(4, options.get("vdim") or 4)

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        x = x if self.batch_first else x.transpose(0, 1)
        keys = x if self.kind == "self" else self.keys(x).tanh()
        values = self.values(x).tanh() if self.kind == "three" else keys
        found, weights = self.attention(x, keys, values, key_padding_mask=padding, need_weights=self.need_weights)
        found = found.tanh()
        if weights is not None:
            found = found * (1 + weights.mean((1, 2)).reshape((-1, 1, 1) if self.batch_first else (1, -1, 1)))
        return self.head(found.mean(1 if self.batch_first else 0))  # type: ignore[no-any-return]


def sequences(length: int = 5) -> Tensor:
    return torch.randn(6, length, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


PADDING = torch.zeros(6, 6, dtype=torch.bool).index_fill_(1, torch.tensor([5]), value=True)


@pytest.mark.parametrize("length", [5, 6])  # 6 sequences of 6 tokens: which axis is which is not told by the shape
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("self", {}),
        ("self", {"bias": False, "add_zero_attn": True}),
        ("self", {"need_weights": True}),
        ("memory", {}),
        ("three", {"need_weights": True}),
        ("three", {"kdim": 3, "vdim": 5}),
        ("memory", {"kdim": 3, "vdim": 3, "bias": False}),
    ],
    ids=str,
)
def test_all_projections_of_an_attention_are_exact(
    kind: str, options: dict[str, Any], batch_first: bool, length: int
) -> None:
    laplace = check_exact(spread(Attention(kind, batch_first=batch_first, **options)), sequences(length))
    assert all(row.covered for row in laplace.coverage())


@pytest.mark.parametrize("batch_first", [True, False])
def test_padding_is_exact(batch_first: bool) -> None:
    check_exact(spread(Attention("self", batch_first=batch_first)), sequences(6), PADDING)


class Encoder(nn.Module):
    def __init__(self, *, batch_first: bool) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(4, 2, 6, batch_first=batch_first, norm_first=not batch_first)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=batch_first)
        self.head, self.batch_first = nn.Linear(4, 3), batch_first

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        x = x if self.batch_first else x.transpose(0, 1)
        x = self.encoder(x, src_key_padding_mask=padding)
        return self.head(x[:, 0] if self.batch_first else x[0])  # type: ignore[no-any-return]


@pytest.mark.parametrize("batch_first", [True, False])
def test_an_encoder_is_covered_whole(batch_first: bool) -> None:
    laplace = check_exact(spread(Encoder(batch_first=batch_first)), sequences(6), PADDING)
    assert all(row.covered for row in laplace.coverage())


def test_an_encoder_and_a_decoder_are_covered_whole() -> None:
    class Translator(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = nn.Transformer(4, 2, 1, 1, 6, batch_first=True), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.body(x, x[:, :3]).mean(1))  # type: ignore[no-any-return]

    laplace = check_exact(spread(Translator()), sequences())
    assert all(row.covered for row in laplace.coverage())


@pytest.mark.parametrize("options", [{}, {"kdim": 3, "vdim": 5}, {"bias": False}], ids=str)
def test_weights_survive_the_way_to_a_matrix_and_back(options: dict[str, Any]) -> None:
    model = spread(Attention("three", **options))
    layer = find_layers(model)[0]["attention"]
    own = dict(model.named_parameters())
    cut = layer.as_parameters(torch.stack([layer.mean, 2 * layer.mean]))
    assert layer.mean.shape == layer.shape
    assert cut.keys() == {name for name in own if name.startswith("attention.") and "out_proj" not in name}
    for name, value in cut.items():
        assert torch.equal(value, torch.stack([own[name], 2 * own[name]]))


def test_the_captured_network_computes_what_the_model_does_and_the_model_is_left_as_found() -> None:
    model = spread(Encoder(batch_first=True)).double().eval()
    before, state = {name: dict(one.__dict__) for name, one in model.named_modules()}, copy.deepcopy(model.state_dict())
    x, layers = sequences(6), find_layers(model)[0]
    expected = model(x)
    with capturing(model, layers) as capture:
        assert_close(capture.forward(read_inputs((x, PADDING), x.device)).detach(), model(x, PADDING).detach())
    assert {name: dict(one.__dict__) for name, one in model.named_modules()} == before
    assert all(torch.equal(one, state[name]) for name, one in model.state_dict().items())
    assert torch.equal(model(x), expected)


def test_two_blocks_see_the_same_projections() -> None:
    model = Attention("self").double()
    seen: list[str] = []
    whole = in_projection(model.attention)
    handles = [whole.register_forward_hook(lambda *_: seen.append("in"))]
    handles.append(model.attention.out_proj.register_forward_hook(lambda *_: seen.append("out")))
    with seen_projections([whole]), seen_projections([model.attention.out_proj]):
        model(sequences())
    for handle in handles:
        handle.remove()
    model(sequences())
    assert seen == ["in", "out"]


def test_what_stands_for_a_projection_belongs_to_its_attention_also_in_copies() -> None:
    attention = nn.MultiheadAttention(4, 2)
    whole, *parts = in_projections(attention)
    assert in_projection(attention) is whole
    assert [one.thirds for one in parts] == [(0, 1), (1, 3), (1, 2), (2, 3)]
    other, projection = copy.deepcopy((attention, whole))
    assert isinstance(projection, InProjection)
    assert projection is in_projection(other)
    assert projection.owner is other
    assert isinstance(pickle.loads(pickle.dumps((attention, whole)))[1], InProjection)


def test_predictions_of_every_kind_agree_with_separate_linear_layers() -> None:
    class Plain(nn.Module):
        def __init__(self, of: nn.MultiheadAttention) -> None:
            super().__init__()
            self.inside, self.outside = nn.Linear(4, 12), nn.Linear(4, 4)
            assert of.in_proj_weight is not None
            self.inside.weight, self.inside.bias = of.in_proj_weight, of.in_proj_bias
            self.outside.load_state_dict(of.out_proj.state_dict())

        def forward(self, x: Tensor, *_: Tensor, **__: object) -> tuple[Tensor, None]:
            q, k, v = (one.unflatten(2, (2, 2)).transpose(1, 2) for one in self.inside(x).chunk(3, dim=2))
            found = (q @ k.mT / 2**0.5).softmax(-1) @ v
            return self.outside(found.transpose(1, 2).flatten(2)), None

    fused = Attention("self").double()
    spread(fused)
    plain = copy.deepcopy(fused)
    plain.attention = Plain(fused.attention).double()  # type: ignore[assignment]
    x = sequences()
    one, other = (
        infoform.Laplace(model, "classification", structure="diag").fit([x], progress=False) for model in (fused, plain)
    )
    for kind in ("linear", "mc", "linear-mc"):
        probs = other.predict(x, kind=kind).probs
        assert probs is not None
        assert_close(one.predict(x, kind=kind).probs, probs, rtol=1e-6)
