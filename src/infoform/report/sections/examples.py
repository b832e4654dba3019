"""The examples worth looking at: most and least certain, wrong and yet sure, and unknown ones."""

from collections.abc import Mapping, Sequence

from infoform.records.examples import ChosenExamples, ClassAnswer, NumberAnswer, ShownExample
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
    result = run.evaluate
    if result is None:
        return None
    blocks = galleries(result.chosen, KINDS)
    for unknown in result.every_unknown:
        of = f" ({unknown.name})" if len(result.every_unknown) > 1 else ""
        blocks += galleries(unknown.chosen, {kind: (f"{title}{of}", says) for kind, (title, says) in UNKNOWN.items()})
    return Section("Which examples?", blocks) if blocks else None


def galleries(chosen: ChosenExamples | None, kinds: Mapping[str, tuple[str, str]]) -> list[Block]:
    """Return one gallery for each kind of example that there is."""
    if chosen is None:
        return []
    return [
        Gallery(title, says, [shown_example(example) for example in examples])
        for kind, (title, says) in kinds.items()
        if (examples := getattr(chosen, kind))
    ]


def shown_example(example: ShownExample, first: Sequence[str] = ()) -> Example:
    """Return one example: lines that come first, what was said of it, and what it looks like."""
    lines = [*first, *_answer(example)]
    if example.row is not None:
        lines += [f"{name} = {number(value, 3)}" for name, value in example.row.inputs.items()]
        if example.row.left_out:
            lines.append(f"and {example.row.left_out:,} more")
    mark = "" if example.right is None else "right" if example.right else "wrong"
    name = example.example
    return Example(f"example {name}" if name.isdigit() else name, lines, example.png or "", mark)


def _answer(example: ShownExample) -> list[str]:
    """Return what was predicted, and the truth where it is known."""
    if example.numbers is not None:
        lines = _numbers(example.numbers)
    elif example.classes is not None:
        lines = _classes(example.classes)
    else:
        lines = [f"entropy {number(example.entropy, 3)}"]
    if isinstance(example.target, str):
        lines.append(f"truth: {example.target}")
    elif example.target is not None:
        lines.append("truth " + ", ".join(number(value, 3) for value in example.target))
    return lines


def _classes(answer: ClassAnswer) -> list[str]:
    return [f"{name}: {percent(share)}" for name, share in answer.top if share >= SHOWN]


def _numbers(answer: NumberAnswer) -> list[str]:
    pairs = zip(answer.mean, answer.std, strict=True)
    return ["predicted " + ", ".join(f"{number(mean, 3)} ± {number(std, 2)}" for mean, std in pairs)]
