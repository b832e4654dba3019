"""What to label next, and why, as `infoform acquire` chose it."""

from collections.abc import Sequence

from infoform.records import AcquireResult
from infoform.report.blocks import Section, Table, Text
from infoform.report.inputs import Run
from infoform.report.words import counted, number

SHOWN = 50  # inputs
MEASURES = {"variance": "variance that comes from not knowing the weights", "mutual_information": "mutual information"}


def section(run: Run) -> Section | None:
    result = run.acquire
    if result is None:
        return None
    source = run.option("acquire", "data") or "the pool"
    text = (
        f"Of '{source}' these {counted(len(result.chosen), 'input')} would tell most about the weights, by the "
        f"{MEASURES.get(result.by, result.by)}. The score of each is less what the labels before it would tell."
    )
    head = ["", "example"] + [name for name, values in _columns(result).items() if values is not None]
    rows = [
        (
            str(place + 1),
            result.examples[place],
            *(_shown(values[place]) for values in _columns(result).values() if values is not None),
        )
        for place in range(min(SHOWN, len(result.chosen)))
    ]
    more = f"; the first {SHOWN} of {len(result.chosen):,}" if len(result.chosen) > SHOWN else ""
    return Section("What should be labelled next?", [Text(text), Table(head, rows, title=f"Label these{more}")])


def _columns(result: AcquireResult) -> dict[str, Sequence[float] | Sequence[str] | None]:
    return {"score": result.scores, "answer": result.answers, "why": result.reasons}


def _shown(value: float | str) -> str:
    return number(value, 3)
