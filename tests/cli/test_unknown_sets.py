"""What `infoform evaluate` tells of known and unknown sets for the report, counted here by hand."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas
import pytest
import torch
from torch import Tensor
from trees import NAMES, read
from typer.testing import Result

from infoform.cli.extremes import choose
from infoform.cli.unknown_sets import ROC_POINTS, named_sets, strangest, unknown_sets
from infoform.prediction import Novelty, Prediction
from infoform.records import EvaluateResult, read_record

Call = Callable[..., Result]


def _predicted(novelty: Tensor, by_layer: Tensor | None = None) -> Prediction:
    by_layer = novelty[:, None].expand(-1, 2) if by_layer is None else by_layer
    source = torch.Generator().manual_seed(len(novelty))
    probs = torch.rand(len(novelty), 3, generator=source).softmax(1)
    entropy = torch.special.entr(probs).sum(1)
    made = Prediction(0 * probs, probs * (1 - probs), entropy, entropy / 2, probs.log(), probs=probs, max_entropy=1.1)
    return replace(made, input_novelty=Novelty(novelty, novelty[:, None], by_layer, ("head",), ("first", "second")))


def test_shares_counts_and_curves_are_those_of_the_scores() -> None:
    source = torch.Generator().manual_seed(0)
    known, unknown = _predicted(torch.rand(700, generator=source)), _predicted(torch.rand(300, generator=source).sqrt())
    found = unknown_sets(known, {"other": unknown})
    assert found is not None
    (other,) = found
    assert (other.examples, other.name) == (300, "other")
    assert other.novel == pytest.approx(float((unknown.novelty > 0.95).double().mean()))
    for name, score in other.scores.items():
        here, there = getattr(known, name).double(), getattr(unknown, name).double()
        for counts, values in ((score.known, here), (score.unknown, there)):
            assert sum(counts) == len(values)
            for place, count in enumerate(counts[1:], start=1):
                low, high = score.edges[place : place + 2]
                assert count == int(((values > low) & (values <= high)).sum())
        pairs = (there[:, None] > here).double() + 0.5 * (there[:, None] == here).double()
        assert score.auroc == pytest.approx(float(pairs.mean()))
        points = set(zip(score.roc.false_alarms, score.roc.found, strict=True))
        assert {(0.0, 0.0), (1.0, 1.0)} <= points
        assert len(points) <= ROC_POINTS
        thresholds = torch.cat([here, there])[:, None]
        curve = torch.stack([(here >= thresholds).double().mean(1), (there >= thresholds).double().mean(1)], 1)
        curve = torch.cat([torch.zeros(1, 2, dtype=torch.float64), curve])
        assert all(float((curve - torch.tensor(point)).abs().sum(1).min()) < 1e-6 for point in points)
        area = torch.trapezoid(torch.tensor(score.roc.found), torch.tensor(score.roc.false_alarms))
        assert float(area) == pytest.approx(score.auroc, abs=0.01)


def test_few_equal_scores_are_a_curve_too() -> None:
    found = unknown_sets(_predicted(torch.ones(2)), {"same": _predicted(torch.ones(3))})
    assert found is not None
    score = found[0].scores["novelty"]
    assert (score.roc.false_alarms, score.roc.found, score.auroc) == ([0.0, 1.0], [0.0, 1.0], 0.5)
    assert (score.known[-1], score.unknown[-1]) == (2, 3)


def test_bins_of_a_number_s_entropy_span_what_there_is() -> None:
    zero = torch.zeros(3, 1)
    some = Novelty(torch.rand(3), torch.rand(3, 1), torch.rand(3, 1), ("head",), ("first",))
    made = Prediction(zero, zero + 1, torch.tensor([-7.0, -6.5, -6.0]), torch.ones(3), zero, mean=zero)
    known = replace(made, input_novelty=some)
    found = unknown_sets(known, {"same": known})
    assert found is not None
    entropy = found[0].scores["entropy"]
    assert (entropy.edges[0], entropy.edges[-1]) == (-7.0, -6.0)
    assert (entropy.known[0], entropy.known[-1], sum(entropy.known)) == (1, 1, 3)
    assert found[0].scores["mutual_information"].edges[0] == 0


def test_the_strangest_come_first() -> None:
    by_layer = torch.tensor([[0.1, 0.2], [0.9, 0.9], [1.0, 0.5], [1.0, 0.9]])
    predicted = _predicted(torch.tensor([0.3, 0.9, 1.0, 1.0]), by_layer)
    assert predicted.input_novelty is not None
    seen = predicted.input_novelty
    order = sorted(range(4), key=lambda n: (seen.strangeness[n], seen.layer_strangeness[n].mean()), reverse=True)
    assert order[-2:] == [1, 0]
    assert strangest(predicted, 3) == order[:3]  # of two that are equally novel, the one stranger to the layers
    assert choose(predicted, None)["strangest"] == order


def test_a_prediction_without_novelty_has_no_such_record() -> None:
    without = replace(_predicted(torch.rand(4)), input_novelty=None)
    assert unknown_sets(without, {"other": without}) is None
    assert "strangest" not in choose(without, None)


def test_evaluate_writes_it(fitted: Path, succeed: Call) -> None:
    succeed("evaluate", "run", "--data", "trees.csv")
    alone = read(fitted / "evaluate.json")["result"]
    assert "unknown_sets" not in alone
    assert alone["strangest"]
    succeed("evaluate", "run", "--data", "trees.csv", "--unknown", "unlabelled.csv")
    result = read(fitted / "evaluate.json")["result"]
    (unknown,) = result["unknown_sets"]
    assert unknown["name"] == "unlabelled.csv"
    assert set(unknown["scores"]) == {"novelty", "entropy", "mutual_information"}
    assert unknown["scores"]["entropy"]["auroc"] == pytest.approx(result["unknown"]["entropy"]["auroc"])
    assert unknown["novel"] == pytest.approx(result["unknown"]["novelty"]["called"]["share"])
    for name in ("auroc", "aupr", "fpr95"):
        assert unknown["scores"]["novelty"][name] == pytest.approx(result["unknown"]["novelty"]["together"][name])
    for shown in (result["strangest"], result["unknown"]["strangest"]):
        assert [one["novelty"] for one in shown] == sorted((one["novelty"] for one in shown), reverse=True)
        assert all(one["strangest_layer"] and set(one["inputs"]) == set("abc") for one in shown)
    assert {one["target"] for one in result["strangest"]} <= set(NAMES)


def test_several_unknown_sets_are_told_by_name(fitted: Path, succeed: Call, fail: Callable[..., str]) -> None:
    frame = pandas.read_csv("unlabelled.csv")
    (30 * frame).to_csv("far.csv", index=False)
    given = ("--unknown", "far=far.csv", "--unknown", "unlabelled.csv")
    shown = succeed("evaluate", "run", "--data", "trees.csv", *given).stdout
    both = read_record(fitted / "evaluate.json", EvaluateResult, "infoform evaluate").result
    assert [one.name for one in both.every_unknown] == ["far", "unlabelled.csv"]
    assert [one.name for one in both.unknown_sets or []] == ["far", "unlabelled.csv"]
    assert "unknown examples of far" in shown
    for one in both.every_unknown:  # each as if it were the only one
        alone = ("--unknown", f"it={'far.csv' if one.name == 'far' else one.name}")
        succeed("evaluate", "run", "--data", "trees.csv", *alone)
        single = read_record(fitted / "evaluate.json", EvaluateResult, "infoform evaluate").result
        assert single.unknown == replace(one, name="it")
        assert single.more_unknown is None
    assert "names 'far' twice" in fail("evaluate", "run", "--data", "trees.csv", *given[:2], "--unknown", "far=b.csv")
    assert "must be DATA or NAME=DATA" in fail("evaluate", "run", "--data", "trees.csv", "--unknown", "far=")


def test_a_path_may_hold_an_equals_sign(home: Path) -> None:
    Path("a=b.csv").write_text("")
    assert named_sets(["a=b.csv", "runs/a=b/c.csv", "name=loaders.py:data"]) == {
        "a=b.csv": "a=b.csv",
        "runs/a=b/c.csv": "runs/a=b/c.csv",
        "name": "loaders.py:data",
    }
