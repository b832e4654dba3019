"""The command line; see the package's docstring."""

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ..common import DOCS, RESULTS, ROOT
from .growth import EXAMPLES, QUICK_EXAMPLES, QUICK_WIDTHS, WIDTHS, with_examples, with_width
from .memory import measure_peak, peak_in_child, statistics_bytes
from .methods import METHODS, OURS, PLAIN, Method
from .networks import FULL, Network, networks
from .page import write_page
from .peers import PEERS
from .posteriors import ROUNDS, measure_posteriors
from .results import Results
from .timing import Limits, interleave, why_not

STAGES = ("fits", "peaks", "posteriors", "growth")
ALL = METHODS | PEERS


def main() -> None:
    asked = read_arguments()
    limits = Limits(asked.memory, asked.seconds, asked.enough)
    table = networks(asked.quick, asked.examples)
    if asked.peak_of is not None:
        method = PLAIN if asked.peak_of == "plain" else ALL[asked.peak_of]
        found = measure_peak(table[asked.networks[0]], method, limits)
        found["statistics_bytes"] = statistics_bytes(table[asked.networks[0]], asked.peak_of)
        print(json.dumps(found))
        return
    folder = ROOT / "out" / "speed" if asked.quick else RESULTS
    results = Results(asked.results or folder / "speed.json")
    if not asked.page:
        results.begin({key: value for key, value in vars(asked).items() if key not in ("results", "page", "peak_of")})
        for stage in asked.stages:
            {"fits": fits, "peaks": peaks, "posteriors": posteriors, "growth": growth}[stage](asked, limits, results)
    if not results.rows:
        raise SystemExit(f"{results.path.name} holds no rows to make a page of; run without --page first.")
    write_page(results, ROOT / "out" / "speed" if asked.quick or asked.results else DOCS, table)


def fits(asked: argparse.Namespace, limits: Limits, results: Results) -> None:
    for name, network, methods in _asked(asked, results, "fits"):
        if not methods:
            continue
        model, batches = network.build()
        repeats = asked.repeats or network.repeats
        about = {"examples": network.examples, "batch": network.batch}
        for method, timed in interleave(methods, model, batches, repeats=repeats, limits=limits, say=_saying(name)):
            results.add("fits", name, method, None, about | timed.row())


def peaks(asked: argparse.Namespace, limits: Limits, results: Results) -> None:
    for name, network, methods in _asked(asked, results, "peaks"):
        plain = () if asked.missing and results.has("peaks", name, "plain") else ("plain",)
        if asked.quick:  # starting a process is what takes the time here: one peer a library will do
            seen = {methods[name].library: name for name in reversed(methods)}
            methods = {name: one for name, one in methods.items() if name in OURS or seen[one.library] == name}
        for method in (*plain, *methods):
            options = ["--peak-of", method, "--networks", name, "--memory", str(limits.memory)]
            options += ["--seconds", str(limits.seconds), "--examples", str(network.examples)]
            found = peak_in_child(options + ["--quick"] * asked.quick, limits)
            _say(f"{name}: peak of {method}: {found}")
            results.add("peaks", name, method, None, {"examples": network.examples} | found)


def posteriors(asked: argparse.Namespace, limits: Limits, results: Results) -> None:
    for name, network, methods in _asked(asked, results, "posteriors"):
        ours = {method: OURS[method] for method in methods if method in OURS}
        if not ours:
            continue
        rounds = 2 if asked.quick else ROUNDS
        for method, row in measure_posteriors(
            network, {"diag": OURS["diag"]} | ours, rounds=rounds, say=_saying(name)
        ).items():
            results.add("posteriors", name, method, None, row)


def growth(asked: argparse.Namespace, limits: Limits, results: Results) -> None:
    repeats = asked.repeats or (1 if asked.quick else 3)
    how: dict[str, Any] = {"repeats": repeats, "limits": limits}

    def left(stage: str, network: str, size: int) -> dict[str, Method]:
        ours = {name: METHODS[name] for name in asked.methods if name in METHODS}
        return {name: ours[name] for name in ours if not (asked.missing and results.has(stage, network, name, size))}

    for size in QUICK_EXAMPLES if asked.quick else EXAMPLES:
        methods = left("examples", "mlp", size)
        if methods:
            mlp, say = networks(asked.quick)["mlp"], _saying(f"{size} examples")
            for method, row in with_examples(mlp, size, methods, say=say, **how).items():
                results.add("examples", "mlp", method, size, row)
    for size in QUICK_WIDTHS if asked.quick else WIDTHS:
        methods = left("width", "linear", size)
        if methods:
            for method, row in with_width(size, methods, say=_saying(f"width {size}"), **how).items():
                results.add("width", "linear", method, size, row)


def _asked(asked: argparse.Namespace, results: Results, stage: str) -> Iterator[tuple[str, Network, dict[str, Method]]]:
    """Give each network with the methods to measure on it, and say which are left out."""
    for name, network in networks(asked.quick, asked.examples).items():
        if name not in asked.networks or stage not in network.stages:
            continue
        methods = {}
        for method in asked.methods:
            reason = why_not(ALL[method], name)
            if reason is not None:
                if stage == "fits":
                    _say(f"{name}: {method} left out: {reason}")
                    results.add("fits", name, method, None, {"skipped": reason})
            elif not (asked.missing and results.has(stage, name, method)):
                methods[method] = ALL[method]
        yield name, network, methods


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed", description=__doc__)
    add = parser.add_argument
    add("--networks", nargs="+", choices=FULL, default=list(FULL), metavar="NAME", help=", ".join(FULL))
    add("--methods", nargs="+", choices=ALL, default=list(ALL), metavar="NAME", help="; ".join(ALL))
    add("--stages", nargs="+", choices=STAGES, default=list(STAGES), metavar="NAME", help=", ".join(STAGES))
    add("--repeats", type=int, help="runs of each method (5 for small networks, 3 for large ones)")
    add("--examples", type=int, help="another number of examples, for every network")
    add("--memory", type=float, default=12.0, help="gigabytes at which a method is given up (12)")
    add("--seconds", type=float, default=3600.0, help="seconds after which a run is given up (3600)")
    add("--enough", type=float, default=600.0, help="seconds of a method's runs after which it is not repeated (600)")
    add("--quick", action="store_true", help="tiny networks in place of all, into out/speed")
    add("--missing", action="store_true", help="measure only what the results do not hold yet")
    add("--page", action="store_true", help="write the page from the results and run nothing")
    add("--results", type=Path, help="another JSON than benchmarks/results/speed.json; its page goes to out/speed")
    add("--peak-of", help=argparse.SUPPRESS)
    return parser.parse_args()


def _say(text: str) -> None:
    print(text, flush=True)


def _saying(about: str) -> Callable[[str], None]:
    return lambda text: _say(f"{about}: {text}")


if __name__ == "__main__":
    main()
