"""The guide on unknown data shows the figures of the committed benchmark, also where novelty loses."""

import json
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCORES = ("novelty", "entropy", "entropy, last layer", "mutual information, last layer")
ROWS = {  # network in the results -> sets that the guide shows
    "resnet20": ("SVHN", "paintings", "ImageNet"),
    "resnet56": ("SVHN", "paintings", "ImageNet"),
    "mnist": ("notMNIST", "rotated"),
    "vgg": ("SVHN", "paintings", "ImageNet", "uniform noise"),
    "efficientnet": ("paintings", "uniform noise"),
    "mobilenet": ("paintings", "uniform noise"),
}


def _row(title: str, unknown: str, methods: dict[str, dict[str, dict[str, dict[str, float]]]]) -> str:
    found = [f"{methods[score]['sets'][unknown]['auroc']:.3f}" if score in methods else "" for score in SCORES]
    cells = [f"**{value}**" if value == max(found) else value for value in found]
    return f"| {title} | {unknown} | {' | '.join(cells)} |".replace("|  |", "| |").replace("|  |", "| |")


def test_the_table_is_that_of_the_results() -> None:
    networks = json.loads((ROOT / "benchmarks" / "results" / "novelty.json").read_text(encoding="utf-8"))["networks"]
    rows = [
        _row(networks[name]["title"], unknown, networks[name]["methods"])
        for name, sets in ROWS.items()
        for unknown in sets
    ]
    page = (ROOT / "docs" / "guides" / "unknown-data.md").read_text(encoding="utf-8")
    assert "\n".join(rows) in page
