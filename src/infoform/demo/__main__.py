"""The demo, `python -m infoform.demo --out out/demo`: three tables, three pictures and results.json in about a minute.

A perceptron learns scikit-learn's digits and becomes over-confident: what it answers alone, with a temperature, with a
posterior of its last layer, and of all layers. A small CNN shows every structure of the paper from one fit of the
curvature. The toy regression of the paper shows the same in one dimension.
"""

import argparse
import json
import platform
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console
from rich.table import Table

from infoform.common.provenance import commit, peak_memory
from infoform.common.whole_files import write_text
from infoform.demo.answers import AnswersResult, run_answers
from infoform.demo.digits import POSTERIORS, DigitsResult, DigitsSettings, run_digits
from infoform.demo.figures import draw_reliability, draw_toy
from infoform.demo.front import draw_front
from infoform.demo.toy import ToySettings, run_toy
from infoform.version import __version__

NEEDED = {"sklearn": "scikit-learn", "matplotlib": "matplotlib"}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the demo with the arguments of the command line.

    Args:
        arguments: The arguments; if None, those of the process.

    Raises:
        SystemExit: If a package is missing or the folder cannot be written to.
    """
    parser = argparse.ArgumentParser(prog="python -m infoform.demo", description="Compare posteriors on digits.")
    parser.add_argument("--out", type=Path, default=Path("out/demo"), help="folder for pictures and results.json")
    parser.add_argument("--seed", type=int, default=0, help="of data, training and samples")
    given = parser.parse_args(arguments)
    missing = [package for module, package in NEEDED.items() if find_spec(module) is None]
    if missing:
        sys.exit(f"the demo needs {', '.join(missing)}, not installed here: pip install 'infoform[demo]'")
    try:
        given.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        sys.exit(f"--out must be a folder that can be written to, got '{given.out}': {error.strerror}.")
    run(DigitsSettings(seed=given.seed), ToySettings(seed=given.seed), out=given.out)


def run(digits_settings: DigitsSettings, toy_settings: ToySettings, *, out: Path) -> None:
    """Run both parts, print the tables, and write the pictures and results.json.

    Args:
        digits_settings: Settings of the digits.
        toy_settings: Settings of the toy regression.
        out: The folder to write to.
    """
    console = Console(width=110)
    start = time.perf_counter()
    answers = run_answers(digits_settings)
    _print_answers(answers, digits_settings, console)
    digits = run_digits(digits_settings)
    _print_digits(digits, digits_settings, console)
    toy = run_toy(toy_settings)
    draw_reliability(digits, digits_settings.calibration_bins, out / "reliability.png")
    draw_toy(toy, out / "toy_regression.png")
    write_text(out / "front.svg", draw_front(answers.rows))
    seconds = time.perf_counter() - start
    deviations = {name: float(values.mean()) for name, values in toy.deviations.items()}
    results = {
        "answers": {name: asdict(row) for name, row in answers.rows.items()},
        "note": answers.note,
        "digits": {name: asdict(row) for name, row in digits.rows.items()},
        "toy": {"noise": toy.noise, "mean_deviation": deviations},
        "settings": {"digits": asdict(digits_settings), "toy": asdict(toy_settings)},
        "seed": digits_settings.seed,
        "versions": {"python": platform.python_version(), "infoform": __version__}
        | {name: version(name) for name in ("torch", "numpy", *NEEDED.values())},
        "commit": commit(),
        "seconds": seconds,
        "peak_memory_bytes": peak_memory(),
    }
    write_text(out / "results.json", json.dumps(results, indent=2) + "\n")
    written = ", ".join(
        str(out / name) for name in ("front.svg", "reliability.png", "toy_regression.png", "results.json")
    )
    console.print(f"{seconds:.0f} s; wrote {written}", soft_wrap=True)


def _print_answers(result: AnswersResult, settings: DigitsSettings, console: Console) -> None:
    table = Table("", title=f"Answers about {result.test_examples} digits and {settings.unknown_examples} other images")
    for column in ("accuracy", "NLL", "ECE", "AUROC", "cost in forwards", "τ", "T"):
        table.add_column(column, justify="right")
    for name, row in result.rows.items():
        tau = "–" if row.prior_precision is None else f"{row.prior_precision:.2g}"
        scores = (f"{value:.3f}" for value in (row.accuracy, row.nll, row.ece, row.auroc))
        table.add_row(name, *scores, f"{row.forwards:.1f}", tau, f"{row.temperature:.2f}")
    console.print(table)
    console.print(
        f"τ and T by the NLL of {settings.validation_examples} validation images. AUROC: how well the entropy tells\n"
        f"digits from pieces of photographs, which the network was never shown. {result.note}"
    )


def _print_digits(result: DigitsResult, settings: DigitsSettings, console: Console) -> None:
    table = Table("", title="Structures of the posterior, on a small CNN")
    for column in ("accuracy", "NLL", "ECE", "τ", "T", "bytes", "off-diagonal error"):
        table.add_column(column, justify="right")
    for name, row in result.rows.items():
        errors = None if row.off_diagonal is None else list(row.off_diagonal.values())
        size = "–" if row.nbytes is None else f"{row.nbytes:,}"
        mean = "–" if errors is None else f"{sum(errors) / len(errors):.3f}"
        tau = "–" if row.prior_precision is None else f"{row.prior_precision:.2g}"
        scores = (f"{value:.3f}" for value in (row.accuracy, row.nll, row.ece))
        table.add_row(name, *scores, tau, f"{row.temperature:.2f}", size, mean)
    console.print(table)
    console.print(
        f"Predictions: mean of {settings.samples} networks with sampled weights. Infs at K = {settings.rank:.0%}."
    )
    table = Table("layer", title="Off-diagonal error by layer, |off(Î − I)| / |off(I)|")
    by_layer: dict[str, dict[str, float]] = {}
    for name, (structure, _) in POSTERIORS.items():  # the prior does not change these errors
        by_layer.setdefault(structure, result.rows[name].off_diagonal or {})
    for name in by_layer:
        table.add_column(name, justify="right")
    for layer in next(iter(by_layer.values())):
        table.add_row(layer, *(f"{errors[layer]:.3f}" for errors in by_layer.values()))
    console.print(table)


if __name__ == "__main__":
    main()
