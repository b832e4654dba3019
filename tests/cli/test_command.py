"""The program as a whole: help, version, completion, exit codes, one sentence for every mistake."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import typer
from trees import NETWORK, TREES
from typer.testing import Result

import bounded
from infoform.cli import app
from infoform.cli.mistakes import Mistake, sentence
from infoform.cli.verbs import VERBS
from infoform.likelihoods import FISHER_KINDS, LIKELIHOODS, LINKS
from infoform.posteriors import PRESETS, STRUCTURES
from infoform.predicting.predictor import KINDS
from infoform.priors import PRIORS
from infoform.tuning.search import METHODS, OBJECTIVES
from infoform.version import __version__

Call = Callable[..., Result]


def test_help_lists_every_verb_with_one_line(succeed: Call) -> None:
    shown = succeed("--help", width=80).stdout
    for verb, function in VERBS.items():
        assert f"│ {verb} " in shown
        assert (function.__doc__ or "").splitlines()[0][:50] in shown


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("verb", VERBS)
def test_help_of_a_verb_teaches_by_example_within_the_width(succeed: Call, verb: str, width: int) -> None:
    shown = succeed(verb, "--help", width=width).stdout
    assert f"     infoform {verb}" in shown  # indented: an example
    assert max(map(len, shown.splitlines())) <= width
    for option in ("--json", "--config", "--quiet", "--debug"):
        assert option in shown


@pytest.mark.parametrize("verb", VERBS)
def test_examples_fit_a_narrow_terminal(verb: str) -> None:
    examples = [line for line in (VERBS[verb].__doc__ or "").splitlines() if line.startswith(" " * 8)]
    assert examples
    assert max(len(line) - 4 + 1 for line in examples) <= 79


@pytest.mark.parametrize(
    ("verb", "names"),
    [
        ("fit", [*STRUCTURES, *PRESETS, *PRIORS, *FISHER_KINDS, *LIKELIHOODS]),
        ("tune", [*METHODS, *OBJECTIVES, *KINDS, *LINKS]),
        ("predict", [*KINDS, *LINKS]),
    ],
)
def test_help_names_all_that_the_library_has(succeed: Call, verb: str, names: list[str]) -> None:
    shown = " ".join(succeed(verb, "--help", width=200).stdout.split())
    for name in names:
        assert name in shown


def test_the_version(succeed: Call) -> None:
    assert succeed("--version").stdout == f"infoform {__version__}\n"


def test_no_arguments_show_the_help(call: Call) -> None:
    assert "infoform fit runs/a" in call().output


def test_an_unknown_verb_gets_a_suggestion(fail: Callable[..., str]) -> None:
    assert fail("fti", code=2) == "No such command 'fti'. Did you mean 'fit'? See 'infoform --help'."


def test_a_wrong_option_and_a_missing_one(fail: Callable[..., str]) -> None:
    assert fail("fit", "run", "--dta", "x.csv", code=2).endswith("see 'infoform fit --help'.")
    assert "--data" in fail("fit", "run", code=2)
    assert "--batch-size" in fail("fit", "run", "--data", "x.csv", "--batch-size", "twelve", code=2)


def test_debug_shows_the_traceback(home: Path, call: Call) -> None:
    result = call("fit", "run", *NETWORK, "--data", "missing.csv", "--target", "y", "--debug")
    assert result.exit_code == 1
    assert "Traceback" in result.stderr
    assert result.stderr.splitlines()[-1].startswith("error: there is no file 'missing.csv'")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (Mistake("two\n lines."), "two lines."),
        (RuntimeError("mat1 and mat2\nand more about it"), "mat1 and mat2"),
        (ValueError("rank must be 1."), "rank must be 1."),
        (typer.BadParameter("too small."), "too small; see 'infoform --help'."),
    ],
)
def test_an_error_is_one_line(error: Exception, said: str) -> None:
    assert sentence(error).endswith(said)
    assert "\n" not in sentence(error)


def test_an_unexpected_error_says_where() -> None:
    with pytest.raises(KeyError) as caught:
        dict[str, int]()["key"]
    assert sentence(caught.value).startswith("unexpected KeyError: 'key' (")
    assert "test_command.py" in sentence(caught.value)


def test_an_interruption_ends_with_130(home: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("infoform.laplace.Laplace.fit", interrupt)
    result = call("fit", "run", *NETWORK, *TREES)
    assert result.exit_code == 130
    assert result.stderr == "interrupted.\n"
    assert not Path("run").exists()  # nothing half-done


def test_the_shell_completes_verbs_options_and_names_from_the_tables() -> None:
    def complete(*words: str) -> list[str]:
        environment = os.environ | {
            "_INFOFORM_COMPLETE": "complete_bash",
            "COMP_WORDS": " ".join(("infoform", *words)),
            "COMP_CWORD": str(len(words)),
        }
        code = "from infoform.cli import main; main()"
        return bounded.run([sys.executable, "-c", code], env=environment).stdout.split()

    assert complete("ev") == ["evaluate"]
    assert complete("fit", "--structure", "inf") == ["inf", "inf-paper"]


def test_every_verb_is_registered() -> None:
    assert [command.name for command in app.registered_commands] == list(VERBS)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["predict", "run", "--data", "trees.csv", "--seed", 10**30], 2, "Invalid value for '--seed'"),
        (["fit", "new", "--data", "trees.csv", "--seed", -1], 2, "Invalid value for '--seed'"),
        (
            ["predict", "run", "--data", "trees.csv", "--json", "no/x.json"],
            1,
            "cannot be written: there is no folder 'no'",
        ),
        (["predict", "run", "--data", "trees.csv", "--json", "run"], 1, "cannot be written: it is a folder"),
        (["reproduce", "toy", "--quick", "--out", "model.py"], 1, "--out must be a folder, and 'model.py' is a file"),
        (["fit", "new", *NETWORK, "--data", "empty.npz"], 1, "'empty.npz' cannot be read as plain arrays"),
        (["fit", "new", *NETWORK, "--data", "single.npz"], 1, "'single.npz' cannot be read as plain arrays"),
        (["fit", "new", *NETWORK, "--data", "text.npz"], 1, "'text.npz' cannot be read as plain arrays"),
        (["fit", "new", *NETWORK, *TREES, "--offload", "cdua"], 1, "got 'cdua'; write 'cuda' for the device"),
    ],
)
def test_mistakes_are_told_before_any_work(
    fitted: Path, fail: Callable[..., str], arguments: list[object], code: int, said: str
) -> None:
    Path("empty.npz").touch()
    Path("text.npz").write_text("text")
    with Path("single.npz").open("wb") as file:
        np.save(file, np.zeros(3))
    assert said in fail(*arguments, "--quiet", code=code)
    assert not Path("new").exists()
    assert not (fitted / "predict.csv").exists()
