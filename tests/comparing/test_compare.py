"""A comparison end to end: same data for all, nothing tuned on test data, resumed, and refused in a sentence."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import infoform
from infoform import Laplace, metrics
from infoform.baselines import Ensemble
from infoform.common.json_values import from_json
from infoform.comparing import METHODS
from infoform.comparing import methods as methods_module
from infoform.comparing.task import Task
from infoform.records.compare import CompareResult
from infoform.tuning.validation_data import ValidationData

pytestmark = pytest.mark.filterwarnings("ignore:the best prior_precision")
Batches = list[tuple[Tensor, Tensor]]


def data(examples: int, seed: int, *, regression: bool = False) -> Batches:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(examples, 4, generator=generator)
    noise = torch.randn(examples, 3, generator=generator)
    y = torch.sin(x[:, :1]) + 0.3 * noise[:, :1] if regression else (x[:, :3] + 0.7 * noise).argmax(1)
    return list(zip(x.split(40), y.split(40), strict=True))


TRAIN, VAL, TEST = ({kind: data(n, seed, regression=kind) for kind in (False, True)} for n, seed in
                    ((120, 0), (80, 1), (120, 2)))  # fmt: skip
FAR = [5 + torch.randn(40, 4, generator=torch.Generator().manual_seed(3)) for _ in range(2)]


def fitted(*, regression: bool = False, **options: Any) -> Laplace:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1 if regression else 3))
    loss = nn.functional.mse_loss if regression else nn.functional.cross_entropy
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(60):
        for x, y in TRAIN[regression]:
            optimizer.zero_grad()
            loss(model(x), y).backward()
            optimizer.step()
    kind = "regression" if regression else "classification"
    return Laplace(model, kind, **options).fit(TRAIN[regression], progress=False)


def compared(laplace: Laplace, **options: Any) -> CompareResult:
    regression = laplace.likelihood.name == "regression"
    given: dict[str, Any] = {"val_loader": VAL[regression], "unknown": {"far": FAR}, "samples": 5, "resamples": 100}
    return infoform.compare(laplace, TEST[regression], progress=False, **{**given, **options})


@pytest.fixture(autouse=True)
def one_timing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time every method once: no test depends on time."""
    monkeypatch.setattr("infoform.comparing.task.REPEATS", 1)


@pytest.fixture(scope="module")
def whole() -> CompareResult:
    return compared(fitted(), baselines={"half": lambda x: torch.full((len(x), 3), 1 / 3)})


def test_every_method_is_scored_as_its_own_prediction_is(whole: CompareResult) -> None:
    assert [one.name for one in whole.methods] == [*METHODS, "half"]
    targets = torch.cat([y for _, y in TEST[False]])
    laplace = fitted()
    outputs = torch.cat([laplace.model(x) for x, _ in TEST[False]]).detach()
    assert whole.method("plain").scores["nll"] == pytest.approx(metrics.nll(outputs.softmax(1), targets), rel=1e-5)
    value = whole.method("temperature").settings["temperature"]
    assert isinstance(value, float)
    scaled = (outputs / value).softmax(1)
    assert whole.method("temperature").scores["ece"] == pytest.approx(metrics.ece(scaled, targets), rel=1e-4)
    prediction, _ = laplace.tune(VAL[False], progress=False).predict_loader(TEST[False], progress=False)
    assert prediction.probs is not None
    ours = whole.method("all layers")
    assert ours.scores["nll"] == pytest.approx(metrics.nll(prediction.probs, targets), rel=1e-4)
    far, _ = laplace.predict_loader(FAR, progress=False)
    expected = metrics.ood(prediction.novelty, far.novelty)
    assert ours.unknown["far"]["novelty"].auroc == pytest.approx(expected["auroc"])
    assert ours.unknown["far"]["novelty"].fpr95 == pytest.approx(expected["fpr95"])
    assert whole.method("half").scores["nll"] == pytest.approx(1.0986, rel=1e-3)


def test_the_last_layer_of_a_whole_fit_is_that_of_a_fit_of_the_last_layer(whole: CompareResult) -> None:
    alone = compared(fitted(layers="last"), methods=["last layer"])
    for name, value in alone.method("last layer").scores.items():
        assert whole.method("last layer").scores[name] == pytest.approx(value, rel=1e-3)


def test_differences_are_to_the_plain_network_and_to_a_temperature(whole: CompareResult) -> None:
    for one in whole.methods:
        for other, gains in (("plain", one.to_plain), ("temperature", one.to_temperature)):
            assert set(gains) == (set() if one.name == other else set(one.scores))
            for name, gain in gains.items():
                assert gain.mean == pytest.approx(one.scores[name] - whole.method(other).scores[name])
                assert gain.low - 1e-12 <= gain.mean <= gain.high + 1e-12 or name == "ece"
    assert whole.method("last layer").cost.nbytes is not None
    assert whole.method("plain").cost.predict == 1
    assert whole.method("all layers").cost.fit is not None


def test_a_regression_has_its_own_scores() -> None:
    found = compared(fitted(regression=True))
    assert list(found.methods[0].scores) == ["rmse", "log_likelihood", "crps", "coverage", "width"]
    assert "noise" in found.method("temperature").settings
    assert found.method("all layers").unknown["far"]["entropy"].auroc > 0.5
    assert found.methods[0].calibrated_ece is None
    assert "log-likelihood" in str(found)


def test_no_tuning_and_no_training_sees_test_data(monkeypatch: pytest.MonkeyPatch) -> None:
    test = torch.cat([x for x, _ in TEST[False]])
    seen: list[Tensor] = []
    asked: list[ValidationData] = []
    tune, fit, outputs = Laplace.tune, Ensemble.fit, Task.outputs

    def spied_tune(self: Laplace, loader: Any = None, **options: Any) -> Laplace:
        seen.extend(x for x, _ in loader)
        return tune(self, loader, **options)

    def spied_fit(self: Ensemble, loader: Any, **options: Any) -> Ensemble:
        seen.extend(x for x, _ in loader)
        return fit(self, loader, **options)

    def spied_outputs(self: Task, given: ValidationData) -> Tensor:
        asked.append(given)
        return outputs(self, given)

    monkeypatch.setattr(Laplace, "tune", spied_tune)
    monkeypatch.setattr(Ensemble, "fit", spied_fit)
    monkeypatch.setattr(Task, "outputs", spied_outputs)
    compared(fitted(), baselines=["ensemble"], train_loader=TRAIN[False], methods=["temperature", "last layer"])
    assert len(seen) == len(VAL[False]) + len(TRAIN[False])
    assert not any(bool((row == test).all(1).any()) for x in seen for row in x)
    temperature, targets = asked  # the test data are asked at the end, for their targets
    assert torch.equal(temperature.batches[0][0], VAL[False][0][0])
    assert torch.equal(targets.batches[0][0], TEST[False][0][0])


def test_the_laplace_and_its_network_are_left_as_they_are() -> None:
    laplace = fitted()
    before = {name: one.clone() for name, one in laplace.model.state_dict().items()}
    settings = (laplace.prior_precision, laplace.temperature, laplace.num_data, list(laplace.layers))
    compared(laplace, methods=["last layer", "all layers"])
    assert (laplace.prior_precision, laplace.temperature, laplace.num_data, list(laplace.layers)) == settings
    assert all(torch.equal(one, before[name]) for name, one in laplace.model.state_dict().items())
    assert laplace.trials == []


def test_an_interrupted_comparison_goes_on_and_comes_to_the_same(tmp_path: Path, whole: CompareResult) -> None:
    laplace, path, done = fitted(), tmp_path / "compare.json", []
    make = METHODS["all layers"].make

    def never(task: Any) -> Any:
        raise AssertionError("what is done is not done again")

    def stopped(task: Any) -> Any:
        done.append("all layers")
        if len(done) == 1:
            raise KeyboardInterrupt
        return make(task)

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(METHODS, "all layers", methods_module.Method("all layers", "", stopped, {}))
        with pytest.raises(KeyboardInterrupt):
            compared(laplace, path=path)
        assert len(list((tmp_path / "compare.json.parts").iterdir())) == 3
        assert not path.exists()
        patch.setitem(METHODS, "last layer", methods_module.Method("last layer", "", never, {}))
        again = compared(laplace, path=path)
    assert not (tmp_path / "compare.json.parts").exists()
    for one in again.methods:
        assert dict(one.scores) == pytest.approx(dict(whole.method(one.name).scores))
    assert from_json(CompareResult, json.loads(path.read_text())).recommendation == again.recommendation


def test_without_validation_data_the_posterior_is_taken_as_it_is() -> None:
    laplace = fitted()
    found = compared(laplace, val_loader=None)
    assert [one.name for one in found.methods] == ["plain", "all layers"]
    assert sum("left out" in note for note in found.notes) == 3


def test_validation_data_are_those_of_the_last_tuning_where_none_are_given() -> None:
    laplace = fitted().tune(VAL[False], progress=False)
    found = compared(laplace, val_loader=None)
    assert [one.name for one in found.methods] == list(METHODS)
    assert found.validation_examples == 80
    assert "all methods were tuned on the data of the last tune(val_loader)." in found.notes
    given = compared(laplace)
    assert [one.scores for one in found.methods] == [one.scores for one in given.methods]
    with pytest.raises(ValueError, match="must be other data than those that methods are tuned on"):
        compared(fitted().tune(TEST[False], progress=False), val_loader=None)
    once = fitted().tune(iter(VAL[False]), progress=False)  # is used up, but its temperature is known
    again = compared(once, val_loader=None)
    assert [one.name for one in again.methods] == ["plain", "temperature", "all layers"]
    assert once.plain_trial is not None
    assert again.method("temperature").settings["temperature"] == once.plain_trial.temperature


def test_baselines_are_tuned_by_a_temperature_that_keeps_the_order_of_classes() -> None:
    laplace = fitted()
    sharp = compared(laplace, baselines={"sharp": lambda x: (9 * laplace.model(x)).softmax(1)}, methods=["temperature"])
    alone, tuned = sharp.method("temperature"), sharp.method("sharp")
    assert_close(torch.tensor(tuned.scores["nll"]), torch.tensor(alone.scores["nll"]), rtol=1e-3, atol=1e-4)
    assert tuned.scores["accuracy"] == alone.scores["accuracy"]


def test_baselines_of_numbers_are_tuned_by_one_factor_of_their_standard_deviations() -> None:
    laplace = fitted(regression=True)

    def narrow(x: Tensor) -> tuple[Tensor, Tensor]:
        mean = laplace.model(x)
        return mean, torch.full_like(mean, 1e-4)

    found = compared(laplace, baselines={"narrow": narrow}, methods=["temperature"], unknown={})
    alone, tuned = found.method("temperature"), found.method("narrow")
    assert tuned.settings["std_factor"] == pytest.approx(100 * float(alone.settings["noise"] or 0), rel=1e-2)
    for name, value in alone.scores.items():
        assert tuned.scores[name] == pytest.approx(value, rel=1e-3, abs=1e-4)
    assert found.method("narrow").to_plain


def test_methods_of_yes_no_labels_are_tuned_label_by_label() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(240, 4, generator=generator)
    y = (x[:, :2] + torch.randn(240, 2, generator=generator) > 0).float()
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    laplace = Laplace(model, "multilabel").fit([(x[:80], y[:80])], progress=False)
    found = infoform.compare(
        laplace,
        [(x[160:], y[160:])],
        val_loader=[(x[80:160], y[80:160])],
        baselines={"sharp": lambda inputs: (2 * model(inputs)).sigmoid()},
        methods=["temperature"],
        resamples=100,
        progress=False,
    )
    alone, tuned = found.method("temperature"), found.method("sharp")
    assert tuned.settings["temperature"] == pytest.approx(2 * float(alone.settings["temperature"] or 0), rel=1e-2)
    assert tuned.scores["nll"] == pytest.approx(alone.scores["nll"], rel=1e-4)


def test_the_tables_fit_into_80_columns_with_every_difference_and_cost(whole: CompareResult) -> None:
    lines = str(whole).splitlines()
    tables = [line for line in lines if line[:1] in "┏┃│└┡"]
    assert max(map(len, tables)) <= 80
    assert not any("…" in line for line in tables)
    one = whole.method("all layers")
    for gain in (one.to_plain["nll"], one.to_temperature["nll"]):
        assert f"{gain.mean:+.4f} [{gain.low:+.4f}, {gain.high:+.4f}]" in str(whole)
    assert "ECE if perfect" in str(whole)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"test": FAR}, "needs targets, and the test data have none"),
        ({"test": []}, "needs test data, and the loader gave no examples"),
        ({"val_loader": TEST[False]}, "must be other data than those that methods are tuned on"),
        ({"val_loader": FAR}, "the validation data have none"),
        ({"unknown": {"wide": [torch.randn(3, 7)]}}, r"fails on 'wide', of shape \(3, 7\), where test data have"),
        ({"unknown": {"none": []}}, "the unknown set 'none' has no examples"),
        ({"methods": ["best"]}, "methods must be some of plain, temperature"),
        ({"baselines": ["best"]}, "a baseline must be one of mc-dropout"),
        ({"baselines": [len, len]}, "needs a name of its own, got 'len' twice"),
        ({"baselines": {"raw": lambda x: torch.randn(len(x), 3)}}, "'raw' must return a Prediction or probabilities"),
        ({"samples": 0}, "samples must be a whole number"),
        ({"resamples": 10}, "resamples must be a whole number of at least 100"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(options: dict[str, Any], said: str, tmp_path: Path) -> None:
    test = options.pop("test", TEST[False])
    given = {"methods": ["plain"], "samples": 5, **options}
    with pytest.raises(ValueError, match=said):
        infoform.compare(fitted(), test, path=tmp_path / "compare.json", progress=False, **given)
    assert not (tmp_path / "compare.json").exists()


def test_something_that_is_no_method_is_refused() -> None:
    with pytest.raises(TypeError, match="a baseline is a name, a fitted baseline or a function of inputs, got int"):
        compared(fitted(), baselines=[3])
