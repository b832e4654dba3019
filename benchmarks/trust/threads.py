"""Eight threads ask one object: their answers are those of a sequence, and the network is as it was."""

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

from infoform import Laplace

from . import claim
from .networks import fitted_classifier

THREADS = 8
KINDS = ("linear", "mc", "linear-mc")


def run(*, quick: bool, seed: int) -> dict[str, Any]:
    """Return how many of the answers of threads differ, and how fast they came."""
    torch.set_num_threads(1)
    count = 45 if quick else 1002
    rows = []
    for convolution in (False, True):
        laplace = fitted_classifier(seed, convolution=convolution)
        shape = (4, 1, 6, 6) if convolution else (4, 6)
        asked = [
            (torch.randn(shape, generator=torch.Generator().manual_seed(seed + i)), KINDS[i % len(KINDS)], i)
            for i in range(count)
        ]
        before = {name: one.clone() for name, one in laplace.model.state_dict().items()}
        expected, alone = _timed(laplace, asked, 1)
        found, together = _timed(laplace, asked, THREADS)
        after = laplace.model.state_dict()
        rows.append(
            {
                "network": "convolution" if convolution else "linear layers",
                "predictions": count,
                "wrong": sum(not torch.equal(a, b) for a, b in zip(expected, found, strict=True)),
                "same_model": all(torch.equal(before[name], after[name]) for name in before),
                "parameters": all(isinstance(p, torch.nn.Parameter) for p in laplace.model.parameters()),
                "alone_per_second": count / alone,
                "together_per_second": count / together,
            }
        )
    wrong, total = sum(row["wrong"] for row in rows), sum(row["predictions"] for row in rows)
    slowest = min(row["together_per_second"] / row["alone_per_second"] for row in rows)
    # on two busy cores a tenth is noise; the quick form is part of CI, where nothing depends on time
    speed = claim("throughput with eight threads is no lower than with one", slowest > 0.9, f"{slowest:.2f} times")
    return {
        "claims": [
            claim(f"{THREADS} threads, kinds {', '.join(KINDS)}: bit-equal to a sequence", wrong == 0,
                  f"{total - wrong:,} of {total:,}"),
            claim("the model is bit-identical afterwards", all(r["same_model"] and r["parameters"] for r in rows),
                  "yes" if all(r["same_model"] and r["parameters"] for r in rows) else "no"),
            *([] if quick else [speed]),
        ],
        "rows": rows,
    }  # fmt: skip


def _timed(laplace: Laplace, asked: list[tuple[Tensor, str, int]], threads: int) -> tuple[list[Tensor], float]:
    def answer(one: tuple[Tensor, str, int]) -> Tensor:
        return laplace.predict(one[0], kind=one[1], samples=6, seed=one[2]).value

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(answer, asked[: 3 * threads]))
        started = time.perf_counter()
        return list(pool.map(answer, asked)), time.perf_counter() - started
