"""What the faster ways to fit cost in accuracy: half-precision passes, and a basis from a part of the examples.

    python -m benchmarks.fast_settings             # writes benchmarks/results/fast_settings.json
    python -m benchmarks.fast_settings --page      # writes docs/fast-settings.md from it, runs nothing

The demo's CNN on 400 digits, three seeds, all Fisher vectors (so that no random label differs), rank 100. Errors are
those of the information matrix against the exact block of each layer in float32: |off(Î − I)| / |off(I)| and
|diag(Î − I)| / |diag(I)|, Frobenius. Then the same network on all 1,797 digits, one Monte Carlo sample each, as a fit
takes them if not told otherwise: what it costs to leave examples of little energy out of the bases.
"""

from collections.abc import Iterable, Mapping, Sequence
from statistics import mean
from typing import Any

import torch
from benchmarks.common import (
    command_line,
    laplace_of,
    read_results,
    run_fold,
    template,
    versions,
    write_page,
    write_results,
)
from torch import Tensor, nn

from infoform.demo.digits import DigitsSettings, load_digits_parts, train_classifier
from infoform.pages.markdown import table
from infoform.pages.numbers import span

SEEDS = (0, 1, 2)
WHOLE = "as it is"
WAYS: dict[str, dict[str, Any]] = {
    WHOLE: {},
    'autocast="bfloat16"': {"autocast": "bfloat16"},
    'autocast="float16"': {"autocast": "float16"},
    "basis_data=0.5": {"basis_data": 0.5},
    "basis_data=0.25": {"basis_data": 0.25},
}

FLOORS: dict[str, dict[str, Any]] = {
    "basis_floor=0": {"basis_floor": 0.0},
    WHOLE: {},
    "basis_floor=0.5": {"basis_floor": 0.5},
}


def main() -> None:
    if not command_line(__doc__).parse_args().page:
        rows = [row for seed in SEEDS for row in (*errors(seed), *errors_of_floors(seed))]
        settings = {"seeds": SEEDS, "rank": 100, "digits": {"exact": 400, "mc": 1797}, "batch": 100}
        write_results("fast_settings", {"settings": settings, "versions": versions(), "rows": rows})
    write_page("fast-settings", page())


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
    exact = laplace_of(model, "classification", structure="full", fisher=fisher).fit(batches, progress=False)
    rows = []
    for way, options in ways.items():
        laplace = laplace_of(model, "classification", fisher=fisher, prior="isotropic", **options)
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


def page() -> str:
    """Return docs/fast-settings.md."""
    found = read_results("fast_settings")
    settings, rows = found["settings"], found["rows"]
    exact = [row for row in rows if row["fisher"] == "exact"]
    most = [[_shown(way, WAYS), f"{max(_means(exact, way)):.3f}"] for way in WAYS]
    return template("fast_settings").fill(
        whole_span=span(_means(exact, WHOLE), ".3f"),
        most=table(["", "largest error of a layer"], most),
        exact=_errors_table(exact, WAYS),
        sampled=_errors_table([row for row in rows if row["fisher"] == "mc"], FLOORS),
        few=f"{settings['digits']['exact']:,}",
        many=f"{settings['digits']['mc']:,}",
        seeds=len(settings["seeds"]),
        rank=settings["rank"],
        run=run_fold(settings, found["versions"]),
    )


def _errors_table(rows: Sequence[Mapping[str, Any]], ways: Mapping[str, Mapping[str, Any]]) -> str:
    layers = _layers(rows)
    lines = []
    for way in ways:
        off, diagonal = _means(rows, way), _means(rows, way, "diagonal")
        cells = [f"{one:.3f} ({other:.1e})" for one, other in zip(off, diagonal, strict=True)]
        lines.append([_shown(way, ways), *cells])
    return table(["", *(f"layer `{name}`" for name in layers)], lines)


def _means(rows: Sequence[Mapping[str, Any]], way: str, error: str = "off_diagonal") -> list[float]:
    """Return the means over seeds of an error, by layer."""
    return [mean(row[error] for row in rows if (row["way"], row["layer"]) == (way, layer)) for layer in _layers(rows)]


def _layers(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(row["layer"] for row in rows))


def _shown(way: str, ways: Mapping[str, Mapping[str, Any]]) -> str:
    return f"`{way}`" if ways[way] else "with defaults"


if __name__ == "__main__":
    main()
