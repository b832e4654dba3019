"""A progress bar on standard error."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


@contextmanager
def progress_bar(shown: bool) -> Iterator[Callable[[str, int | None], Callable[[int], None]]]:
    """Give a function that starts a bar and returns its tick; a tick takes the number of examples (or layers) done."""
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not shown,
    )

    def start(description: str, total: int | None) -> Callable[[int], None]:
        task = bar.add_task(description, total=total, rate="")
        done = 0

        def tick(count: int) -> None:
            nonlocal done
            done += count
            elapsed = bar.tasks[task].elapsed
            bar.update(task, advance=1, rate=f"{done / elapsed:.0f}/s" if elapsed else "")

        return tick

    with bar:
        yield start
