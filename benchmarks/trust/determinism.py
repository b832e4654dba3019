"""One seed, one answer: in another process, with other batches, other workers, other numbers of threads."""

import hashlib
import itertools
import json
import subprocess
import sys
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from infoform import Laplace

from ..common import ROOT
from . import claim
from .networks import trained_classifier

KINDS = ("linear", "mc", "linear-mc")


def run(*, quick: bool, seed: int) -> dict[str, Any]:
    """Return which changes leave every bit as it was, and by how much others move a probability."""
    structures = ("inf",) if quick else ("diag", "kfac", "efb", "inf", "full")
    torch.set_num_threads(1)
    rows = []
    for structure, convolution in itertools.product(structures, (False, True)):
        if structure == "full" and convolution:
            continue
        expected = _answers(seed, structure, convolution)
        for change, options in {
            "again": {},
            "batches of 1 at the fit": {"fit_size": 1},
            "batches of 7 at the fit": {"fit_size": 7},
            "batches of 7 at the prediction": {"predict_size": 7},
            "batches of 1 at the prediction": {"predict_size": 1},
            "a worker": {"workers": 1},
            "2 threads": {"threads": 2},
        }.items():
            found = _answers(seed, structure, convolution, **options)
            rows.append(
                {
                    "structure": structure,
                    "convolution": convolution,
                    "change": change,
                    "same_bits": torch.equal(found, expected),
                    "largest": float((found - expected).abs().max()),
                }
            )
    processes = 2 if quick else 5
    digests = {_in_another_process(seed) for _ in range(processes)} | {_digest(seed)}
    exact = [row for row in rows if row["change"] in ("again", "a worker")]
    worst = max(row["largest"] for row in rows)
    return {
        "claims": [
            claim("again, and with a worker: every bit the same", all(row["same_bits"] for row in exact),
                  f"{sum(row['same_bits'] for row in exact)} of {len(exact)}"),
            claim(f"{processes} other processes: every bit the same", len(digests) == 1, f"{len(digests)} results"),
            claim("other batches and threads move no probability by more than 1e-4", worst < 1e-4, f"{worst:.1e}"),
        ],
        "rows": rows,
    }  # fmt: skip


def _answers(
    seed: int,
    structure: str,
    convolution: bool,
    *,
    fit_size: int = 40,
    predict_size: int = 40,
    workers: int = 0,
    threads: int = 1,
) -> Tensor:  # (kinds, N, C)
    torch.set_num_threads(threads)
    model, batches = trained_classifier(seed, convolution=convolution)
    x, y = (torch.cat(parts) for parts in zip(*batches, strict=True))
    data = TensorDataset(x, y)
    laplace = Laplace(model, "classification", structure=structure, seed=seed)
    laplace.fit(DataLoader(data, fit_size, num_workers=workers), progress=False)
    new = DataLoader(data, predict_size, num_workers=workers)
    found = [laplace.predict_loader(new, kind=kind, samples=6, progress=False)[0].value for kind in KINDS]
    torch.set_num_threads(1)
    return torch.stack(found)


def _digest(seed: int) -> str:
    torch.set_num_threads(1)
    return hashlib.sha256(_answers(seed, "inf", False).numpy().tobytes()).hexdigest()


def _in_another_process(seed: int) -> str:
    code = f"import json; from benchmarks.trust.determinism import _digest; print(json.dumps(_digest({seed})))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return str(json.loads(done.stdout.splitlines()[-1]))
