"""The JSON of a benchmark: rows, one a measurement, and the runs that they come from."""

import json
import os
import platform
import subprocess
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    "infoform", "torch", "numpy", "laplace-torch", "curvlinops-for-pytorch", "nngeometry", "asdfghjkl",
    "backpack-for-pytorch", "pytorchcv",
)  # fmt: skip
KEY = ("stage", "network", "method", "size")
Row = dict[str, Any]


class Results:
    """Rows by stage, network, method and size; a new one replaces an old one, and the file is kept current."""

    def __init__(self, path: Path) -> None:
        self.path = path
        saved = json.loads(path.read_text()) if path.exists() else {"runs": [], "rows": []}
        self.runs: list[dict[str, Any]] = saved["runs"]
        self._rows: dict[tuple[Any, ...], Row] = {_key(row): row for row in saved["rows"]}

    @property
    def rows(self) -> list[Row]:
        return list(self._rows.values())

    def begin(self, settings: dict[str, Any]) -> None:
        """Start a run: what is added from now on belongs to it."""
        self.runs.append({"run": 1 + max((one["run"] for one in self.runs), default=0), "settings": settings})
        self.runs[-1]["environment"] = environment()

    def add(self, stage: str, network: str, method: str, size: int | None, found: dict[str, Any]) -> None:
        row = {"stage": stage, "network": network, "method": method, "size": size, "run": self.runs[-1]["run"]} | found
        self._rows[_key(row)] = row
        self.save()

    def has(self, stage: str, network: str, method: str, size: int | None = None) -> bool:
        """Tell whether there is a finished measurement; one that failed is finished too."""
        row = self._rows.get((stage, network, method, size))
        return row is not None and "unfinished" not in row and "skipped" not in row

    def save(self) -> None:
        """Write the file, through another one, so that an interruption leaves the old or the new."""
        used = {row["run"] for row in self._rows.values()}
        self.runs = [one for one in self.runs if one["run"] in used or one is self.runs[-1]]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"runs": self.runs, "rows": [_rounded(row) for row in self._rows.values()]}, indent=1)
        beside = self.path.with_suffix(".part")
        beside.write_text(text + "\n")
        beside.replace(self.path)


def environment() -> dict[str, Any]:
    """Return what the numbers depend on besides the code."""
    return {
        "date": time.strftime("%Y-%m-%d"),
        "commit": _git("rev-parse", "--short", "HEAD"),
        "changed_since": bool(_git("status", "--porcelain", "--", "src")),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cpu": _cpu(),
        "cpus": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "threads": torch.get_num_threads(),
        "memory_gigabytes": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "omp_wait_policy": os.environ.get("OMP_WAIT_POLICY"),
        "versions": {name: _version(name) for name in PACKAGES},
    }


def _key(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in KEY)


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "")


def _rounded(value: Any) -> Any:
    """Return the same with floats of four digits, which is more than a clock can tell."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, list) else value
