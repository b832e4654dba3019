"""A checkpointed fit by two processes that are killed again and again: `python killed_processes.py FOLDER KILLS`.

Leaves what an unbroken fit saved, `whole.safetensors`, and what the last start saved, `again.safetensors`.
"""

import os
import random
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from flat import flat_laplace
from processes import batches_of, make_data, make_model


def fit(rank: int, folder: Path, name: str, **options: Any) -> None:
    """Fit as one of two processes, with uneven parts of the data."""
    store = f"file://{folder / f'store {name}'}"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=2, timeout=timedelta(seconds=120))
    batches = batches_of(make_data(121))
    laplace = flat_laplace(make_model(), "classification", rank=7)
    laplace.fit(batches[:9] if rank else batches[9:], progress=False, **options)
    laplace.save(folder / f"{name}.safetensors", curvature=True)
    dist.destroy_process_group()


def start(folder: Path, name: str, **options: Any) -> list[int]:
    children = []
    for rank in range(2):
        children.append(os.fork())
        if children[-1] == 0:
            signal.alarm(300)  # which ends it, whatever it waits for
            code = 1
            try:
                fit(rank, folder, name, **options)
                code = 0
            finally:
                os._exit(code)
    return children


def ends(children: list[int]) -> list[int]:
    return [os.waitpid(child, 0)[1] for child in children]


def main(folder: Path, kills: int) -> None:
    torch.set_num_threads(1)
    assert ends(start(folder, "whole")) == [0, 0]
    begun = time.monotonic()
    assert ends(start(folder, "timed", checkpoint=folder / "timed", checkpoint_every=0)) == [0, 0]
    lasts = time.monotonic() - begun
    tries = done = 0
    chance = random.Random(0)
    while done < kills:
        tries += 1
        children = start(folder, f"try {tries}", checkpoint=folder / "checkpoint", checkpoint_every=0)
        time.sleep(chance.random() * lasts)
        for child in chance.choice([children[:1], children[1:], children]):  # one, the other, or both
            os.kill(child, signal.SIGKILL)
        done += any(os.WIFSIGNALED(end) for end in ends(children))  # one that was done by then does not count
    assert ends(start(folder, "again", checkpoint=folder / "checkpoint")) == [0, 0]


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
