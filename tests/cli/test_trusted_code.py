"""A run from elsewhere runs no code that the user has not named; one's own runs need no words."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from folder import Call
from trees import NETWORK, TREES, read

from infoform.cli.trust import key_file

Fail = Callable[..., str]
NEW = ("--data", "trees.csv", "--quiet")
VERBS = {
    "predict": ("predict", "run", *NEW),
    "evaluate": ("evaluate", "run", *NEW),
    "tune": ("tune", "run"),
    "acquire": ("acquire", "run", *NEW, "--number", "2", "--samples", "3"),
    "plan": ("plan", "run"),
    "update": ("fit", "run", "--update", "--data", "more.csv"),
}


def edit(run: Path, **model: object) -> None:
    record = read(run / "fit.json")
    record["result"]["model"] |= model
    (run / "fit.json").write_text(json.dumps(record))


@pytest.mark.parametrize("verb", VERBS)
def test_no_verb_runs_code_of_a_run_from_elsewhere(verb: str, fitted: Path, fail: Fail) -> None:
    edit(fitted, model="subprocess:call", arguments={"args": ["touch", "pwned"]})
    said = fail(*VERBS[verb])
    assert said.startswith("'run' was not made here, and its record names code to run ('subprocess:call'); give the ")
    assert "or add --trust if you trust whoever made the run." in said
    assert not Path("pwned").exists()


def test_nor_by_a_file_that_it_brings(fitted: Path, fail: Fail) -> None:
    (fitted / "net.py").write_text("open('pwned', 'w')\n")
    edit(fitted, model=f"{fitted}/net.py:net")
    assert "was not made here" in fail("predict", "run", *NEW)
    assert not Path("pwned").exists()


def test_another_users_run_asks_for_trust_or_the_network(
    fitted: Path, succeed: Call, fail: Fail, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(fitted.parent / "other"))
    assert "was not made here" in fail("predict", "run", *NEW)
    succeed("predict", "run", *NEW, "--model", "model.py:classifier")
    succeed("predict", "run", *NEW, "--trust")
    assert "trust" not in read(fitted / "predict.json")["options"]
    monkeypatch.setenv("INFOFORM_TRUST", "1")
    succeed("predict", "run", *NEW)
    monkeypatch.delenv("INFOFORM_TRUST")
    succeed("fit", "run", "--update", "--data", "more.csv", "--model", "model.py:classifier")
    assert "was not made here" in fail("predict", "run", *NEW)


def test_arguments_of_a_record_from_elsewhere_are_not_taken_either(home: Path, succeed: Call, fail: Fail) -> None:
    succeed("fit", "run", *NETWORK, *TREES, "--model-arg", "width=5")
    succeed("predict", "run", *NEW)
    edit(home / "run", arguments={"width": 5, "more": 1})
    given = ("--model", "model.py:classifier")
    assert "(--model-arg width=5 --model-arg more=1), or add --trust" in fail("predict", "run", *NEW, *given)
    succeed("predict", "run", *NEW, *given, "--model-arg", "width=5")


def test_a_run_made_here_can_be_moved_and_copied(fitted: Path, succeed: Call) -> None:
    fitted.rename("moved")
    succeed("predict", "moved", *NEW)


def test_the_key_is_the_users_alone(fitted: Path, succeed: Call) -> None:
    assert key_file().stat().st_mode & 0o777 == 0o600
    assert key_file().read_text() not in (fitted / "fit.json").read_text()
    before = key_file().read_text()
    succeed("fit", "again", *NETWORK, *TREES)
    assert key_file().read_text() == before


def test_without_a_place_for_the_key_a_fit_works_and_later_verbs_ask(
    home: Path, succeed: Call, fail: Fail, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("file").write_text("")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "file"))
    succeed("fit", "run", *NETWORK, *TREES)
    assert "was not made here" in fail("predict", "run", *NEW)


@pytest.mark.parametrize("signature", ["", "ü", "0" * 64, None])
def test_a_wrong_signature_does_not_help(signature: str | None, fitted: Path, fail: Fail) -> None:
    edit(fitted, signature=signature)
    if signature is None:
        record = read(fitted / "fit.json")
        del record["result"]["model"]["signature"]
        (fitted / "fit.json").write_text(json.dumps(record))
    assert "was not made here" in fail("predict", "run", *NEW)
