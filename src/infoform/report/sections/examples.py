"""The examples worth looking at: most and least certain, wrong and yet sure, and unknown ones."""

from collections.abc import Mapping, Sequence
from typing import Any

from infoform.report.blocks import Block, Example, Gallery, Section
from infoform.report.inputs import Run
from infoform.report.words import number, percent

KINDS = {
    "least_certain": ("Least certain", "It says itself that these are hard."),
    "most_certain": ("Most certain", "Here it has no doubt."),
    "confidently_wrong": (
        "Wrong, and sure of it",
        "The mistakes made with most confidence: look for wrong labels too.",
    ),
    "farthest_off": ("Farthest off", "The truth lies farthest from the prediction, measured by its own spread."),
}
SHOWN = 0.0005  # less would be told as 0.0 %
UNKNOWN = {
    "most_certain": ("Unknown, yet most certain", "Data of another kind that it takes for something it knows."),
    "least_certain": ("Unknown, and least certain", "Data of another kind that it is most suspicious of."),
}


def section(run: Run) -> Section | None:
    found = run.result("evaluate")
    blocks: list[Block] = galleries(found, KINDS) + galleries(found.get("unknown", {}), UNKNOWN)
    return Section("Which examples?", blocks) if blocks else None


def galleries(found: Mapping[str, Any], kinds: Mapping[str, tuple[str, str]]) -> list[Block]:
    """Return one gallery for each kind of example that there is."""
    return [
        Gallery(title, says, [_example(one) for one in found[key]])
        for key, (title, says) in kinds.items()
        if found.get(key)
    ]


def _example(one: Mapping[str, Any]) -> Example:
    lines = _regression(one) if "mean" in one else _classes(one)
    if "inputs" in one:
        lines += [f"{name} = {number(value, 3)}" for name, value in one["inputs"].items()]
        if one.get("left_out"):
            lines.append(f"and {one['left_out']:,} more")
    mark = "" if "right" not in one else "right" if one["right"] else "wrong"
    name = str(one["example"])
    return Example(f"example {name}" if name.isdigit() else name, lines, one.get("png", ""), mark)


def _classes(one: Mapping[str, Any]) -> list[str]:
    if "top" not in one:
        return [f"entropy {number(one['entropy'], 3)}"]
    lines = [f"{name}: {percent(share)}" for name, share in one["top"] if share >= SHOWN]
    if "target" in one:
        lines.append(f"truth: {one['target']}")
    return lines


def _regression(one: Mapping[str, Any]) -> list[str]:
    pairs = zip(one["mean"], one["std"], strict=True)
    lines = ["predicted " + ", ".join(f"{number(mean, 3)} ± {number(std, 2)}" for mean, std in pairs)]
    if "target" in one:
        truths: Sequence[float] = one["target"]
        lines.append("truth " + ", ".join(number(value, 3) for value in truths))
    return lines
