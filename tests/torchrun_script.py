"""The script that docs/long-fits.md shows for several processes, with a small model and data put before it."""

import subprocess
import sys
from pathlib import Path

import bounded

PAGE = Path(__file__).parents[1] / "docs" / "long-fits.md"
DATA = "TensorDataset(torch.randn(200, 4, generator=torch.Generator().manual_seed(0)), torch.arange(200) % 3)"
BEFORE = f"""
import torch
from torch.utils.data import DataLoader, TensorDataset
import infoform

torch.manual_seed(0)
model = torch.nn.Linear(4, 3)
data = {DATA}
"""


def documented_script() -> str:
    """Return the script of the page."""
    return PAGE.read_text(encoding="utf-8").split("## Several processes")[1].split("```python\n")[1].split("```")[0]


def run_documented_script(folder: Path) -> "subprocess.CompletedProcess[str]":
    """Start it in two processes, which leave `posterior.safetensors` in the folder."""
    (folder / "script.py").write_text(f"{BEFORE}\n{documented_script()}")
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "script.py"]
    return bounded.run(start, cwd=folder)
