"""The command lines that benchmarks share: those with tasks and a page, and those on an experiment's networks."""

import argparse
import json
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any


def read_arguments(description: str | None, tasks: Collection[str]) -> argparse.Namespace:
    """Return `tasks`, the chosen ones, and `page`, whether to write the page and run nothing."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", metavar="TASK", help=f"any of {', '.join(tasks)}")
    parser.add_argument("--page", action="store_true", help="write the page of the documentation and run nothing")
    options = parser.parse_args()
    for name in options.tasks:
        if name not in tasks:
            parser.error(f"a task must be one of {', '.join(tasks)}, got {name!r}")
    return options


def look_at_experiments(
    description: str | None,
    kept: Path,
    look: Callable[[str, Path, Path], dict[str, Any]],
    write_page: Callable[[dict[str, Any], Path], None],
) -> None:
    """Look at the networks of runs (by name, cache and results), keep what is found, by name, and write the page."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=["mnist", "cifar10", []], help="experiments")
    parser.add_argument("--cache", type=Path, default=Path("out/cache"), help="where the run keeps its networks")
    parser.add_argument("--out", type=Path, default=Path("results"), help="where the run's JSON is")
    parser.add_argument("--page", action="store_true", help="write the page and run nothing")
    options = parser.parse_args()
    results: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {}
    for name in options.names:
        results[name] = look(name, options.cache, options.out)
        kept.write_text(json.dumps(results, indent=1) + "\n")
    if options.page:
        write_page(results, options.out)
