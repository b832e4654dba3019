"""What answers cost and how good they are, before and now, beside laplace-torch and temperature scaling, in one run.

    git worktree add out/before COMMIT
    python -m benchmarks.answers --before out/before --cifar cifar10.npz      # in the background: about an hour
    python -m benchmarks.answers --page                                       # writes docs/answers.md, runs nothing

Every version and library has a process of its own and they are asked in turns. Finished rows are in
benchmarks/results/answers.json, and a run goes on from there; `--again PART` measures one part anew. laplace-torch runs
in the peers' environment, and is left out where there is none. Without `--cifar` the pictures are made up, and nothing
is scored: speed does not depend on them.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.answers.asking import MEMORY, Side
from benchmarks.answers.cases import cases
from benchmarks.answers.measure import KINDS, ROWS, Asked, Row, Settings, latency, latency_rows, quality, tuning
from benchmarks.answers.page import page
from benchmarks.answers.quality import CURVATURE, SCORED, UNKNOWN, VALIDATION
from benchmarks.common import RESULTS, ROOT, command_line, environment, read_results, write_json, write_page

from infoform.common.provenance import commit

PARTS = ("latency", "tune", "quality")
QUICK = Settings(quick=True, rounds=1, before_inputs=16, before_samples=5, limit=300.0)
Piece = tuple[str, str, Callable[[], Row]]  # part, name of the row, what measures it


def run(
    sides: Sequence[Side], settings: Settings, *, networks: Sequence[str], parts: Sequence[str], cifar: Path | None,
    path: Path, only: Sequence[str] = (),
) -> dict[str, Any]:  # fmt: skip
    """Measure the rows that the file does not have yet, and write each as soon as it is found."""
    found: dict[str, Any] = read_results(path.stem, empty={}) if path.parent == RESULTS else {}
    found["settings"] = {
        **asdict(settings), "peer_gigabytes": MEMORY, "curvature": CURVATURE, "validation": VALIDATION,
        "scored": SCORED, "unknown": UNKNOWN, "pictures": "made up" if cifar is None else "CIFAR-10",
    }  # fmt: skip
    found["commits"] = {side.name: commit(side.tree / "src") for side in sides if side.library == "infoform"}
    found["environment"] = environment()
    for network in networks:
        asked = Asked(network, sides, settings, cifar)
        for part, name, measure in _pieces(asked, parts, scored=cifar is not None):
            rows = found.setdefault(part, {}).setdefault(network, {})
            if name not in rows and (not only or name.partition(", ")[0] in only):
                begun = time.perf_counter()
                rows[name] = measure()
                head = found["commits"]["now"]  # a run may go on with another version than it began with
                found.setdefault("row_commits", {})[f"{network} {part} {name}"] = str(head)[:7]
                write_json(path, found)
                print(f"{network} {part} {name}: {rows[name]} ({time.perf_counter() - begun:.0f} s)", flush=True)
        asked.close()
    return found


def _pieces(asked: Asked, parts: Sequence[str], *, scored: bool) -> Iterator[Piece]:
    case = asked.case
    if "latency" in parts:
        for way, count in latency_rows(asked):
            yield "latency", f"{way}, {count}", partial(latency, asked, way, count)
    if "tune" in parts:
        for count in case.tuned:
            for kind in KINDS:
                yield "tune", f"{kind}, {count}", partial(tuning, asked, kind, count)
    if "quality" in parts and case.scored and scored:
        for row in [*ROWS, *(["peer last"] if "laplace-torch" in asked.workers else [])]:
            yield "quality", row, partial(quality, asked, row)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = command_line(__doc__)
    parser.add_argument("--before", type=Path, help="a checkout of another version, measured beside this one")
    parser.add_argument("--peers", type=Path, default=ROOT / ".venv-peers/bin/python", help="python of the peers")
    parser.add_argument("--cifar", type=Path, help="cifar10.npz")
    parser.add_argument("--networks", nargs="+", default=list(cases(False)))
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--again", nargs="+", choices=PARTS, default=(), help="parts of --networks to measure anew")
    parser.add_argument("--rows", nargs="+", default=(), help="only these ways, kinds or methods")
    parser.add_argument("--rounds", type=int, default=Settings().rounds)
    parser.add_argument("--quick", action="store_true", help="tiny networks, one round, no file of results")
    given = parser.parse_args(arguments)
    if not given.page:
        sides = [Side("now", Path(sys.executable))]
        if given.before is not None:
            sides.insert(0, Side("before", Path(sys.executable), given.before.resolve()))
        if given.peers.exists():
            sides.append(Side("laplace-torch", given.peers.absolute(), library="laplace-torch"))
        path = ROOT / "out" / "answers.json" if given.quick else RESULTS / "answers.json"
        known = read_results("answers", empty={})
        for part in given.again if not given.quick else ():
            for network in given.networks:
                known.get(part, {}).pop(network, None)
            write_json(path, known)
        settings = QUICK if given.quick else Settings(rounds=given.rounds)
        networks = [name for name in given.networks if name in cases(given.quick)]
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
        run(sides, settings, networks=networks, parts=given.parts, cifar=given.cifar, path=path, only=given.rows)
    if not given.quick and "latency" in read_results("answers", empty={}):
        write_page("answers", page())


if __name__ == "__main__":
    main()
