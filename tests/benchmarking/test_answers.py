"""The benchmark of answers: its own temperature scaling, its workers, and a quick run from request to file."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks.answers import __main__ as command
from benchmarks.answers import memory
from benchmarks.answers.asking import Side, Worker
from benchmarks.answers.cases import QUICK
from benchmarks.answers.measure import Asked
from benchmarks.answers.temperature import best_temperature, nll

NOW = Side("now", Path(sys.executable))


@pytest.mark.parametrize("scale", [0.2, 1.0, 5.0])
def test_newtons_temperature_has_the_least_nll_of_a_fine_grid(scale: float) -> None:
    torch.manual_seed(0)
    f = torch.randn(400, 5, dtype=torch.float64)
    labels = torch.distributions.Categorical(logits=f).sample()
    found = best_temperature(scale * f, labels)
    grid = [found * factor for factor in torch.linspace(0.5, 2, 301).tolist()]
    assert nll(scale * f, labels, found) <= min(nll(scale * f, labels, one) for one in grid) + 1e-12
    assert found == pytest.approx(scale, rel=0.3)


def worker(program: str, *, limit: float) -> Worker:
    return Worker(NOW, [sys.executable, "-c", program], limit=limit)


def test_a_worker_that_ends_is_an_answer_and_begins_anew() -> None:
    asked = worker("import json; print(json.dumps({'ready': 1})); input(); raise SystemExit", limit=60)
    assert asked.ask(do="predict") == {"failed": "the process was ended"}
    assert asked.ask(do="predict") == {"failed": "the process was ended"}
    asked.close()


def test_a_worker_that_takes_too_long_is_ended() -> None:
    asked = worker("import json, time; print(json.dumps({'ready': 1}), flush=True); time.sleep(60)", limit=3)
    assert asked.ask(do="predict") == {"failed": "more than 3 s"}
    asked.close()


def test_a_way_that_is_not_there_is_told() -> None:
    asked = Asked("mlp", [NOW], command.QUICK, None)
    answer = asked.workers["now"].ask(do="predict", way="by heart", count=2)
    asked.close()
    assert "kind must be" in answer["failed"]


def test_a_quick_run_measures_each_row_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "RESULTS", tmp_path)
    path = tmp_path / "answers.json"

    def run() -> dict[str, Any]:
        known = json.loads(path.read_text()) if path.exists() else {}
        monkeypatch.setattr(command, "read_results", lambda name, empty: known)
        return command.run([NOW], command.QUICK, networks=["resnet50"], parts=["latency", "tune", "quality"],
                           cifar=None, path=path)  # fmt: skip

    first = run()
    case = QUICK["resnet50"]
    rows = first["latency"]["resnet50"]
    assert list(rows) == [f"{way}, {count}" for way in case.ways for count in (case.batch, 1)]
    for name, sides in rows.items():
        assert sides["now"]["forwards"] > 0, name
        assert sides["now"]["milliseconds"] > 0
    assert {"settings", "commits", "environment"} <= first.keys()
    monkeypatch.setattr(command, "latency", lambda *_: pytest.fail("a row that was known is measured again"))
    assert run()["latency"] == json.loads(path.read_text())["latency"] == first["latency"]


def test_memory_is_measured_of_a_prediction_and_of_a_search() -> None:
    found = memory.measure("mlp", "linear", cifar=None, quick=True)
    assert found["inputs"] == QUICK["mlp"].tuned[0]
    assert 0 <= found["predict"] < 2**30
    assert 0 <= found["tune"] < 2**30
