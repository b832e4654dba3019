"""Peak memory of the whole way, on the paper's LeNet, in a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

LIMIT = 2**30  # bytes above what the model and one plain forward pass take

SCRIPT = """
import sys
import torch
from torch import nn
import infoform

def resident(field):  # VmRSS: now, VmHWM: peak; unlike ru_maxrss not inherited from the process that started this one
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(field))

torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Linear(3136, 1024), nn.ReLU(), nn.Linear(1024, 10),
)
images, labels = torch.randn(256, 1, 28, 28), torch.randint(10, (256,))
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


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
@pytest.mark.parametrize("structure", ["inf", "inf-paper"])
def test_lenet_stays_below_one_gibibyte(structure: str) -> None:
    finished = subprocess.run([sys.executable, "-c", SCRIPT, structure], capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    peak = int(finished.stdout)
    print(f"{structure}: {peak / 2**20:.0f} MiB above the model")
    assert peak < LIMIT
