"""kind="auto" is the closed form for few outputs and for the last layer, else sampled; a prediction says so."""

import os
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bounded
import infoform
from dense import assert_close
from infoform.predicting import predictor as predictor_module
from infoform.predicting.kinds import LAST, MANY_OUTPUTS, choose_kind, may_be_last
from infoform.prediction import Prediction, join_predictions, move_prediction, select_examples

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # by torch's own jvp, once
FEW, MANY = 3, MANY_OUTPUTS + 1


@cache
def fitted(outputs: int, layers: Any = None) -> infoform.Laplace:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, outputs)).double()
    data = [(inputs(20, seed=3), torch.randint(0, outputs, (20,)))]
    return infoform.Laplace(model, "classification", structure="diag", layers=layers).fit(data, progress=False)


def inputs(examples: int = 7, seed: int = 1) -> Tensor:
    return torch.randn(examples, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    ("outputs", "layers", "kind", "reason"),
    [
        (FEW, None, "linear", "closed form: 3 outputs, at most 64"),
        (MANY_OUTPUTS, None, "linear", "closed form: 64 outputs, at most 64"),
        (MANY, None, "linear-mc", "sampled: 65 outputs, more than the 64 of the closed form"),
        (FEW, "last", "linear", LAST),
        (MANY, "last", "linear", LAST),
        (MANY, ("2",), "linear", LAST),
        (FEW, ("0",), "linear", "closed form: 3 outputs, at most 64"),
        (MANY, ("0",), "linear-mc", "sampled: 65 outputs, more than the 64 of the closed form"),
    ],
)
def test_auto_chooses_by_outputs_and_layers(outputs: int, layers: Any, kind: str, reason: str) -> None:
    laplace, x = fitted(outputs, layers), inputs()
    found = laplace.predict(x, samples=5)
    assert (found.kind, found.reason) == (kind, reason)
    asked = laplace.predict(x, samples=5, kind=kind)
    assert asked.kind == kind
    assert torch.equal(found.value, asked.value)
    assert asked.reason == (LAST if reason == LAST else "asked for")
    loaded, _ = laplace.predict_loader([x[:4], x[4:]], samples=5, progress=False)
    assert (loaded.kind, loaded.reason) == (kind, reason)
    assert_close(loaded.value, found.value, rtol=1e-9)


def test_a_single_layer_that_is_as_wide_as_the_outputs_but_not_the_last_is_sampled() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, MANY), nn.Tanh(), nn.Linear(MANY, MANY)).double()
    data = [(inputs(20, seed=3), torch.randint(0, MANY, (20,)))]
    laplace = infoform.Laplace(model, "classification", structure="diag", layers=["0"]).fit(data, progress=False)
    found, expected = laplace.predict(inputs(), samples=5), laplace.predict(inputs(), samples=5, kind="linear-mc")
    assert (found.kind, found.reason[:8]) == ("linear-mc", "sampled:")
    assert torch.equal(found.value, expected.value)


def test_single_draws_of_many_outputs_are_not_kept_unless_asked_for() -> None:
    laplace, x = fitted(MANY), inputs()
    assert laplace.predict(x, samples=5).samples is None
    asked = laplace.predict(x, samples=5, kind="linear-mc").samples
    assert asked is not None
    assert asked.shape == (5, 7, MANY)


def test_an_unknown_number_of_outputs_counts_as_few() -> None:
    assert choose_kind(None).kind == "linear"
    assert may_be_last([(3, 4)], None)
    assert not may_be_last([(3, 4)], 4)
    assert not may_be_last([(3, 4), (3, 4)], 3)


def test_few_covariances_are_held_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    laplace, x = fitted(MANY), inputs()
    whole = laplace.predict(x, kind="linear")
    sizes: list[int] = []
    linear = predictor_module.Predictor.linear

    def noting(self: Any, batch: Any) -> Any:
        mean, covariance = linear(self, batch)
        sizes.append(len(covariance))
        return mean, covariance

    monkeypatch.setattr(predictor_module.Predictor, "linear", noting)
    monkeypatch.setattr(predictor_module, "COVARIANCE_BYTES", 8 * MANY**2 * 3)
    parts = laplace.predict(x, kind="linear")
    assert sizes == [3, 3, 1]
    assert_close(parts.value, whole.value, rtol=1e-9)
    assert_close(parts.epistemic, whole.epistemic, rtol=1e-9)
    assert parts.samples is not None


def test_the_way_survives_all_that_is_done_with_a_prediction() -> None:
    made = fitted(FEW).predict(inputs())
    changed = [
        join_predictions([made, made]),
        select_examples(made, torch.tensor([2, 0])),
        move_prediction(made, "cpu"),
        Prediction.of(made.tensors()),
    ]
    for one in changed:
        assert (one.kind, one.reason) == (made.kind, made.reason) == ("linear", "closed form: 3 outputs, at most 64")


@pytest.mark.filterwarnings("ignore:the best prior_precision")
def test_a_search_of_an_earlier_version_goes_on(tmp_path: Path) -> None:
    laplace, data = fitted(FEW), [(inputs(), torch.tensor([0, 1, 2, 0, 1, 2, 0]))]
    options: dict[str, Any] = {"trials": 3, "path": tmp_path / "trials.json", "progress": False}
    earlier = laplace.tune(data, kind="linear", **options).trials  # the default then
    assert laplace.tune(data, **options).trials == earlier
    with pytest.raises(ValueError, match="kind"):
        laplace.tune(data, kind="linear-mc", **options)


def test_tensors_of_earlier_versions_are_read() -> None:
    made = fitted(FEW).predict(inputs())
    earlier = {name: value for name, value in made.tensors().items() if name not in ("kind", "reason")}
    read = Prediction.of(earlier)
    assert (read.kind, read.reason) == ("", "")
    assert torch.equal(read.value, made.value)
    assert not {"kind", "reason"} & read.tensors().keys()


MEMORY = """
import sys
import torch
from torch import nn
import infoform

torch.manual_seed(0)
outputs, kind, layers, examples = int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
model = nn.Sequential(nn.Linear(20, 30), nn.Tanh(), nn.Linear(30, outputs))
x, y = torch.randn(256, 20), torch.randint(outputs, (256,))
laplace = infoform.Laplace(model, "classification", layers="last" if layers == "last" else None)
laplace.fit([(x, y)], progress=False)
laplace.predict(x[:1], kind=kind)
def resident(field):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(field))
with open("/proc/self/clear_refs", "w") as clear:
    clear.write("5")
before = resident("VmRSS")
prediction = laplace.predict(torch.randn(examples, 20), kind=kind)
assert prediction.probs.isfinite().all()
print(resident("VmHWM") - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize(
    ("outputs", "kind", "layers", "examples", "limit"),
    [
        (100, "auto", "all", 256, 300),  # N x C x C alone would be 10 MB in float32
        (1000, "auto", "all", 256, 1000),  # ... 1 GB, and four times as much with roots in float64
        (1000, "linear", "all", 12, 400),
        (1000, "auto", "last", 2000, 400),  # 8 GB
    ],
)
def test_memory_is_bounded_with_many_outputs(outputs: int, kind: str, layers: str, examples: int, limit: int) -> None:
    command = [sys.executable, "-W", "ignore", "-c", MEMORY, str(outputs), kind, layers, str(examples)]
    # what is freed goes back at once: else the C library may hold on to it, in one run of three, whatever was asked for
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": str(2**20)}
    done = bounded.run(command, check=True, env=environment)
    assert int(done.stdout) < limit * 2**20
