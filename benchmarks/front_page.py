"""The picture and the table of the front page (docs/index.md and README.md), from committed results.

    python -m infoform.demo --out out/demo
    python -m benchmarks.front_page out/demo/results.json     # keeps the demo's results, and does what follows
    python -m benchmarks.front_page

draws docs/images/front.svg as the demo draws it, from benchmarks/results/demo.json, and writes the table between two
marks of both pages: the scores of a public network from results/cifar10-resnet.json, and what an answer costs from
benchmarks/results/answers.json. Nothing is measured here.
"""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT, read_results, write_results

from infoform.demo.answers import AnswerRow
from infoform.demo.front import draw_front
from infoform.experiments.public_resnets.settings import ALL_LAYERS, NOVEL, PLAIN, TEMPERATURE
from infoform.pages.markdown import table
from infoform.records.study_result import Result

SCORES = ROOT / "results" / "cifar10-resnet.json"
PICTURE = ROOT / "docs" / "images" / "front.svg"
PAGES = (ROOT / "docs" / "index.md", ROOT / "README.md")
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
NETWORK, DEPTH, BATCH = "resnet20", 20, 128
UNKNOWN = "SVHN"
ROWS = {  # row of the table -> rows of the scores and of the costs
    "network alone": (PLAIN, None),
    "temperature scaling": (TEMPERATURE, "temperature"),
    "infoform, last layer": (NOVEL, "last"),
    "infoform, all layers": (ALL_LAYERS, "linear"),
}


def main() -> None:
    """Draw the picture and write the table into both pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="?", help="results.json of a run of the demo, to keep")
    given = parser.parse_args().results
    if given is not None:
        write_results("demo", json.loads(given.read_text(encoding="utf-8")))
    PICTURE.write_text(picture(), encoding="utf-8")
    for page in PAGES:
        head, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
        page.write_text(f"{head}{BEGIN}\n\n{measured()}\n\n{END}{rest.partition(END)[2]}", encoding="utf-8")


def measured() -> str:
    """Return the table of the front page, as Markdown."""
    scores = Result.load(SCORES).pieces
    costs = read_results("answers")["latency"][NETWORK]
    lines = []
    for title, (row, cost) in ROWS.items():
        found = scores[f"{row} {DEPTH}"]
        by_sign = found["apart"][UNKNOWN]
        lines.append(
            [
                title,
                *(f"{found[key]:.3f}" for key in ("nll", "ece")),
                *(f"{by_sign[sign]['auroc']:.3f}" if sign in by_sign else "–" for sign in ("entropy", "novelty")),
                "1" if cost is None else _cost(costs[f"{cost}, {BATCH}"]),
            ]
        )
    titles = ["NLL", "calibration error", "AUROC, entropy", "AUROC, novelty", "cost"]
    return table(["ResNet-20, CIFAR-10", *titles], lines)


def picture() -> str:
    """Return the picture as SVG, as the demo draws it."""
    rows = {name: AnswerRow(**row) for name, row in read_results("demo")["answers"].items()}
    return draw_front(rows)


def _cost(sides: Mapping[str, Any]) -> str:
    return f"{sides['now']['forwards']:.1f}"


if __name__ == "__main__":
    main()
