"""How it was made: options, versions, commit, notes; enough to do it again."""

from typing import Any

import yaml

from infoform.report.blocks import Block, Fold, Section, Table, Text
from infoform.report.inputs import Run
from infoform.report.words import MISSING, number, precision, size


def section(run: Run) -> Section:
    blocks: list[Block] = []
    notes = [f"{verb}: {note}" for verb, record in run.records.items() for note in record["notes"]]
    blocks += [Text(note, "warning") for note in notes]
    if run.fit:
        blocks.append(Table(("", ""), _settings(run)))
    blocks.append(
        Table(
            ("step", "when", "seconds", "peak memory", "infoform", "commit"),
            [_step(verb, record) for verb, record in run.records.items()],
            title="Steps",
        )
    )
    for verb, record in run.records.items():
        text = yaml.safe_dump(record["options"], sort_keys=False, allow_unicode=True)
        versions = ", ".join(f"{name} {number}" for name, number in record.get("versions", {}).items())
        blocks.append(Fold(f"Options of 'infoform {verb}'", code=f"{text}# {versions}\n"))
    held = [row for row in run.fit.get("coverage", []) if row["structure"] is None]
    if held:
        rows = [(row["parameter"], "×".join(map(str, row["shape"])), row["reason"]) for row in held]
        blocks.append(Fold("Parameters held fixed", [Table(("parameter", "shape", "why"), rows)]))
    return Section("How it was made", blocks)


def _settings(run: Run) -> list[tuple[str, str]]:
    fit, settings = run.fit, run.fit["settings"]
    last = {**fit, **run.result("tune")}
    rows = [
        ("network", str(fit["model"].get("model", MISSING))),
        ("its weights", str(fit["model"].get("weights") or "as the function gives them")),
        ("training data", str(fit["data"]["source"])),
        ("examples", number(int(fit["num_data"]))),
        ("kind of task", fit["likelihood"]),
        ("structure", settings["structure"]),
        ("rank", number(settings["rank"])),
        ("prior", fit["prior"]),
        ("prior precision τ", precision(last["prior_precision"])),
    ]
    if last.get("noise") is not None:
        rows.append(("noise", number(last["noise"])))
    for verb in ("tune", "evaluate", "predict"):
        options = run.records.get(verb, {}).get("options", {})
        if options.get("data"):
            rows.append((f"data of {verb}", str(options["data"])))
        if options.get("unknown"):
            rows.append(("unknown data", str(options["unknown"])))
    return rows


def _step(verb: str, record: Any) -> tuple[str, ...]:
    versions = record.get("versions", {})
    return (
        verb,
        str(record["began"]).replace("T", " ").removesuffix("+00:00") + " UTC",
        f"{record['seconds']:.1f}",
        size(record.get("peak_memory_bytes")),
        str(versions.get("infoform", MISSING)),
        str(record.get("commit") or MISSING),
    )
