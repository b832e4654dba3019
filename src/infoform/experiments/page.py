"""The page of any experiment: its own text, and the run behind it, folded at the end."""

from pathlib import Path

from infoform.common.whole_files import write_text
from infoform.experiments import get_experiment
from infoform.pages.markdown import facts, folded
from infoform.pages.numbers import duration
from infoform.pages.template import PageTemplate
from infoform.records.study_result import Result

TEMPLATE = PageTemplate.beside(__file__)


def write_page(name: str, result: Result, docs: Path, *, notes: str | None = None) -> Path:
    """Write `docs/experiments/NAME.md`, and the experiment's pictures into `docs/images`, from the result alone."""
    text = page_text(name, result, notes=notes)
    (docs / "images").mkdir(parents=True, exist_ok=True)
    get_experiment(name).charts(result, docs / "images")
    path = docs / "experiments" / f"{name}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, text)
    return path


def page_text(name: str, result: Result, *, notes: str | None = None) -> str:
    """Return the whole page of an experiment: what it found, and how it was run.

    `notes` are what the person who ran it wrote down, of runs before this one say (see `read_notes`).
    """
    experiment = get_experiment(name)
    if not result.complete:
        raise ValueError(
            f"a page needs all {result.total} pieces of '{name}', got {len(result.pieces)}; run it to its end first."
        )
    text = TEMPLATE.fill(
        name=name,
        summary=experiment.summary,
        reproduces=experiment.reproduces,
        body=experiment.page(result).strip(),
        notes=None if notes is None else folded("Notes on earlier runs", notes),
        pieces=result.total,
        duration=duration(result.seconds),
        memory=f"{result.peak_memory_bytes / 2**20:.0f} MiB",
        commit=(result.commit or "unknown")[:12],
        versions=facts(result.versions),
        settings=facts(result.settings),
    )
    return text + "\n"


def read_notes(result: Path) -> str | None:
    """Return the notes that lie beside the JSON of a run, as `NAME.notes.md`; None where there are none."""
    path = result.with_suffix(".notes.md")
    return path.read_text(encoding="utf-8").strip() if path.exists() else None
