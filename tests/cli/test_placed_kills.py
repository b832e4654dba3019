"""Any verb that is killed before any change of the file system ends, when started again, as an unbroken one."""

import shutil
from pathlib import Path

import pytest
from killed_verbs import SLOW, VERBS, make_folder

from placed_kills import CleanProcess, contents

IN_CI = 3  # places of each verb that are tried here; benchmarks/trust/kills.py tries all


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in SLOW])
def test_a_killed_command_that_is_started_again_ends_as_an_unbroken_one(
    verb: str, home: Path, commands: CleanProcess
) -> None:
    make_folder()
    everything = home / "all"
    everything.mkdir()
    *before, last = VERBS[verb]
    for arguments in before:
        assert commands.run(arguments) == 0
    shutil.copytree(everything, home / "before")
    code, changes = commands.count_changes(last, everything)
    assert code == 0
    assert len(changes) > 5 or changes[-1].endswith("to report.html")  # which is a single file
    unbroken = contents(everything)
    assert not [name for name in unbroken if ".staged" in name or "tmp" in name or "lock" in name or "commit" in name]
    # always the places around the point of commitment, and others from the beginning to the end
    commit = next(
        place
        for place, change in enumerate(changes)
        if change.startswith("os.rename") and change.endswith(("to .commit.json", "to report.html"))
    )
    spread = range(0, len(changes), 1 + len(changes) // IN_CI)
    for place in sorted({commit, min(commit + 1, len(changes) - 1), len(changes) - 1, *spread}):
        shutil.rmtree(everything)
        shutil.copytree(home / "before", everything)
        assert commands.run_killed(last, everything, place) == -9, changes[place]
        ended = commands.run(last)
        assert ended == 0 or (verb.startswith("fit") and place > commit), (place, changes[place])
        assert contents(everything) == unbroken, (place, changes[place])
