"""The page docs/memory.md, from benchmarks/results/memory.json; measures nothing."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from infoform.pages.markdown import table
from infoform.pages.numbers import count_of, number, size

from .common import read_results, run_fold, template
from .transformer_plan import BLOCKS, HIDDEN, VOCABULARY, WIDTH

DEFAULT_CHUNK = "16MiB"
Row = Mapping[str, Any]


def page() -> str:
    """Return docs/memory.md."""
    found = read_results("memory")
    fits, transformer, where = found["fits"], found["transformer"], found["environment"]
    limited = [row for row in fits if row["budget_bytes"] is not None]
    inf = next(row for row in transformer["rows"] if row["structure"] == "inf, bfloat16")
    return template("memory").fill(
        kept=count_of(row["peak_bytes"] <= row["budget_bytes"] for row in limited),
        same=count_of(_is_same(row, fits) for row in limited),
        fits=_fits(fits),
        weights=f"{inf['weights'] / 1e9:.2f} · 10⁹",
        least_gpu=_least_gpu(inf, transformer),
        statistics=size(inf["statistics_bytes"]),
        posterior=size(inf["posterior_bytes"]),
        sizes=_sizes(transformer["rows"]),
        gpus=_gpus(transformer),
        blocks=BLOCKS,
        width=WIDTH,
        hidden=HIDDEN,
        vocabulary=VOCABULARY,
        parameters=f"{transformer['parameters'] / 1e9:.2f} billion",
        model=size(transformer["model_bytes"]),
        run=run_fold({name: value for name, value in where.items() if name != "versions"}, where["versions"]),
    )


def _fits(rows: Sequence[Row]) -> str:
    order = sorted(rows, key=lambda row: (rows.index(_whole(row, rows)), -(row["budget_bytes"] or math.inf)))
    lines = []
    for row in order:
        budget = row["budget_bytes"]
        kept = "–" if budget is None else "yes" if row["peak_bytes"] <= budget else "**no**"
        same = "–" if row is _whole(row, rows) else "yes" if _is_same(row, rows) else "**no**"
        network = f"{row['network']}, {row['structure']}, batch {row['batch']}"
        lines.append(
            [
                network + ("" if row["chunk"] == DEFAULT_CHUNK else f", chunk {row['chunk']}"),
                row["max_memory"] or "none",
                str(row["groups"]),
                size(row["planned_peak_bytes"]),
                size(row["peak_bytes"]),
                kept,
                same,
                f"{row['seconds']:.0f} s",
            ]
        )
    head = ["network", "max_memory", "groups", "planned peak", "measured peak", "kept", "same", "time"]
    return table(head, lines)


def _whole(row: Row, rows: Sequence[Row]) -> Row:
    """Return the same fit without a budget."""
    names = ("network", "images", "batch", "structure", "chunk")
    return next(one for one in rows if all(one[name] == row[name] for name in names))


def _is_same(row: Row, rows: Sequence[Row]) -> bool:
    return bool(row["digest"] == _whole(row, rows)["digest"])


def _sizes(rows: Sequence[Row]) -> str:
    lines = [
        [
            row["structure"],
            f"{row['weights'] / 1e9:.2f} · 10⁹",
            size(row["posterior_bytes"]),
            size(row["statistics_bytes"]),
        ]
        for row in rows
    ]
    return table(["structure", "weights", "posterior", "statistics of a fit"], lines)


def _gpus(transformer: Row) -> str:
    lines = []
    for row in transformer["rows"]:
        for tokens in transformer["tokens"]:
            whole, *parted = (one for one in row["fits"] if one["tokens"] == tokens)
            cells = [size(whole["peak_bytes"]), number(whole["cost"]), *map(_fit_cell, parted)]
            lines.append([row["structure"], f"{tokens:,}", *cells])
    gpus = [f"{one} GB" for one in transformer["gpus"]]
    return table(["structure", "tokens", "peak of one group", "cost", *gpus], lines)


def _fit_cell(one: Row) -> str:
    if "refused" in one:
        return "no"
    groups = f"{one['groups']} group" + ("s" if one["groups"] > 1 else "")
    return f"{groups}, {number(one['cost'])} passes"


def _least_gpu(row: Row, transformer: Row) -> str:
    """Say on which GPU sequences of the fewest and of the most tokens fit."""
    told = []
    for tokens in (transformer["tokens"][0], transformer["tokens"][-1]):
        gpu = next((one["gpu"] for one in row["fits"] if one["tokens"] == tokens and one.get("groups")), None)
        where = f"one GPU of {gpu} GB" if gpu else f"no GPU of up to {transformer['gpus'][-1]} GB"
        told.append(f"{where} with sequences of {tokens:,} tokens")
    return " and on ".join(told)
