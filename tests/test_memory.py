"""Peak memory on the paper's LeNet, in a process of its own: of the whole way, and of a linear prediction."""

import subprocess
import sys
from pathlib import Path

import pytest

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
laplace = infoform.Laplace(model, "classification", structure=sys.argv[1], rank=100)
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
laplace = infoform.Laplace(model, "classification", rank=100, basis_size=100)
laplace.fit([(images[:64], labels[:64])], progress=False)
laplace.prior_precision = 10.0
posterior = laplace.posterior()
laplace.predict(images[:2], posterior=posterior)
before = start()
prediction = laplace.predict(images[:100], posterior=posterior)
assert prediction.probs.isfinite().all()
print(resident("VmHWM") - before)
"""


def peak(script: str, *arguments: str) -> int:
    command = [sys.executable, "-c", LENET + script, *arguments]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
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
