"""The page of benchmarks/minilm.py: a trained language model, a new head, and texts of another kind."""

from typing import Any

from benchmarks.common import read_results, run_fold, template

from infoform.pages.markdown import table


def page() -> str:
    """Return docs/minilm.md."""
    found = read_results("minilm")
    rows: dict[str, Any] = found["rows"]
    whole = rows["head and last block"]
    kinds = list(found["unknown"])
    lines = [
        [
            name,
            f"{one['accuracy']:.1%}",
            f"{one['nll']:.3f}",
            f"{one['ece']:.3f}",
            *(f"{one['entropy_auroc'][kind]:.3f}" for kind in kinds),
            *(f"{one['novelty'][kind]['auroc']:.3f}" if "novelty" in one else "" for kind in kinds),
        ]
        for name, one in rows.items()
    ]
    costs = [
        [
            name,
            f"{one['parameters']:,}",
            f"{one['bytes'] / 1e6:.2f} MB",
            f"{one['fit_cpu_seconds'] / found['head_cpu_seconds']:.1f}",
            f"{one['tune_cpu_seconds'] / found['head_cpu_seconds']:.1f}",
        ]
        for name, one in rows.items()
        if "bytes" in one
    ]
    headings = [f"{what}: {kind}" for what in ("entropy", "novelty") for kind in kinds]
    return template("minilm").fill(
        plain=f"{rows['network alone']['nll']:.3f}",
        heated=f"{rows['network with a temperature']['nll']:.3f}",
        posterior=f"{whole['nll']:.3f}",
        novelty=" and ".join(f"{whole['novelty'][kind]['auroc']:.2f} ({kind})" for kind in kinds),
        entropy=" and ".join(f"{rows['network alone']['entropy_auroc'][kind]:.2f}" for kind in kinds),
        caught=" and ".join(f"{whole['novelty'][kind]['called_novel']:.0%} of the {kind}" for kind in kinds),
        alarms=f"{whole['false_alarms']:.0%}",
        scores=table(["", "accuracy", "NLL", "ECE", *headings], lines),
        costs=table(["posterior over", "parameters", "bytes", "fit", "tuning"], costs),
        train=found["texts"]["train"],
        validation=found["texts"]["validation"],
        test=found["texts"]["test"],
        unknown=next(iter(found["unknown"].values())),
        packages=", ".join(found["packages"]),
        tokens=found["tokens"],
        parameters=f"{found['parameters'] / 1e6:.1f}",
        notes=" ".join(f"*{name}*: {one['note']}" for name, one in rows.items() if one.get("note")) or None,
        run=run_fold({"texts": found["texts"], "tokens": found["tokens"]}, found["versions"]),
    )
