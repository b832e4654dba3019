"""Commands that are killed, at placed points and at random: started again, they end as an unbroken one.

Placed: before every change of the file system of every verb (Python tells of each beforehand). At random: `kill -9`
after a random part of the time that the command takes. Verbs that are done at the present commit are kept in
out/trust-kills.json, and a stopped run goes on with the next one.
"""

import json
import os
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from infoform.common.provenance import commit

from ..common import ROOT, write_json
from . import claim, goes_on

TESTS, PACKAGE = ROOT / "tests", ROOT / "src" / "infoform"
KEPT = ROOT / "out" / "trust-kills.json"
RANDOM = 50  # kills of each verb
QUICK = 2


def run(*, quick: bool, seed: int) -> dict[str, Any]:
    """Kill every verb; return how many kills there were, and which commands ended otherwise than an unbroken one.

    Args:
        quick: Whether a few places of each verb will do.
        seed: Of the places and times.
    """
    sys.path[:0] = [str(TESTS), str(TESTS / "cli")]
    from killed_verbs import SLOW, VERBS, make_folder, warm_up

    from placed_kills import CleanProcess

    now = commit(PACKAGE)
    kept: dict[str, Any] = {} if quick or not KEPT.exists() else json.loads(KEPT.read_text())
    done = {verb: one for verb, one in kept.items() if one["commit"] == now and now is not None and now[-1] != "+"}
    here = Path.cwd()
    before = {name: os.environ.get(name) for name in ("XDG_CONFIG_HOME", "COLUMNS")}
    with tempfile.TemporaryDirectory() as name, CleanProcess() as process:
        try:
            os.chdir(name)
            os.environ["XDG_CONFIG_HOME"] = str(Path(name) / "config")
            make_folder()
            warm_up(process, slow=not quick)
            for verb, commands in VERBS.items():
                if verb in done or (verb in SLOW if quick else not goes_on()):
                    continue
                chance = random.Random(f"{seed} {verb}")
                done[verb] = {"commit": now, **_verb(process, Path(name), verb, commands, chance, quick=quick)}
                print(f"  {verb}: {done[verb]}", file=sys.stderr, flush=True)
                if not quick:
                    write_json(KEPT, done)
        finally:
            os.chdir(here)
            for key, value in before.items():
                os.environ.pop(key, None) if value is None else os.environ.__setitem__(key, value)
    placed, at_random = ({verb: one[how] for verb, one in done.items()} for how in ("placed", "random"))
    wrong = [text for one in done.values() for text in one["wrong"]]
    total = sum(placed.values()) + sum(at_random.values())
    return {
        "claims": [
            claim(
                "a command that is killed anywhere and started again ends as an unbroken one",
                not wrong,
                f"{total - len(wrong):,} of {total:,} kills",
            )
        ],
        "left": [verb for verb in VERBS if verb not in done and not quick],
        "placed": placed,
        "random": at_random,
        "wrong": wrong[:30],
    }


def _verb(process: Any, home: Path, verb: str, commands: Any, chance: random.Random, *, quick: bool) -> dict[str, Any]:
    from placed_kills import contents

    everything, start = home / "all", home / "before"
    for folder in (everything, start):
        shutil.rmtree(folder, ignore_errors=True)
    everything.mkdir()
    *earlier, last = commands
    for arguments in earlier:
        assert process.run(arguments) == 0, arguments
    shutil.copytree(everything, start)
    begun = time.monotonic()
    code, changes = process.count_changes(last, everything)
    lasts = time.monotonic() - begun
    assert code == 0, last
    unbroken = contents(everything)
    wrong: list[str] = []

    def again(what: str) -> None:
        process.run(last)
        wrong.extend(_differences(f"{verb}, {what}", unbroken, contents(everything)))

    def reset() -> None:
        shutil.rmtree(everything)
        shutil.copytree(start, everything)

    places = list(range(len(changes)))
    for place in sorted(chance.sample(places, QUICK)) if quick else places:
        reset()
        process.run_killed(last, everything, place)
        again(f"before change {place} ({changes[place]})")
    kills = tries = 0
    while kills < (QUICK if quick else RANDOM) and tries < 10 * RANDOM:
        tries += 1
        reset()
        for _ in range(chance.randint(1, 3)):  # some commands are killed more than once
            code = process.run_for(last, chance.random() * lasts)
            kills += code != 0
            if code == 0 or contents(everything) == unbroken:  # done by then; a second one is another command
                break
        else:
            process.run(last)
        wrong += _differences(f"{verb}, at random, kill {kills}", unbroken, contents(everything))
    return {"placed": QUICK if quick else len(changes), "random": kills, "wrong": wrong}


def _differences(what: str, unbroken: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """Return a sentence about the files that differ, if some do."""
    names = sorted(name for name in unbroken.keys() | found.keys() if unbroken.get(name) != found.get(name))
    return [f"{what}: {', '.join(names)}"] if names else []


if __name__ == "__main__":
    print(json.dumps(run(quick="--quick" in sys.argv, seed=0), indent=1))
