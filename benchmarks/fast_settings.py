"""What the faster ways to fit cost in accuracy: half-precision passes, and a basis from a part of the examples.

    python benchmarks/fast_settings.py      # writes benchmarks/results/fast_settings.json and docs/fast-settings.md

The demo's CNN on 400 digits, three seeds, all Fisher vectors (so that no random label differs), rank 100. Errors are
those of the information matrix against the exact block of each layer in float32: |off(Î − I)| / |off(I)| and
|diag(Î − I)| / |diag(I)|, Frobenius. Then the same network on all 1,797 digits, one Monte Carlo sample each, as a fit
takes them if not told otherwise: what it costs to leave examples of little energy out of the bases.
"""

import json
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from torch import Tensor, nn

import infoform
from infoform.demo.digits import DigitsSettings, load_digits_parts, train_classifier

ROOT = Path(__file__).parent
RESULTS, PAGE = ROOT / "results" / "fast_settings.json", ROOT.parent / "docs" / "fast-settings.md"
SEEDS = (0, 1, 2)
WAYS: dict[str, dict[str, Any]] = {
    "as it is": {},
    'autocast="bfloat16"': {"autocast": "bfloat16"},
    'autocast="float16"': {"autocast": "float16"},
    "basis_data=0.5": {"basis_data": 0.5},
    "basis_data=0.25": {"basis_data": 0.25},
}

FLOORS: dict[str, dict[str, Any]] = {
    "basis_floor=0": {"basis_floor": 0.0},
    "as it is": {},
    "basis_floor=0.5": {"basis_floor": 0.5},
}


def main() -> None:
    rows = [row for seed in SEEDS for row in (*errors(seed), *errors_of_floors(seed))]
    settings = {"seeds": SEEDS, "rank": 100, "digits": {"exact": 400, "mc": 1797}, "batch": 100}
    versions = {"infoform": infoform.__version__, "torch": torch.__version__}
    RESULTS.write_text(json.dumps({"settings": settings, "versions": versions, "rows": rows}, indent=1) + "\n")
    PAGE.write_text(page(rows))


def errors(seed: int) -> list[dict[str, Any]]:
    """Return a row for each way and layer, with all Fisher vectors."""
    settings = DigitsSettings(seed=seed)
    train, _, _ = load_digits_parts(settings)
    batches = list(train.images.split(100))
    return compare_ways(train_classifier(train, settings), batches, WAYS, seed=seed, fisher="exact")


def errors_of_floors(seed: int) -> list[dict[str, Any]]:
    """Return a row for each floor and layer, with one sampled Fisher vector an example."""
    settings = DigitsSettings(seed=seed)
    parts = load_digits_parts(settings)
    batches = list(torch.cat([part.images for part in parts]).split(100))
    return compare_ways(train_classifier(parts[0], settings), batches, FLOORS, seed=seed, fisher="mc")


def compare_ways(
    model: nn.Module, batches: list[Tensor], ways: dict[str, dict[str, Any]], *, seed: int, fisher: str
) -> list[dict[str, Any]]:
    exact = infoform.Laplace(model, "classification", structure="full", fisher=fisher).fit(batches, progress=False)
    rows = []
    for way, options in ways.items():
        laplace = infoform.Laplace(model, "classification", fisher=fisher, prior="isotropic", **options)
        laplace.fit(batches, progress=False)
        for name, layer in laplace.posterior(prior_precision=0.0, num_data=1.0).layers.items():
            block = exact.curvature[name].block
            assert block is not None
            off, diagonal = compared(layer.dense(), block)
            found = {"off_diagonal": off, "diagonal": diagonal}
            rows.append({"seed": seed, "fisher": fisher, "way": way, "layer": name, **found})
    return rows


def compared(found: Tensor, block: Tensor) -> tuple[float, float]:
    off = ~torch.eye(len(block), dtype=torch.bool)
    diagonal = float((found - block).diagonal().norm() / block.diagonal().norm())
    return float((found - block)[off].norm() / block[off].norm()), diagonal


def page(rows: list[dict[str, Any]]) -> str:
    lines = [
        "# What the faster ways to fit cost",
        "Made by `python benchmarks/fast_settings.py`; do not edit. The demo's CNN on 400 digits, means over "
        f"{len(SEEDS)} seeds, all Fisher vectors, rank 100. Each cell is the off-diagonal error of a layer's "
        "information matrix against its exact block in float32, and in brackets that of the diagonal.",
        "A basis from a quarter of 400 digits is one from 100: with more data a part tells more. `autocast` is for "
        "processors that are fast in half precision; on one that is not, it is slower.",
        table(rows, WAYS, fisher="exact"),
        "The same network on all 1,797 digits, with one Monte Carlo sample an example: what "
        "[leaving examples of little energy out of the bases](math.md#examples-that-matter) costs, as a fit does if "
        "not told otherwise.",
        table(rows, FLOORS, fisher="mc"),
    ]
    return "\n\n".join(lines) + "\n"


def table(rows: list[dict[str, Any]], ways: dict[str, dict[str, Any]], *, fisher: str) -> str:
    rows = [row for row in rows if row["fisher"] == fisher]
    layers = list(dict.fromkeys(row["layer"] for row in rows))
    lines = [f"| | {' | '.join(f'layer `{name}`' for name in layers)} |", f"|---|{'---:|' * len(layers)}"]
    for way in ways:
        cells = []
        for layer in layers:
            own = [row for row in rows if row["way"] == way and row["layer"] == layer]
            off, diagonal = (mean(row[key] for row in own) for key in ("off_diagonal", "diagonal"))
            cells.append(f"{off:.3f} ({diagonal:.1e})")
        shown = f"`{way}`" if ways[way] else way
        lines.append(f"| {shown} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
