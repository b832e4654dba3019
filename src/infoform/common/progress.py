"""A progress bar on standard error: how many batches and examples are done, and how many examples in a second."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

UNITS = {  # description of a bar -> what its ticks are, where they are no batches
    "trials": "trials",
    "eigenvectors": "layers",
    "ensemble": "epochs",
    "bbb": "epochs",
    "collect weights": "epochs",
    "hmc": "chains",
}


@contextmanager
def progress_bar(shown: bool) -> Iterator[Callable[[str, int | None], Callable[[int], None]]]:
    """Give a function that starts a bar and returns its tick; a tick takes the number of examples (or layers) done."""
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[counted]}"),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not shown,
    )

    def start(description: str, total: int | None) -> Callable[[int], None]:
        unit = UNITS.get(description, "batches")
        task = bar.add_task(description, total=total, counted=show_count(0, total, unit), rate="")
        ticks = done = 0

        def tick(count: int) -> None:
            nonlocal ticks, done
            ticks, done = ticks + 1, done + count
            elapsed = bar.tasks[task].elapsed
            rate = show_rate(done / elapsed, "examples" if unit == "batches" else unit) if elapsed else ""
            counted = show_count(ticks, total, unit)
            if unit == "batches":  # of which nobody knows the size: what the rate is of is counted too
                counted = f"{counted}, {done:,} examples"
            bar.update(task, advance=1, counted=counted, rate=rate)

        return tick

    with bar:
        yield start


def show_count(done: int, total: int | None, unit: str) -> str:
    """Return "3/27 trials", or "3 batches" where nobody knows how many there will be."""
    return f"{done} {unit}" if total is None else f"{done}/{total} {unit}"


def show_rate(rate: float, unit: str) -> str:
    """Return how many are done in a second; where one takes longer than that, how long it takes."""
    if rate <= 0:
        return ""
    if rate < 1:
        return f"{1 / rate:.1f} s each"
    return f"{rate:,.0f} {unit}/s" if rate >= 10 else f"{rate:.1f} {unit}/s"


def known_length(collection: Any) -> int | None:
    """Return the length of what may have one; a DataLoader of an IterableDataset has the method, and raises in it."""
    try:
        return len(collection)
    except (TypeError, NotImplementedError):
        return None
