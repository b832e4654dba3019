"""How the run was made: options, versions, commit and notes, enough to make it again."""

from collections import Counter
from typing import Any

import yaml

from infoform.records import FitResult, VerbRecord
from infoform.report.blocks import Block, Fold, Section, Table, Text
from infoform.report.inputs import Run
from infoform.report.words import MISSING, number, precision, size


def section(run: Run) -> Section:
    blocks: list[Block] = []
    notes = [f"{verb}: {note}" for verb, record in run.records.items() for note in record.notes]
    blocks += [Text(note, "warning") for note in notes]
    if run.fit is not None:
        blocks.append(Table(("", ""), _settings(run, run.fit)))
    blocks.append(
        Table(
            ("step", "when", "seconds", "peak memory", "infoform", "commit"),
            [_step(verb, record) for verb, record in run.records.items()],
            title="Steps",
        )
    )
    for verb, record in run.records.items():
        text = yaml.safe_dump(dict(record.options), sort_keys=False, allow_unicode=True)
        versions = ", ".join(f"{name} {number}" for name, number in record.versions.items())
        blocks.append(Fold(f"Options of 'infoform {verb}'", code=f"{text}# {versions}\n"))
    fixed = [] if run.fit is None else [row for row in run.fit.coverage if row.structure is None]
    if fixed:
        rows = [(row.parameter, "×".join(map(str, row.shape)), row.reason) for row in fixed]
        blocks.append(Fold("Parameters held fixed", [Table(("parameter", "shape", "why"), rows)]))
    return Section("How it was made", blocks)


def _settings(run: Run, fit: FitResult) -> list[tuple[str, str]]:
    rows = [
        ("network", fit.model.model),
        ("its weights", fit.model.weights or "as the function gives them"),
        ("training data", fit.data.source),
        ("examples", number(int(fit.num_data))),
        ("kind of task", fit.likelihood),
        ("structure", _structure(fit)),
        ("rank", number(fit.settings.rank)),
        ("prior", fit.prior),
        ("prior precision τ", precision(run.prior_precision)),
    ]
    if run.noise is not None:
        rows.append(("noise", number(run.noise)))
    for verb in ("tune", "evaluate", "predict"):
        data, unknown = run.option(verb, "data"), run.option(verb, "unknown")
        rows += [(f"data of {verb}", data)] if data else []
        rows += [("unknown data", unknown)] if unknown else []
    return rows


def _structure(fit: FitResult) -> str:
    """Return the name of the structure and, where layers have several, how many have each."""
    by_layer = {row.layer: row.structure for row in fit.coverage if row.structure is not None}
    count = Counter(by_layer.values())
    if set(count) == {fit.settings.structure}:
        return fit.settings.structure
    told = ", ".join(f"{name} in {layers}" for name, layers in count.most_common())
    return f"{fit.settings.structure} ({told} layers)" if told else fit.settings.structure


def _step(verb: str, record: VerbRecord[Any]) -> tuple[str, ...]:
    return (
        verb,
        record.began.replace("T", " ").removesuffix("+00:00") + " UTC",
        f"{record.seconds:.1f}",
        size(record.peak_memory_bytes),
        record.versions.get("infoform", MISSING),
        record.commit or MISSING,
    )
