"""A run changes as a whole: locks, read-only folders, full disks, and a journal that stays inside the run."""

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas
import pytest
from folder import Call
from trees import NETWORK, TREES, read

import bounded
from full_disks import full_disk, read_only
from infoform.cli.mistakes import Mistake
from infoform.cli.run_change import JOURNAL, RunChange, read_journal
from infoform.cli.run_lock import RunLock
from placed_kills import CleanProcess, contents

Fail = Callable[..., str]
NEW = ("--data", "trees.csv", "--quiet")


def other_process_holds(path: Path, *, alone: bool) -> int:
    """Have a child hold the lock until it is killed."""
    ready, told = os.pipe()

    def hold() -> None:
        lock = RunLock(path, "it", "tune", alone=alone)
        os.write(told, b"1")
        signal.pause()
        lock.release()

    child = bounded.fork(hold)
    os.close(told)  # else a child that ended early would be waited for
    assert os.read(ready, 1) == b"1"
    os.close(ready)
    return child


def end(child: int) -> None:
    os.kill(child, signal.SIGKILL)
    bounded.end_of(child)


def test_a_run_in_use_is_told_with_who_uses_it_and_a_way_round(fitted: Path, succeed: Call, fail: Fail) -> None:
    child = other_process_holds(fitted / ".lock", alone=True)
    try:
        said = fail("predict", "run", *NEW)
        assert said.startswith(f"the run 'run' is in use by another command (infoform tune, process {child} on ")
        assert said.endswith("wait until that has ended, or remove 'run/.lock' if there is no such process any more.")
        (fitted / ".lock").unlink()
        succeed("predict", "run", *NEW)
    finally:
        end(child)


def test_commands_that_only_read_a_run_work_side_by_side(fitted: Path, succeed: Call, fail: Fail) -> None:
    child = other_process_holds(fitted / ".lock", alone=False)
    try:
        succeed("predict", "run", *NEW)
        assert "is in use by another command" in fail("tune", "run")
        assert "is in use by another command" in fail("fit", "run", *NETWORK, *TREES, "--force")
    finally:
        end(child)
    succeed("tune", "run")
    assert not list(fitted.glob(".*"))


def test_two_commands_do_not_write_one_table(fitted: Path, succeed: Call, fail: Fail) -> None:
    child = other_process_holds(fitted / ".predict.csv.lock", alone=True)
    try:
        assert fail("predict", "run", *NEW).startswith("'run/predict.csv' is in use by another command")
        succeed("predict", "run", *NEW, "--out", "elsewhere.csv")
    finally:
        end(child)


def test_a_lock_does_not_follow_a_link(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("theirs")
    (tmp_path / ".lock").symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match="symbolic links"):
        RunLock(tmp_path / ".lock", "it", "tune", alone=True)
    assert (tmp_path / "precious").read_text() == "theirs"


def test_a_lock_whose_process_was_killed_is_free(tmp_path: Path) -> None:
    end(other_process_holds(tmp_path / ".lock", alone=True))
    assert (tmp_path / ".lock").exists()
    lock = RunLock(tmp_path / ".lock", "it", "tune", alone=True)

    def lock_it_too() -> None:
        try:
            RunLock(tmp_path / ".lock", "it", "fit", alone=True)
        except Mistake:
            os._exit(3)

    assert bounded.end_of(bounded.fork(lock_it_too)) == 3
    lock.release()
    assert not list(tmp_path.iterdir())


def test_a_read_only_run_predicts_elsewhere(fitted: Path, succeed: Call, fail: Fail) -> None:
    succeed("predict", "run", *NEW, "--out", "expected.csv")
    (fitted / "predict.json").unlink()
    (fitted / "predict.options.yaml").unlink()
    before = contents(fitted)
    Path("out").mkdir()
    Path("out").chmod(0o777)
    with read_only(fitted):  # as another user, who did not make the run
        said = succeed("predict", "run", *NEW, "--out", "out/new.csv", "--trust").stderr
        assert "note: 'run' is read-only, so it keeps no record of this command." in said
        succeed("evaluate", "run", *NEW, "--json", "out/scores.json", "--trust")
        assert fail("predict", "run", *NEW).endswith("permission denied); give --out FILE in another folder.")
        assert fail("evaluate", "run", *NEW).endswith("permission denied); give --json FILE in another folder.")
        assert "the run 'run' cannot be written to" in fail("tune", "run")
        assert "the run 'run' cannot be written to" in fail("fit", "run", "--update", "--data", "more.csv")
        assert "new/run' cannot be made: Permission denied" in fail("fit", "run/new/run", *NETWORK, *TREES)
    assert Path("out/new.csv").read_bytes() == Path("expected.csv").read_bytes()
    assert read("out/scores.json")["result"]["examples"] == 40
    assert contents(fitted) == before


def test_a_full_disk_is_told_and_leaves_the_run_as_it_was(fitted: Path, succeed: Call, fail: Fail) -> None:
    succeed("predict", "run", *NEW)
    before = contents(fitted)
    commands = {
        "posterior.safetensors": ("fit", "run", *NETWORK, *TREES, "--force", "--quiet"),
        "predict.csv": ("predict", "run", *NEW),
        "acquire.json": ("acquire", "run", *NEW, "--number", 2, "--samples", 3),
        "evaluate.json": ("evaluate", "run", *NEW),
    }
    for name, arguments in commands.items():
        with full_disk(700):  # enough for the lock, too little for the file
            said = fail(*arguments)
        assert said.endswith("the run 'run' is as it was."), said
        assert "cannot be written: File too large" in said, name
        assert contents(fitted) == before, name


def test_a_fit_whose_posterior_finds_no_room_goes_on_from_its_checkpoint(
    home: Path, succeed: Call, commands: CleanProcess
) -> None:
    fit = ("fit", "run", *NETWORK, *TREES, "--quiet")
    succeed(*fit)
    expected = contents(home / "run")["posterior.safetensors"]
    shutil.rmtree("run")
    assert commands.run_killed([*fit, "--checkpoint", "part"], home / "run", 4) == -9  # when the posterior is written
    assert list(Path("part").glob("pass-2.safetensors"))
    succeed(*fit, "--checkpoint", "part")
    assert contents(home / "run")["posterior.safetensors"] == expected
    assert not Path("part").exists()


def test_an_update_that_is_repeated_says_so_and_changes_nothing(fitted: Path, succeed: Call) -> None:
    update = ("fit", "run", "--update", "--data", "more.csv", "--quiet")
    succeed(*update)
    before = contents(fitted)
    assert before["update.json"]["result"]["num_data"] == 65
    for more in ((), ("--batch-size", 7)):  # the same examples in other batches
        said = succeed(*update, *more).stderr
        assert "'more.csv' is in 'run' already (25 examples), and nothing was changed." in said
        assert contents(fitted) == before
    assert "'trees.csv' is in 'run' already" in succeed("fit", "run", "--update", *NEW).stderr
    lines = Path("more.csv").read_text().splitlines(keepends=True)
    Path("shuffled.csv").write_text("".join([lines[0], *reversed(lines[1:])]))
    assert "already" in succeed("fit", "run", "--update", "--data", "shuffled.csv").stderr
    Path("fewer.csv").write_text("".join(lines[:-1]))
    succeed("fit", "run", "--update", "--data", "fewer.csv", "--quiet")
    assert read(fitted / "update.json")["result"]["num_data"] == 89
    assert len(read(fitted / "update.json")["result"]["data"]["digests"]) == 3


def test_an_update_with_examples_that_are_in_the_run_says_so(fitted: Path, succeed: Call) -> None:
    import pandas

    old = pandas.read_csv("trees.csv")
    new = old.assign(a=old["a"] + 0.125)
    new.iloc[:5].to_csv("new.csv", index=False)
    assert "count twice" not in succeed("fit", "run", "--update", "--data", "new.csv", "--quiet").stderr
    pandas.concat([new.iloc[5:15], old.iloc[3:6], new.iloc[:2]]).to_csv("mixed.csv", index=False)
    said = succeed("fit", "run", "--update", "--data", "mixed.csv", "--quiet").stderr
    assert "about 0.33 of the examples in 'mixed.csv' are in 'run' already and now count twice" in said
    assert any("count twice" in note for note in read(fitted / "update.json")["notes"])


def test_an_update_keeps_results_of_the_earlier_posterior_and_says_where(fitted: Path, succeed: Call) -> None:
    succeed("tune", "run")
    succeed("predict", "run", *NEW)
    earlier = contents(fitted)
    said = succeed("fit", "run", "--update", "--data", "more.csv", "--quiet").stderr
    told = "predict.csv, predict.json, tune.json are of the earlier posterior, and lie in 'run/earlier/1' now."
    assert f"note: {told}" in said
    kept = contents(fitted / "earlier" / "1")
    assert kept == {name: earlier[name] for name in kept}
    assert {"predict.csv", "tune.json", "tune.options.yaml"} <= kept.keys()
    assert not (fitted / "tune.json").exists()
    succeed("predict", "run", *NEW)
    said = succeed("fit", "run", *NETWORK, *TREES, "--force", "--quiet").stderr
    assert "note: removed with the earlier posterior: predict.csv, predict.json, update.json." in said


def test_a_disk_without_room_for_the_lock_is_told_as_full(fitted: Path, fail: Fail) -> None:
    before = contents(fitted)
    for verb, remedy in (("tune", ""), ("predict", ", or give --out FILE in another folder")):
        with full_disk(0):
            said = fail(verb, "run", "--data", "trees.csv", "--quiet")
        assert said == f"the run 'run' cannot be written to (file too large); free space there{remedy}."
        assert contents(fitted) == before


def test_a_full_disk_is_told_by_the_name_that_the_file_would_get(home: Path, fail: Fail) -> None:
    with full_disk(700):
        said = fail("fit", "new", *NETWORK, *TREES, "--quiet")
    assert said.startswith("'new/posterior.safetensors' cannot be written: File too large")
    assert not (home / "new").exists()


def test_every_result_that_is_said_to_lie_with_the_earlier_ones_does(fitted: Path, succeed: Call) -> None:
    succeed("tune", "run", "--data", "trees.csv", "--trials", "4", "--quiet")  # leaves trials.json beside tune.json
    for verb in ("evaluate", "predict", "acquire"):
        succeed(verb, "run", "--data", "trees.csv", "--quiet")
    there = {path.name for path in fitted.glob("*.json")} - {"fit.json"}
    said = succeed("fit", "run", "--update", "--data", "more.csv", "--quiet").stderr
    told = said.partition(" are of the earlier posterior")[0].rpartition("note: ")[2].split(", ")
    assert set(told) == there | {"predict.csv", "acquire.csv"}
    assert set(told) <= contents(fitted / "earlier" / "1").keys()


def test_fit_json_says_what_the_posterior_is_after_an_update(fitted: Path, succeed: Call) -> None:
    before = read(fitted / "fit.json")
    frame = pandas.read_csv("trees.csv")
    for number in (1, 2):
        frame.assign(a=frame["a"] + number).to_csv(f"more{number}.csv", index=False)
        succeed("fit", "run", "--update", "--data", f"more{number}.csv", "--quiet")
        after, update = read(fitted / "fit.json"), read(fitted / "update.json")
        assert after["result"]["num_data"] == update["result"]["num_data"] == 40 * (number + 1)
        assert after["result"] == update["result"] | {"data": update["result"]["data"] | {"source": "trees.csv"}}
        assert len(after["result"]["data"]["digests"]) == number + 1
        told = ("options", "notes", "began", "seconds")  # the fit itself is what it was
        assert {name: after[name] for name in told} == {name: before[name] for name in told}


def test_any_verb_finishes_what_a_killed_one_had_committed_to(
    fitted: Path, home: Path, succeed: Call, commands: CleanProcess
) -> None:
    (home / "all").mkdir()
    shutil.copytree("run", "all/run")
    code, changes = commands.count_changes(["tune", "all/run"], home / "all")
    assert code == 0
    committed = 1 + next(place for place, change in enumerate(changes) if change.endswith(f"to {JOURNAL}"))
    expected = contents(home / "all" / "run")
    for verb in (("predict", "all/run", *NEW, "--out", "x.csv"), ("report", "all/run"), ("plan", "all/run")):
        shutil.rmtree("all/run")
        shutil.copytree("run", "all/run")
        assert commands.run_killed(["tune", "all/run"], home / "all", committed) == -9
        assert (home / "all" / "run" / JOURNAL).exists()
        succeed(*verb)
        found = contents(home / "all" / "run")
        assert {name: found[name] for name in expected} == expected
        assert not [name for name in found if name.startswith((".commit", ".staged"))]


def test_a_journal_cannot_reach_out_of_its_run(tmp_path: Path) -> None:
    change = RunChange(tmp_path, {})
    change.stage(tmp_path / "a.json").write_text("{}")
    (tmp_path / JOURNAL).write_text("nonsense")
    with pytest.raises(ValueError, match="is damaged"):
        read_journal(tmp_path)
    good: dict[str, Any] = {"command": {}, "becomes": {}, "removed": [], "kept": {}}
    for bad in (
        {"removed": ["../precious"]},
        {"removed": ["/precious"]},
        {"removed": [".."]},
        {"becomes": {".staged-0123456789ab.x": "../../x"}},
        {"becomes": {"x": "y"}},
        {"kept": {"x": "../x"}},
        {"kept": {"x": "1/../../x"}},
        {"kept": {"../x": "1/x"}},
        {"removed": 3},
        {"other": 3},
    ):
        (tmp_path / JOURNAL).write_text(json.dumps(good | bad))
        with pytest.raises(ValueError, match="is damaged"):
            read_journal(tmp_path)
    (tmp_path / JOURNAL).write_text("[" * 100_000)
    with pytest.raises(ValueError, match="is damaged"):
        read_journal(tmp_path)
