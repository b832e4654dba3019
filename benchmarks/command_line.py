"""The command line that the benchmarks with tasks and a page share."""

import argparse
from collections.abc import Collection


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
