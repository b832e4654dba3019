"""The page docs/memory.md, from benchmarks/results/memory.json; measures nothing."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .speed.tables import number, size, table

INTRODUCTION = """# Memory

Made by `python -m benchmarks.memory --page` from `benchmarks/results/memory.json`; do not edit.

A fit holds, beside model and data: what a backward pass saves of a batch (activations), patches and per-example
gradients of one layer at a time (`chunk`), and the running sums of all layers. Settings that bound it:

| setting | bounds | costs |
|---|---|---|
| smaller batches | activations, in proportion | speed where batches get very small; the result is the same |
| `Laplace(..., chunk="4MiB")` | patches and gradients; one example of a layer is the least | speed |
| `fit(..., max_memory="500MB")` | all of it: as many layers at a time as it holds | passes for each group of layers |
| `fit(..., offload="folder")`, or a device | finished statistics, memory-mapped in a folder | reading them later |
| `fit(..., device="cuda")` | the work goes to that device, with a copy of the weights; the model stays where it is | |
| `storage="bfloat16"`, `rank`, `layers` | the posterior itself | see [planning](planning.md) |

`max_memory` is kept by estimate: the first batch is run once, what autograd saves from each layer on is counted, and
the sums, buffers and eigendecompositions are known from the sizes ([planning](planning.md) tells the same before a
fit). Layers are taken in the order of their calls, so that later groups do not hold earlier activations. A layer's
gradients and random numbers do not depend on the other layers of its group: the result is that of one fit, bit for bit
(`tests/test_grouping.py`), also with `update=True`, `basis_data` and `checkpoint`; several processes part layers alike.
A budget that does not hold the largest layer is refused with the bytes that it needs, and so is a loader that can be
read once only.

`offload="cpu"` with a model on a GPU leaves the posterior on the CPU: samples come from there, and
`laplace.weights` puts them beside the model's own. The device settings are written for any device of torch; they are
tested on CPUs, the only devices of the machine that this page comes from.
"""


def write_page(found: Mapping[str, Any], path: Path) -> None:
    where, versions = found["environment"], found["environment"]["versions"]
    text = [
        INTRODUCTION,
        f"{where['date']}, commit {where['commit']}; {where['cpus']} × {where['cpu'] or where['machine']}, "
        f"{where['threads']} threads; torch {versions['torch']}, pytorchcv {versions['pytorchcv']}.\n",
        *_fits(found["fits"]),
        *_transformer(found["transformer"]),
    ]
    path.write_text("\n".join(text))


def _fits(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield "## Measured: peaks within a budget\n"
    yield (
        "Peak memory of `fit` above model and data, each in a process of its own (high-water mark of resident memory; "
        "the C library gives freed memory back at once). Images of 224², 1,000 classes. Fits with a budget off-load to "
        "a folder. *Same* compares a checksum over all that was measured with that of the fit without a budget.\n"
    )
    lines = []
    for row in rows:
        first = next(one for one in rows if _kind(one) == _kind(row))
        budget = row["budget_bytes"]
        kept = "–" if budget is None else "yes" if row["peak_bytes"] <= budget else "**no**"
        same = "–" if row is first else "yes" if row["digest"] == first["digest"] else "**no**"
        network = f"{row['network']}, {row['structure']}, batch {row['batch']}"
        lines.append(
            [
                network + ("" if row["chunk"] == "16MiB" else f", chunk {row['chunk']}"),
                row["max_memory"] or "none",
                row["groups"],
                size(row["planned_peak_bytes"]),
                size(row["peak_bytes"]),
                kept,
                same,
                f"{row['seconds']:.0f} s",
            ]
        )
    head = ["network", "max_memory", "groups", "planned peak", "measured peak", "kept", "same", "time"]
    yield table(head, lines) + "\n"
    yield "The time is of one run on a busy machine, for the order of magnitude alone.\n"


def _kind(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("network", "images", "batch", "structure", "chunk"))


def _transformer(found: Mapping[str, Any]) -> Iterator[str]:
    yield "## On paper: a transformer of 7 billion weights\n"
    yield (
        "Llama's sizes: 32 blocks, d = 4096, feed-forward 11008, vocabulary 32000; "
        f"{found['parameters'] / 1e9:.2f} billion parameters, {size(found['model_bytes'])} in bfloat16. By "
        "`python -m benchmarks.transformer_plan`: the model is made on the meta device, `infoform.plan` runs it there, "
        "and nothing is measured. Outputs are the logits of the next token, a batch is one sequence, statistics are in "
        "float32. Embeddings and norms have no rule and stay fixed.\n"
    )
    rows = found["rows"]
    yield (
        table(
            ["structure", "weights", "posterior", "statistics of a fit"],
            [
                [
                    row["structure"],
                    f"{row['weights'] / 1e9:.2f} · 10⁹",
                    size(row["posterior_bytes"]),
                    size(row["statistics_bytes"]),
                ]
                for row in rows
            ],
        )
        + "\n"
    )
    yield (
        'A fit on one GPU, with `max_memory=` the GPU\'s memory less the model and `offload="cpu"`: groups of layers, '
        "and the cost in gradient passes over the same data, by flops. The first columns are a fit without a budget.\n"
    )
    lines = []
    for row in rows:
        for tokens in found["tokens"]:
            fits = [one for one in row["fits"] if one["tokens"] == tokens]
            whole = fits[0]
            cells = [_fit_cell(one) for one in fits[1:]]
            lines.append([row["structure"], f"{tokens:,}", size(whole["peak_bytes"]), number(whole["cost"]), *cells])
    gpus = [f"{one} GB" for one in found["gpus"]]
    yield table(["structure", "tokens", "peak of one group", "cost", *gpus], lines) + "\n"
    yield _conclusion(found)


def _fit_cell(one: Mapping[str, Any]) -> str:
    if "refused" in one:
        return "no"
    groups = f"{one['groups']} group" + ("s" if one["groups"] > 1 else "")
    return f"{groups}, {number(one['cost'])} passes"


def _conclusion(found: Mapping[str, Any]) -> str:
    inf = next(row for row in found["rows"] if row["structure"] == "inf, bfloat16")
    short, long = found["tokens"][0], found["tokens"][-1]
    least = {
        tokens: next((one["gpu"] for one in inf["fits"] if one["tokens"] == tokens and one.get("groups")), None)
        for tokens in (short, long)
    }
    told = "; ".join(
        f"{tokens:,} tokens: " + (f"one GPU of {gpu} GB" if gpu else f"more than {found['gpus'][-1]} GB")
        for tokens, gpu in least.items()
    )
    return (
        f"What gets there, for all {inf['weights'] / 1e9:.2f} · 10⁹ weights of linear layers ({told}): "
        '`Laplace(model, "classification", storage="bfloat16").fit(loader, max_memory=..., offload="cpu")`, with '
        f'{size(inf["statistics_bytes"])} of the host\'s memory, or of a disk with `offload="folder"`, for what is '
        f"measured, and a posterior of at most {size(inf['posterior_bytes'])}. More GPUs make it faster, not smaller: "
        "every process holds the whole model and its group's sums, and reads its part of the data, so that k GPUs take "
        "about 1/k of the passes' time. Of a backward pass activations are most, and no setting here but shorter "
        "sequences or fewer `layers` (the last blocks, the head) makes them smaller. On "
        "the meta device attention is counted as its plain form saves it; fused kernels save less.\n"
    )
