"""`infoform acquire`, `plan`, `demo`, `reproduce` and `bench`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas
import pytest
import torch
from trees import NETWORK, TREES, read
from typer.testing import Result

import infoform
from infoform.cli.mistakes import Mistake
from infoform.cli.model_source import build_model, load_weights
from infoform.cli.verbs.bench import find_clone
from infoform.experiments import EXPERIMENTS

Call = Callable[..., Result]
Fail = Callable[..., str]


def _loaded(run: Path) -> infoform.Laplace:
    model = build_model("model.py:classifier", {}).eval()
    load_weights(model, Path("classifier.pt"))
    return infoform.load(run / "posterior.safetensors", model)


@pytest.mark.parametrize(
    "options", [{}, {"by": "mutual_information", "samples": 20}, {"greedy": False, "kind": "linear"}]
)
def test_acquire_chooses_what_the_library_chooses(fitted: Path, succeed: Call, options: dict[str, Any]) -> None:
    flags = [flag for name, value in options.items() if name != "greedy" for flag in (f"--{name}", value)]
    succeed(
        "acquire",
        "run",
        "--data",
        "unlabelled.csv",
        "-n",
        4,
        *flags,
        *(["--each-alone"] if "greedy" in options else []),
    )
    x = torch.tensor(pandas.read_csv("trees.csv")[["a", "b", "c"]].to_numpy(), dtype=torch.float32)
    expected = infoform.acquire(_loaded(fitted), [(x,)], 4, progress=False, **options).tolist()
    assert read(fitted / "acquire.json")["result"]["chosen"] == expected
    assert list(pandas.read_csv(fitted / "acquire.csv")["example"]) == [f"row {index}" for index in expected]


def test_acquire_no_more_than_there_are(fitted: Path, fail: Fail) -> None:
    said = fail("acquire", "run", "--data", "unlabelled.csv", "-n", 100, "--quiet")
    assert said == "--number must be at most the 40 inputs of 'unlabelled.csv', got 100."
    assert not list(fitted.glob("*.part"))  # told before anything was predicted


def test_a_plan_before_a_fit(home: Path, succeed: Call) -> None:
    shown = succeed("plan", *NETWORK, "--structure", "kfac", "--json", "plan.json", width=80).stdout
    expected = infoform.plan(build_model("model.py:classifier", {}), structure="kfac")
    assert read("plan.json")["result"]["total_bytes"] == expected.total_bytes
    assert "posterior (kfac)" in shown
    assert Path("plan.options.yaml").exists()
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize("source", [("--shape", "3", "--batch-size", "40"), ("--data", "unlabelled.csv")])
def test_a_plan_with_an_example_knows_the_peak(home: Path, succeed: Call, source: tuple[str, ...]) -> None:
    succeed("plan", *NETWORK, *source, "--memory", "2kB", "--json", "plan.json")
    example = torch.zeros(40, 3)
    expected = infoform.plan(build_model("model.py:classifier", {}), memory="2kB", example=example)
    result = read("plan.json")["result"]
    assert result["peak_bytes"] == expected.peak_bytes
    assert [layer["rank"] for layer in result["layers"]] == [layer.rank for layer in expected.layers]


def test_a_plan_of_a_network_without_weights_and_within_a_budget(home: Path, succeed: Call, fail: Fail) -> None:
    Path("empty.py").write_text(
        "import torch\nfrom torch import nn\n\ndef net():\n    with torch.device('meta'):\n"
        "        return nn.Sequential(nn.Linear(300, 200), nn.Tanh(), nn.Linear(200, 9))\n"
    )
    where = ("plan", "--model", "empty.py:net", "--shape", "300", "--batch-size", "4")
    with torch.device("meta"):
        model = torch.nn.Sequential(torch.nn.Linear(300, 200), torch.nn.Tanh(), torch.nn.Linear(200, 9))
    peak = infoform.plan(model, example=torch.zeros(4, 300)).peak_bytes
    assert peak is not None
    shown = succeed(*where, "--max-memory", peak - 1, "--offload", "--json", "plan.json").stdout
    assert read("plan.json")["result"]["groups"] == [["0"], ["2"]]
    assert "in 2 groups of layers" in shown
    assert "max_memory must be at least" in fail(*where, "--max-memory", "1kB")


def test_a_plan_after_a_fit_and_its_ranks_applied(fitted: Path, succeed: Call) -> None:
    laplace = _loaded(fitted)
    expected = infoform.plan(laplace, memory="900B")
    succeed("plan", "run", "--memory", "900B", "--json", "plan.json")
    assert read("plan.json")["result"]["kept"] == pytest.approx(expected.kept)
    assert _loaded(fitted).structure.options()["rank"] == 100
    succeed("plan", "run", "--memory", "900B", "--apply")
    assert _loaded(fitted).structure.options()["rank"] == expected.ranks
    assert _loaded(fitted).posterior().nbytes <= 900


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--model", "model.py:classifier", "--shape", "7"], "does not take inputs of --shape 7"),
        (["--model", "model.py:classifier", "--shape", "3,x"], "--shape must be whole numbers"),
        (["--model", "model.py:classifier", "--apply"], "--apply is for the plan of a run"),
        (["--model", "model.py:classifier", "--rank", "3", "--memory", "1kB"], "rank and memory exclude each other"),
        (["--model", "model.py:classifier", "--memory", "1B"], "memory must be at least"),
        (["run", "--rank", "3"], "a fitted run has its own rank"),
        (["run", "--apply"], "give --memory alone"),
    ],
)
def test_bad_plans(fitted: Path, fail: Fail, arguments: list[str], said: str) -> None:
    assert said in fail("plan", *arguments)


def test_a_plan_after_a_fit_needs_the_curvature(home: Path, succeed: Call, fail: Fail) -> None:
    succeed("fit", "run", *NETWORK, *TREES, "--no-curvature")
    assert "fit again with --keep-curvature" in fail("plan", "run", "--memory", "1kB")


def test_the_demo_runs_and_leaves_its_result(home: Path, succeed: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    from infoform.demo import __main__ as program
    from infoform.demo.digits import DigitsSettings
    from infoform.demo.toy import ToySettings

    seen = {}

    def run(digits: DigitsSettings, toy: ToySettings, *, out: Path) -> None:  # the demo itself has its own tests
        seen["seeds"] = digits.seed, toy.seed
        print("its tables")
        (out / "results.json").write_text('{"digits": {}}')

    monkeypatch.setattr(program, "run", run)
    result = succeed("demo", "--out", "here", "--seed", 2, "--json", "-")
    assert seen["seeds"] == (2, 2)
    assert json.loads(result.stdout)["result"] == {"digits": {}}
    assert "its tables" in result.stderr


def test_the_demo_says_what_it_misses(home: Path, fail: Fail, monkeypatch: pytest.MonkeyPatch) -> None:
    from infoform.demo import __main__ as program

    monkeypatch.setattr(program, "NEEDED", {"no_such_module": "no-such-package"})
    assert "pip install 'infoform[demo]'" in fail("demo")


def test_experiments_are_listed(home: Path, succeed: Call) -> None:
    result = succeed("reproduce", "--json", "-")
    assert list(json.loads(result.stdout)["result"]["experiments"]) == list(EXPERIMENTS)


def test_an_unknown_experiment_and_a_missing_result(home: Path, fail: Fail) -> None:
    assert fail("reproduce", "tabel-1").startswith("there is no experiment 'tabel-1'; there are ")
    name = next(iter(EXPERIMENTS))
    assert f"'results/{name}.json', which is not there" in fail("reproduce", name, "--page", "docs")
    assert "either quick or full" in fail("reproduce", name, "--quick", "--full")


def test_an_experiment_runs_with_the_options_given(home: Path, succeed: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    from infoform.experiments import runner
    from infoform.records.study_result import Result as Outcome

    given: dict[str, Any] = {}

    def reproduce(name: str, **options: Any) -> Outcome:  # the runner has its own tests
        given.update(options, name=name)
        return Outcome(name, {"epochs": 3}, 0, 1, pieces={"a": {"nll": 0.5}})

    monkeypatch.setattr(runner, "reproduce", reproduce)
    name = next(iter(EXPERIMENTS))
    result = succeed("reproduce", name, "--quick", "--out", "here", "--json", "-")
    assert given == {
        "name": name,
        "quick": True,
        "full": False,
        "out": Path("here"),
        "cache": Path("out/cache"),
        "progress": True,
    }
    assert json.loads(result.stdout)["result"]["pieces"] == {"a": {"nll": 0.5}}


def test_the_benchmark_runs_in_the_clone(
    home: Path, succeed: Call, fail: Fail, monkeypatch: pytest.MonkeyPatch
) -> None:
    import subprocess

    commands: list[tuple[list[str], Path]] = []
    code = 0
    original = subprocess.run

    def run(command: list[str], *, cwd: Path, check: bool, **how: Any) -> subprocess.CompletedProcess[str]:
        if command[0] == "git":  # asked for the commit
            return original(command, cwd=cwd, check=check, **how)
        commands.append((command[1:], cwd))
        return subprocess.CompletedProcess(command, code)

    monkeypatch.setattr(subprocess, "run", run)
    succeed("bench", "--quick", "--", "--networks", "mlp")
    ((command, folder),) = commands
    assert command == ["-m", "benchmarks.speed", "--quick", "--networks", "mlp"]
    assert (folder / "benchmarks" / "speed" / "__main__.py").is_file()
    code = 2
    assert fail("bench") == "the benchmark ended with code 2; its own message is above."


def test_an_installed_package_says_where_the_benchmarks_are(home: Path) -> None:
    with pytest.raises(Mistake, match="no part of the installed package; clone the repository"):
        find_clone(home / "site-packages" / "infoform" / "bench.py")
