"""Parameters that no module's rule takes: class tokens, recurrent weights, experts, shared tables; all exact."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import infoform
from exactness import check_exact, spread
from infoform.layers.parameter import parameter_use
from infoform.network.batches import read_inputs
from infoform.network.capture import Call, capturing
from infoform.network.coverage import ON_DEMAND, find_layers
from infoform.network.expanded import ExpandedNetwork
from infoform.options import FitOptions


class Vision(nn.Module):
    """A vision transformer with all the single parameters that such networks have."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.norm = nn.Conv2d(2, 4, 2, stride=2), nn.LayerNorm(4)
        self.token, self.positions = nn.Parameter(torch.zeros(1, 1, 4)), nn.Parameter(torch.zeros(1, 5, 4))
        self.gamma, self.scalar = nn.Parameter(torch.ones(4)), nn.Parameter(torch.tensor(1.0))
        self.table = nn.Parameter(torch.zeros(9, 2))
        self.register_buffer("relative", torch.arange(25).reshape(5, 5) % 9)
        self.qkv, self.head = nn.Linear(4, 12), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        tokens = torch.cat([self.token.expand(len(x), -1, -1), self.patches(x).flatten(2).mT], 1) + self.positions
        q, k, v = (one.unflatten(2, (2, 2)).transpose(1, 2) for one in self.qkv(self.norm(tokens)).chunk(3, 2))
        weights = (q @ k.mT + self.table[self.get_buffer("relative")].permute(2, 0, 1)).softmax(-1)
        tokens = tokens + self.gamma * (weights @ v).transpose(1, 2).flatten(2)
        return self.head(tokens[:, 0] * self.scalar)  # type: ignore[no-any-return]


class Recurrent(nn.Module):
    def __init__(self, kind: Any, **options: Any) -> None:
        super().__init__()
        self.body = kind(4, 3, batch_first=True, **options)
        self.head = nn.Linear(6 if options.get("bidirectional") else 3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x)[0].mean(1))  # type: ignore[no-any-return]


class Experts(nn.Module):
    """Stacked experts, each of which sees the tokens that were sent to it."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.head = nn.Linear(4, 3), nn.Linear(4, 2)
        self.up, self.down = nn.Parameter(torch.zeros(3, 4, 5)), nn.Parameter(torch.zeros(3, 5, 4))

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.reshape(-1, 4)
        weights, chosen = self.gate(tokens).softmax(-1).topk(2)
        total = torch.zeros_like(tokens)
        for expert in range(3):
            rows, places = (chosen == expert).nonzero(as_tuple=True)
            if len(rows):
                found = (tokens[rows] @ self.up[expert]).tanh() @ self.down[expert]
                total = total.index_add(0, rows, found * weights[rows, places, None])
        return self.head(total.reshape(x.shape).mean(1))  # type: ignore[no-any-return]


class LanguageModel(nn.Module):
    """The output layer uses the table of words."""

    def __init__(self, *, bias: bool, positions: bool) -> None:
        super().__init__()
        self.words, self.body, self.out = nn.Embedding(7, 4), nn.Linear(4, 4), nn.Linear(4, 7, bias=bias)
        self.out.weight, self.positions = self.words.weight, positions

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.body(self.words(x)).tanh()
        return self.out(hidden).mean(1) if self.positions else self.out(hidden.mean(1))  # type: ignore[no-any-return]


class Extended(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True, add_bias_kv=True)
        self.norm, self.head = nn.BatchNorm1d(4), nn.utils.parametrizations.weight_norm(nn.Linear(4, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.attention(x, x, x)[0].mean(1)))  # type: ignore[no-any-return]


class Tied(nn.Module):
    """A weight that its layer uses, and a function once more, transposed."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Linear(4, 4), nn.Linear(4, 4, bias=False), nn.Linear(4, 3)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.second(self.first(x).tanh()).tanh())  # type: ignore[no-any-return]


def numbers(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def words() -> Tensor:
    return torch.randint(7, (5, 4), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    ("model", "x"),
    [
        (Vision(), numbers(6, 2, 4, 4)),
        (Recurrent(nn.LSTM), numbers(5, 4, 4)),
        (Recurrent(nn.LSTM, num_layers=2, bidirectional=True, proj_size=0), numbers(5, 4, 4)),
        (Recurrent(nn.GRU), numbers(5, 4, 4)),
        (Recurrent(nn.RNN), numbers(5, 4, 4)),
        (Experts(), numbers(5, 4, 4)),
        (Extended(), numbers(6, 5, 4)),
        (Tied(), numbers(5, 4)),
        *((LanguageModel(bias=bias, positions=many), words()) for bias in (False, True) for many in (False, True)),
    ],
    ids=lambda one: type(one).__name__,
)
def test_every_parameter_is_exact(model: nn.Module, x: Tensor) -> None:
    laplace = check_exact(spread(model), x)
    assert all(row.covered for row in laplace.coverage())


def test_each_parameter_is_a_layer_of_its_own_that_can_be_named() -> None:
    laplace = check_exact(spread(Vision()), numbers(6, 2, 4, 4), layers=["tok*", "table", "head"])
    assert laplace.posterior().layers.keys() == {"token", "table", "head"}
    assert laplace.posterior().layers["token"].shape == (1, 4)
    rows = {row.parameter: row for row in laplace.coverage()}
    assert rows["token"].reason == "Vision 'token'"


def test_by_default_the_reason_says_how_to_have_them() -> None:
    rows = infoform.Laplace(Vision(), "classification").coverage()
    reasons = {row.parameter: row.reason for row in rows if not row.covered}
    assert reasons.keys() == {"token", "positions", "gamma", "scalar", "table", "norm.weight", "norm.bias"}
    assert all(ON_DEMAND in one for one in reasons.values())


def test_they_are_predicted_in_every_kind_and_structure() -> None:
    model, x = spread(Vision()).double().eval(), numbers(6, 2, 4, 4)
    for structure in ("inf", "kfac"):
        laplace = infoform.Laplace(model, "classification", structure=structure, layers="all", prior="isotropic")
        laplace.fit([x[:4], x[4:]], progress=False)
        laplace.prior_precision = 50.0
        for kind in ("linear", "mc", "linear-mc"):
            probs = laplace.predict(x, kind=kind).probs
            assert probs is not None
            assert bool(probs.isfinite().all())


def test_a_batch_that_cannot_be_cut_holds_them_fixed() -> None:
    class Masked(Vision):
        def forward(self, x: Tensor, mask: Tensor) -> Tensor:  # type: ignore[override]
            return super().forward(x) + 0 * mask.sum()

    model, x = spread(Masked()).double().eval(), numbers(6, 2, 4, 4)
    with pytest.warns(UserWarning, match="cannot be cut into examples"):
        laplace = infoform.Laplace(model, "regression", layers="all").fit(
            [(x, torch.zeros(5, 5).double(), torch.zeros(6, 3).double())], progress=False
        )
    assert not any(row.covered for row in laplace.coverage() if "." not in row.parameter)


def test_vectors_may_be_sent_back_one_after_the_other() -> None:
    model, x = spread(Vision()).double().eval(), numbers(6, 2, 4, 4)
    layers, _ = find_layers(model, ["token"])
    sent: list[Call] = []
    with capturing(model, layers) as capture:
        outputs = capture.forward(read_inputs(x, x.device))
        for index in range(3):
            vector = torch.zeros_like(outputs)
            vector[:, index] = 1
            capture.backward(outputs, vector, lambda _, calls: sent.extend(calls), last=index == 2)
        assert not capture.calls
    assert [None if one.gradients is None else one.gradients.shape for one in sent] == [(6, 1, 1, 4)] * 3
    assert layers["token"].module is parameter_use(model, "token")


def test_the_network_runs_with_copies_in_one_pass_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = spread(Vision()).double().eval(), numbers(6, 2, 4, 4)
    run, runs = ExpandedNetwork.run, []

    def counted(*given: Any) -> ExpandedNetwork:
        runs.append(1)
        return run(*given)

    monkeypatch.setattr(ExpandedNetwork, "run", counted)
    laplace = infoform.Laplace(model, "classification", layers="all", fit_options=FitOptions(novelty=False))
    laplace.fit([x[:4], x[4:]], progress=False, check=False)
    assert len(runs) == 2  # batches; the second pass measures along bases, which single parameters do not have
    assert all(row.covered for row in laplace.coverage())


def test_a_plan_counts_the_run_with_copies() -> None:
    costs = [
        infoform.plan(infoform.Laplace(Vision(), "classification", layers=layers), example=numbers(6, 2, 4, 4).float())
        for layers in (["all", "!token", "!positions", "!gamma", "!scalar", "!table"], "all")
    ]
    assert costs[0].cost is not None
    assert costs[1].cost is not None
    # another forward and another backward pass, and the squares of a few numbers
    assert 2 / 3 < costs[1].cost - costs[0].cost < 0.75
