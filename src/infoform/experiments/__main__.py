"""`python -m infoform.experiments NAME`: run an experiment, or write its page from a run's JSON."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from infoform.experiments import EXPERIMENTS
from infoform.experiments.page import read_notes, write_page
from infoform.experiments.runner import reproduce, result_path
from infoform.records.study_result import Result


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m infoform.experiments", description="Reproduce the paper.")
    parser.add_argument("name", choices=EXPERIMENTS, metavar="NAME", help=f"one of {', '.join(EXPERIMENTS)}")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="a small version, in minutes")
    size.add_argument("--full", action="store_true", help="all that the paper did, where the default is less")
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder of the run's JSON")
    parser.add_argument("--cache", type=Path, default=Path("out/cache"), help="folder for what experiments share")
    parser.add_argument("--page", type=Path, metavar="DOCS", help="write the page into this folder, and run nothing")
    given = parser.parse_args(arguments)
    path = result_path(given.name, given.out, quick=given.quick, full=given.full)
    try:
        if given.page:
            print(write_page(given.name, Result.load(path), given.page, notes=read_notes(path)))
            return
        reproduce(given.name, quick=given.quick, full=given.full, out=given.out, cache=given.cache)
    except (ValueError, OSError) as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit(f"stopped; the same command goes on from '{path}'.")
    print(path)


if __name__ == "__main__":
    main()
