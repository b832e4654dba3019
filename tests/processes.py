"""Fits by several processes, started by test_distributed.py: `python processes.py COUNT FOLDER`.

Every case leaves the curvature that each process ended with, or what it said when it failed, in the folder.
"""

import itertools
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from flat import flat_laplace
from infoform import Laplace, plan
from infoform.common import files
from infoform.curvature.curvature import pack_curvature
from infoform.fitting.example_selection import WHOLE
from infoform.novelty.known_inputs import pack_known

Batches = list[tuple[Tensor, Tensor]]


def make_model(dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(0)
    layers = (nn.Conv2d(1, 3, 3), nn.Tanh(), nn.Flatten(), nn.Linear(27, 6), nn.Tanh(), nn.Linear(6, 3))
    return nn.Sequential(*layers).to(dtype)


def make_data(examples: int = 41, dtype: torch.dtype = torch.float32) -> TensorDataset:
    x = torch.randn(examples, 1, 5, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return TensorDataset(x.to(dtype), torch.arange(examples) % 3)


def make_large() -> tuple[nn.Module, TensorDataset]:
    """Return a layer that is sketched, and more examples than are all taken for its residual."""
    torch.manual_seed(0)
    x = torch.randn(171, 140, dtype=torch.float64)
    x[:, 12:] *= 0.01  # so that the leading eigenvectors are well apart from the rest
    return nn.Sequential(nn.Linear(140, 3)).double(), TensorDataset(x, torch.arange(len(x)) % 3)


def make_sure() -> tuple[nn.Module, TensorDataset]:
    """Return a network that is sure of most examples, and more of them than bases are found from in any case."""
    model = make_model(torch.float64)
    with torch.no_grad():
        model[-1].weight.mul_(20)  # type: ignore[index]
    return model, make_data(WHOLE + 160, torch.float64)


def make_laplace(model: nn.Module, **options: Any) -> Laplace:
    given: dict[str, Any] = {"rank": 20, "prior": "activation", "seed": 2} | options
    return flat_laplace(model, "classification", **given)


def too_little(laplace: Laplace) -> int:
    """Return a budget that does not hold all layers at a time."""
    peak = plan(laplace, example=make_data(4, torch.float64).tensors[0]).peak_bytes
    assert peak is not None
    return peak - 1


def batches_of(data: TensorDataset, size: int = 4) -> Batches:
    x, y = data.tensors
    return list(zip(x.split(size), y.split(size), strict=True))


def parts_of(data: TensorDataset, count: int) -> list[Batches]:
    """Return an uneven part of the data for each process, one with nothing."""
    cuts = {2: [0, 0], 4: [0, 13, 13, 14]}[count]
    bounds = [*cuts, len(data)]
    x, y = data.tensors
    return [batches_of(TensorDataset(x[a:b], y[a:b])) if b > a else [] for a, b in itertools.pairwise(bounds)]


def split_of(data: TensorDataset, count: int) -> list[Batches]:
    """Return parts of which every process has some."""
    bounds = {2: [0, 11], 4: [0, 3, 21, 22]}[count] + [len(data)]
    x, y = data.tensors
    return [batches_of(TensorDataset(x[a:b], y[a:b])) for a, b in itertools.pairwise(bounds)]


def dealt(data: TensorDataset, **options: Any) -> DataLoader[Any]:
    return DataLoader(data, batch_size=4, sampler=DistributedSampler(data, **{"shuffle": False} | options))


def scores_of(laplace: Laplace, loader: Any) -> Tensor:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="the best prior_precision")
        laplace.tune(loader, trials=3, link="probit", progress=False)
    return torch.tensor([trial.scores["nll"] for trial in laplace.trials], dtype=torch.float64)


class Failing:
    """Batches, then an error, or worse."""

    def __init__(self, batches: Batches, after: int, action: Callable[[], None]) -> None:
        self.batches, self.after, self.action = batches, after, action

    def __iter__(self) -> Iterator[Any]:
        for index, batch in enumerate(self.batches):
            if index == self.after:
                self.action()
            yield batch


def stop() -> None:
    raise OSError("the disk is gone")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Case:
    """What one process does in the cases below."""

    def __init__(self, rank: int, count: int, folder: Path) -> None:
        self.rank, self.count, self.folder = rank, count, folder

    def keep(self, name: str, laplace: Laplace) -> None:
        tensors: dict[str, Tensor] = {}
        for layer, one in laplace.curvature.items():
            tensors |= {f"{layer} {key}": value for key, value in pack_curvature(one)[0].items()}
        assert laplace._fit is not None
        summary = laplace._fit.summary
        tensors["summary"] = torch.tensor([summary.num_examples, summary.log_likelihood or 0.0], dtype=torch.float64)
        save_file(tensors, self.folder / f"{name}.{self.rank}")

    def keep_known(self, name: str, laplace: Laplace) -> None:
        assert laplace._known is not None
        save_file(pack_known(laplace._known)[0], self.folder / f"{name}.{self.rank}")

    def note(self, name: str, action: Callable[[], Any]) -> None:
        try:
            action()
            text = "nothing"
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
        (self.folder / f"{name}.{self.rank}").write_text(text)

    def fits(self) -> None:
        data = make_data()
        for fisher in ("mc", "exact", "empirical"):
            options = {"statistics": "all", "fisher": fisher}
            self.keep(f"dealt {fisher}", make_laplace(make_model(), **options).fit(dealt(data), progress=False))
        double = make_data(dtype=torch.float64)
        parts, split = parts_of(double, self.count)[self.rank], split_of(double, self.count)[self.rank]
        wide = make_model(torch.float64)
        for name, part in (("none", parts), ("split", split)):
            for statistics in ("all", "needed"):
                laplace = make_laplace(wide, statistics=statistics).fit(part, progress=False)
                self.keep(f"{name} {statistics}", laplace)
            self.keep_known(f"{name} known", laplace)
        self.keep_known("dealt known", make_laplace(wide).fit(dealt(double), progress=False))
        first = make_laplace(wide).fit(dealt(double), progress=False)
        self.keep("update", first.fit(parts, update=True, progress=False))
        model, large = make_large()
        sketched = make_laplace(model, basis_size=8, prior_rank=4)
        self.keep("large", sketched.fit(dealt(large), progress=False))
        self.keep("part", make_laplace(wide, basis_data=0.5).fit(split, progress=False))
        sure, many = make_sure()
        self.keep("sure", make_laplace(sure).fit(dealt(many), progress=False))
        self.keep("sure parts", make_laplace(sure).fit(parts_of(many, self.count)[self.rank], progress=False))
        self.keep("last", make_laplace(wide, layers="last").fit(parts, progress=False))
        small = make_laplace(wide, chunk="4kB")
        self.keep(
            "groups", small.fit(parts, max_memory=too_little(small), offload=self.folder / "kept", progress=False)
        )

    def others(self) -> None:
        data = make_data(dtype=torch.float64)
        model = make_model(torch.float64)
        laplace = make_laplace(DistributedDataParallel(model)).fit(dealt(data), progress=False)
        self.keep("ddp", laplace)
        laplace.save(self.folder / f"saved-by-{self.rank}.safetensors")
        self.save_together(laplace)
        for kind in ("linear", "mc"):
            prediction, targets = laplace.predict_loader(
                dealt(data), kind=kind, link="probit", samples=3, progress=False
            )
            assert targets is not None
            save_file({"probs": prediction.value, "targets": targets}, self.folder / f"predicted {kind}.{self.rank}")
        mine = parts_of(data, self.count)[self.rank]
        prediction, targets = laplace.predict_loader(mine, link="probit", gather=True, progress=False)
        assert targets is not None
        save_file({"probs": prediction.value, "targets": targets}, self.folder / f"predicted none.{self.rank}")
        own, _ = laplace.predict_loader(batches_of(data)[: self.rank + 1], progress=False)
        assert len(own) == 4 * (self.rank + 1)
        save_file({"scores": scores_of(laplace, dealt(data))}, self.folder / f"searched.{self.rank}")
        self.keep_known("tuned known", laplace)
        prediction, _ = laplace.predict_loader(dealt(data), link="probit", progress=False)
        save_file({"novelty": prediction.novelty.contiguous()}, self.folder / f"novelty.{self.rank}")

    def save_together(self, laplace: Laplace) -> None:
        """Save a file that takes the first process a while, and see that no other one goes on before it is there."""
        write = files.write_file

        def write_slowly(*given: Any) -> None:
            time.sleep(0.5)
            write(*given)

        files.write_file = write_slowly  # type: ignore[assignment]
        path = self.folder / "together.safetensors"
        laplace.save(path)
        assert path.exists()
        files.write_file = write
        self.note("no folder", lambda: laplace.save(self.folder / "missing" / "posterior.safetensors"))

    def resumes(self) -> None:
        data = make_data(dtype=torch.float64)
        mine = split_of(data, self.count)[self.rank]
        options: dict[str, Any] = {"checkpoint": self.folder / "checkpoint", "checkpoint_every": 0, "progress": False}

        def make() -> Laplace:
            return make_laplace(make_model(torch.float64))

        self.keep("unbroken", make().fit(mine, progress=False))
        last = self.rank == self.count - 1
        self.note("stopped", lambda: make().fit(Failing(mine, 2, stop) if last else mine, **options))
        self.keep("resumed", make().fit(mine, **options))
        dist.barrier()
        assert list((self.folder / "checkpoint").iterdir()) == []

    def fails(self) -> None:
        data = make_data()
        mine, last = split_of(data, self.count)[self.rank], self.rank == self.count - 1
        model = make_model()
        self.note("same data", lambda: make_laplace(model).fit(batches_of(data), progress=False))
        sampler: Any = DistributedSampler(data, num_replicas=7, rank=3)
        wrong = DataLoader(data, batch_size=4, sampler=sampler)
        self.note("other sampler", lambda: make_laplace(model).fit(wrong, progress=False))
        self.note("iterator", lambda: make_laplace(model, structure="diag").fit(iter(mine), progress=False))
        self.note("empty", lambda: make_laplace(model).fit([], progress=False))
        self.note("raised", lambda: make_laplace(model).fit(Failing(mine, 2, stop) if last else mine, progress=False))
        if last:
            with torch.no_grad():
                next(model.parameters()).mul_(2)
        self.note("other weights", lambda: make_laplace(model).fit(mine, progress=False))
        killed = make_laplace(make_model())
        self.note("killed", lambda: killed.fit(Failing(mine, 2, die) if last else mine, progress=False))


def work(rank: int, count: int, folder: Path) -> None:
    store = f"file://{folder / 'store'}"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=count, timeout=timedelta(seconds=60))
    case = Case(rank, count, folder)
    case.fits()
    if count == 2:
        case.others()
        case.resumes()
    case.fails()


def main(count: int, folder: Path) -> None:
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message="on the data of the fit the network")  # as pyproject.toml has it
    import infoform.metrics  # noqa: F401  # once, before the processes part

    children = []
    for rank in range(count):
        child = os.fork()
        if child == 0:
            signal.alarm(500)  # which ends it, whatever it waits for
            try:
                work(rank, count, folder)
                os._exit(0)
            except BaseException:
                import traceback

                traceback.print_exc()
                os._exit(1)
        children.append(child)
    ends = [os.waitpid(child, 0)[1] for child in children]
    assert [os.WIFSIGNALED(end) for end in ends] == [False] * (count - 1) + [True], ends
    assert [os.WEXITSTATUS(end) for end in ends[:-1]] == [0] * (count - 1), ends


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
