"""Peak memory on the paper's LeNet, in a process of its own: of the whole way, and of a linear prediction."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import bounded
from flat import flat_laplace

LIMIT = 2**30  # bytes above what the model and one plain forward pass take

LENET = """
import ctypes
import sys
import torch
from torch import nn
import infoform

def resident(field):  # VmRSS: now, VmHWM: peak; unlike ru_maxrss not inherited from the process that started this one
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(field))

def start():  # from here on the peak counts; memory that was freed before must not hide what is needed now
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/clear_refs", "w") as clear:
        clear.write("5")
    return resident("VmRSS")

torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Linear(3136, 1024), nn.ReLU(), nn.Linear(1024, 10),
)
images, labels = torch.randn(256, 1, 28, 28), torch.randint(10, (256,))
"""

WHOLE_WAY = """
with torch.no_grad():
    model(images[:64])
before = resident("VmRSS")
laplace = infoform.Laplace(model, "classification", structure=sys.argv[1])  # at rank 100
laplace.fit(list(zip(images.split(64), labels.split(64))), progress=False)
laplace.prior_precision = 10.0
drawn = laplace.sample(2)
assert all(values.isfinite().all() for values in drawn.values())
print(resident("VmHWM") - before)
"""

PLAIN = """
model(images[:2]).sum().backward()
model.zero_grad(set_to_none=True)
before = start()
nn.functional.cross_entropy(model(images[:100]), labels[:100]).backward()
print(resident("VmHWM") - before)
"""

LINEAR = """
structure, options = infoform.Inf(rank=100), infoform.FitOptions(basis_size=100)
laplace = infoform.Laplace(model, "classification", structure=structure, fit_options=options)
laplace.fit([(images[:64], labels[:64])], progress=False)
laplace.prior_precision = 10.0
posterior = laplace.posterior()
laplace.predict(images[:2], posterior=posterior)
before = start()
prediction = laplace.predict(images[:100], posterior=posterior)
assert prediction.probs.isfinite().all()
print(resident("VmHWM") - before)
"""


FIT = """
batches = [(images[:128], labels[:128])] * 2  # as many as wait for each other
# at rank 100; what novelty sums is counted in tests/novelty/test_novelty_memory.py
how = {"structure": sys.argv[1], "fit_options": infoform.FitOptions(chunk=sys.argv[2], novelty=False)}
infoform.Laplace(model, "classification", **how).fit(batches[:1], progress=False)  # libraries, and buffers of threads
before = start()
laplace = infoform.Laplace(model, "classification", **how).fit(batches, progress=False)
print(resident("VmHWM") - before - infoform.plan(infoform.Laplace(model, "classification", **how)).statistics_bytes)
"""
PASS = """
for _ in range(2):
    before = start()
    for _ in range(2):
        model.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(model(images[:128]), labels[:128]).backward()
print(resident("VmHWM") - before)
"""
AT_ONCE = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}  # what is freed is given back


def peak(script: str, *arguments: str) -> int:
    command = [sys.executable, "-c", LENET + script, *arguments]
    environment = {**os.environ, **AT_ONCE}
    finished = bounded.run(command, check=True, env=environment)
    return int(finished.stdout)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
@pytest.mark.parametrize("structure", ["inf", "inf-paper"])
def test_lenet_stays_below_one_gibibyte(structure: str) -> None:
    found = peak(WHOLE_WAY, structure)
    print(f"{structure}: {found / 2**20:.0f} MiB above the model")
    assert found < LIMIT


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="peak memory is read from /proc")
def test_a_linear_prediction_takes_less_than_two_gradient_passes() -> None:
    plain, linear = peak(PLAIN), peak(LINEAR)
    print(f"100 inputs: gradient pass {plain / 2**20:.0f} MiB, linear prediction {linear / 2**20:.0f} MiB")
    assert linear < 2 * plain


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="peak memory is read from /proc")
def test_a_fit_takes_little_more_than_a_gradient_pass_and_its_statistics() -> None:
    plain, found, small = peak(PASS), peak(FIT, "inf", "32MiB"), peak(FIT, "inf", "1MiB")
    told = f"beside statistics {found / 2**20:.0f}, in chunks of 1 MiB {small / 2**20:.0f}"
    print(f"MiB: gradient pass {plain / 2**20:.0f}; {told}")
    assert found < 1.3 * plain
    assert small < found


class Largest(TorchDispatchMode):
    """Remembers the bytes of the largest tensor that any operation makes."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for one in made if isinstance(made, tuple | list) else (made,):
            if isinstance(one, Tensor):
                self.bytes = max(self.bytes, one.untyped_storage().nbytes())
        return made


@pytest.mark.parametrize("structure", ["inf", "diag", "kfac", "efb"])
@pytest.mark.parametrize("linear", [True, False])
def test_nothing_grows_with_batch_times_weights(structure: str, linear: bool) -> None:
    model = nn.Sequential(nn.Linear(150, 140), nn.Linear(140, 3)) if linear else Tokens()
    shape = (150,) if linear else (4, 150)
    largest = {}
    for examples in (16, 64):
        laplace = flat_laplace(model, "classification", structure=structure, rank=10, chunk="500kB")
        with Largest() as found:
            laplace.fit([torch.randn(examples, *shape, generator=torch.Generator().manual_seed(0))], progress=False)
        largest[examples] = found.bytes
    weights = 4 * 140 * 151
    assert largest[16] < 8 * weights  # of 16, or 64, examples they would be sixteen times as many at least
    assert largest[64] < 8 * weights


class Tokens(nn.Module):
    """A layer that is shared by tokens, and one that is not."""

    def __init__(self) -> None:
        super().__init__()
        self.shared, self.head = nn.Linear(150, 140), nn.Linear(140, 3)

    def forward(self, x: Tensor) -> Tensor:
        out = self.head(self.shared(x).tanh().mean(1))
        assert isinstance(out, Tensor)
        return out
