"""Several heads: the sums of what each head alone has, by names or in a tuple, at positions or not."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import infoform
from dense import assert_close
from flat import flat_laplace
from infoform import Classification, Heads, HeteroscedasticRegression, Regression

pytestmark = [
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated"),
    pytest.mark.filterwarnings("ignore:the best prior_precision"),
    pytest.mark.filterwarnings("ignore:on the data of the fit"),
]


class Several(nn.Module):
    """A trunk with a head for the kind and one for the size."""

    def __init__(self, form: str = "dict") -> None:
        super().__init__()
        torch.manual_seed(0)
        self.trunk, self.kind, self.size = nn.Linear(4, 5), nn.Linear(5, 3), nn.Linear(5, 2)
        self.form = form

    def forward(self, x: Tensor) -> Any:
        inner = self.trunk(x).tanh()
        kind, size = self.kind(inner), self.size(inner)
        forms = {
            "dict": {"size": size, "kind": kind, "inner": inner},
            "tuple": (kind, size),
            "kind": kind,
            "size": size,
        }
        return forms[self.form]


def heads(form: str = "dict", second: infoform.Likelihood | None = None) -> Heads:
    parts = {"kind": Classification(), "size": second or Regression(noise=0.5)}
    if form == "dict":
        return Heads(parts, outputs={"kind": 3, "size": 2})
    return Heads(list(parts.values()), outputs=[3, 2])


def data(*shape: int) -> tuple[Tensor, dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(8, *shape, 4, dtype=torch.float64, generator=generator)
    kind = torch.randint(3, (8, *shape), generator=generator)
    return x, {"kind": kind, "size": torch.randn(8, *shape, 2, dtype=torch.float64, generator=generator)}


def information(laplace: infoform.Laplace, name: str) -> Tensor:
    dense = laplace.posterior(prior="isotropic", prior_precision=1.0, num_data=1.0).layers[name].dense()
    scale = laplace.likelihood.information_scale(laplace.noise, "exact")
    return (dense - torch.eye(len(dense), dtype=dense.dtype)) / scale


@pytest.mark.parametrize("shape", [(), (3,)])
@pytest.mark.parametrize("form", ["dict", "tuple"])
def test_the_information_is_the_sum_of_the_heads(form: str, shape: tuple[int, ...]) -> None:
    model, (x, y), likelihood = Several(form).double(), data(*shape), heads(form)
    given = y if form == "dict" else list(y.values())
    targets = likelihood.join_targets(given)
    whole = flat_laplace(model, likelihood, structure="full", fisher="exact").fit([(x, targets)], progress=False)
    single = {}
    for name, own in (("kind", Classification()), ("size", Regression(noise=[0.5, 0.5]))):
        alone = flat_laplace(Several(name).double(), own, structure="full", fisher="exact", layers=("trunk", name))
        single[name] = alone.fit([(x, y[name])], progress=False)
    trunk = sum(information(one, "trunk") for one in single.values())
    assert isinstance(trunk, Tensor)
    assert_close(information(whole, "trunk"), trunk, rtol=1e-8)
    for name, one in single.items():
        assert_close(information(whole, name), information(one, name), rtol=1e-8)
    total = sum(float(one._fitted().fit.summary.log_likelihood or 0) for one in single.values())
    assert whole._fitted().fit.summary.log_likelihood == pytest.approx(total)


@pytest.mark.parametrize("shape", [(), (3,)])
@pytest.mark.parametrize("kind", ["linear", "mc", "linear-mc"])
def test_predictions_are_taken_apart(kind: str, shape: tuple[int, ...], tmp_path: Any) -> None:
    model, (x, y), likelihood = Several().double(), data(*shape), heads()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    hooks = len(model._forward_hooks)
    batch = (x, likelihood.join_targets(y))
    laplace = infoform.Laplace(model, likelihood).fit([batch], progress=False)
    laplace.tune([batch], kind=kind, trials=3, samples=10, progress=False)
    prediction, targets = laplace.predict_loader([batch] * 2, kind=kind, samples=50, progress=False)
    assert targets is not None
    parts = likelihood.split(prediction)
    assert parts["kind"].answer == "class"
    assert parts["kind"].value.shape == (16, *shape, 3)
    assert parts["size"].value.shape == (16, *shape, 2)
    assert_close(parts["kind"].plain[:8], model(x)["kind"].detach())
    assert_close(parts["kind"].value.sum(-1), torch.ones(16, *shape).double())
    assert_close(parts["size"].aleatoric, torch.full_like(parts["size"].aleatoric, 0.25))
    scores = likelihood.scores(prediction, targets)
    assert {"nll", "kind_accuracy", "size_rmse"} <= scores.keys()
    both = scores["kind_nll"] + scores["size_nll"]
    assert math.isfinite(scores["nll"])
    assert scores["nll"] == pytest.approx(both, abs=0.5)
    laplace.save(tmp_path / "a.infoform")
    again = infoform.load(tmp_path / "a.infoform", model, likelihood=heads())
    assert_close(again.predict(x, samples=10).value, laplace.predict(x, samples=10).value)
    assert len(model._forward_hooks) == hooks
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])


def test_a_head_may_tell_its_own_noise_and_some_positions_do_not_count() -> None:
    model, (x, y) = Several().double(), data(3)
    likelihood = heads(second=HeteroscedasticRegression())
    kind = y["kind"].clone()
    kind[:, 0] = -100
    size = y["size"][..., :1].clone()
    size[:, 0] = math.nan
    targets = likelihood.join_targets({"kind": kind, "size": size})
    laplace = infoform.Laplace(model, likelihood).fit([(x, targets)], progress=False)
    assert laplace._fitted().fit.summary.num_targets == 16
    prediction, given = laplace.predict_loader([(x, targets)], samples=10, progress=False)
    assert given is not None
    assert math.isfinite(likelihood.scores(prediction, given)["nll"])


def test_what_does_not_fit_is_said() -> None:
    model, (x, y), likelihood = Several().double(), data(), heads()
    targets = likelihood.join_targets(y)
    refused: list[tuple[nn.Module, infoform.Likelihood, Tensor, type[Exception], str]] = [
        (Several("kind").double(), likelihood, targets, TypeError, "returns a dict or a tuple, got Tensor"),
        (Several("tuple").double(), likelihood, targets, ValueError, "a tensor for head 'kind', got 0, 1"),
        (model, Heads({"kind": Classification()}, outputs={"kind": 2}), targets, ValueError, "must have 2 outputs"),
        (model, likelihood, targets[:, :2], ValueError, "make them by join_targets"),
        (model, likelihood, targets + 5, ValueError, "class indices must be between 0 and 2"),
        (model, likelihood, targets + 0.5, ValueError, "needs integer class indices"),
    ]
    for network, one, given, error, message in refused:
        with pytest.raises(error, match=message):
            infoform.Laplace(network, one).fit([(x, given)], progress=False)
    with pytest.raises(TypeError, match="targets must be one tensor, got a dict"):
        infoform.Laplace(model, likelihood).fit([(x, y)], progress=False)
    with pytest.raises(ValueError, match="that of 'b' is free"):
        Heads({"b": Regression()}, outputs={"b": 1})
    with pytest.raises(ValueError, match="outputs must give the number of outputs of each head, a"):
        Heads({"a": Classification()}, outputs={"b": 1})
    laplace = infoform.Laplace(model, likelihood).fit([(x, targets)], progress=False)
    with pytest.raises(ValueError, match="no sets or intervals of the heads likelihood"):
        laplace.calibrate_conformal([(x, targets)], progress=False)
    with pytest.raises(ValueError, match="this network has several heads"):
        infoform.acquire(laplace, [x], 2, progress=False)
