"""What benchmarks share: where results, templates and pages are, what a run depends on, and the command line.

Benchmarks are modules: `python -m benchmarks.NAME` from the root of the repository measures and writes
`benchmarks/results/NAME.json`; with `--page` it writes the page of the documentation from that file, and runs nothing.
"""

import argparse
import json
import os
import platform
import time
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

import infoform
from infoform.common.provenance import commit
from infoform.options import Settings
from infoform.pages.markdown import facts, folded
from infoform.pages.template import PageTemplate

ROOT = Path(__file__).resolve().parents[1]
RESULTS, TEMPLATES, DOCS = ROOT / "benchmarks" / "results", ROOT / "benchmarks" / "templates", ROOT / "docs"
STUDIES = ROOT / "results"  # of experiments
PACKAGES = (
    "infoform", "torch", "numpy", "laplace-torch", "curvlinops-for-pytorch", "nngeometry", "asdfghjkl",
    "backpack-for-pytorch", "pytorchcv", "pytorch-ood",
)  # fmt: skip


def read_results(name: str, *, empty: Any = None) -> Any:
    """Return the JSON of a benchmark; `empty`, if given, where there is none yet."""
    path = RESULTS / f"{name}.json"
    if empty is not None and not path.exists():
        return empty
    return json.loads(path.read_text(encoding="utf-8"))


def write_results(name: str, found: Any) -> None:
    """Write the JSON of a benchmark, through another file, so that an interruption leaves the old or the new."""
    write_json(RESULTS / f"{name}.json", found)


def write_json(path: Path, found: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".part")
    beside.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    beside.replace(path)


def template(name: str) -> PageTemplate:
    return PageTemplate.read(TEMPLATES / f"{name}.md")


def write_page(name: str, text: str) -> None:
    """Write a page into docs/."""
    (DOCS / f"{name}.md").write_text(text + "\n", encoding="utf-8")


def run_fold(settings: Mapping[str, object], versions: Mapping[str, object]) -> str:
    """Return the folded end of a page: settings and versions of the run."""
    return folded("The run: settings and versions", f"{facts(settings)}\n\nVersions:\n\n{facts(versions)}")


def rounded(value: Any, digits: int = 5) -> Any:
    """Return the same with floats of so many digits: more are not reproducible, and make a file unreadable."""
    if isinstance(value, float):
        return float(f"{value:.{digits}g}")
    if isinstance(value, Mapping):
        return {key: rounded(one, digits) for key, one in value.items()}
    return [rounded(one, digits) for one in value] if isinstance(value, list | tuple) else value


def versions() -> dict[str, str | None]:
    """Return the code that a run depends on."""
    found = {"infoform": infoform.__version__, "torch": torch.__version__, "python": platform.python_version()}
    return {**found, "commit": commit(ROOT / "src" / "infoform"), "machine": platform.machine()}


def environment() -> dict[str, Any]:
    """Return what measured times depend on besides the benchmark."""
    head = commit(ROOT / "src" / "infoform") or ""
    return {
        "date": time.strftime("%Y-%m-%d"),
        "commit": head.removesuffix("+")[:7],
        "changed_since": head.endswith("+"),
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


def command_line(description: str | None) -> argparse.ArgumentParser:
    """Return a parser that has `--page`."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", action="store_true", help="write the page of the documentation and run nothing")
    return parser


def look_at_experiments(name: str, description: str | None, look: Callable[[str, Path], dict[str, Any]]) -> bool:
    """Look at the networks of experiments' runs, by name and cache, and keep what is found, by name.

    Returns whether the page is to be written.
    """
    parser = command_line(description)
    parser.add_argument("names", nargs="*", choices=["mnist", "cifar10", []], help="experiments")
    parser.add_argument("--cache", type=Path, default=Path("out/cache"), help="where the run keeps its networks")
    options = parser.parse_args()
    results: dict[str, Any] = read_results(name, empty={})
    for experiment in options.names:
        results[experiment] = look(experiment, options.cache)
        write_results(name, results)
    return bool(options.page)


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "")


def laplace_of(
    model: torch.nn.Module, likelihood: str | infoform.Likelihood, *, prior: Any = None, **options: Any
) -> infoform.Laplace:
    """Return a `Laplace` with options given one by one, as benchmarks vary them, whichever object takes them."""
    settings = Settings.from_flat({**Settings().flat(), **options})
    return infoform.Laplace(
        model,
        likelihood,
        structure=settings.structure,
        prior=prior,
        layers=settings.layers,
        fit_options=settings.fit,
        seed=settings.seed,
    )
