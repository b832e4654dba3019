"""What an experiment must tell: its settings, its pieces of work, how one is run, and its page.

A piece is an independent unit of work (one data set and split, say) with a short key; its outcome is a dict that JSON
can hold. The runner (runner.py) runs those that are missing and keeps them in one file. A page is made of results
alone: means, deviations and pictures of what the pieces hold, nothing measured anew.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from infoform.records.study_result import Result


@dataclass(frozen=True)
class Settings:
    """What a run depends on; every experiment adds its own fields, all of which JSON can hold."""

    seed: int = 0


S = TypeVar("S", bound=Settings)


class Experiment(ABC, Generic[S]):
    """One table or figure of the paper. Final classes have no state; the module's `EXPERIMENT` is the one object."""

    name: ClassVar[str]  # as in EXPERIMENTS and on the command line
    summary: ClassVar[str]  # one line
    reproduces: ClassVar[str]  # which table or figure of the paper
    packages: ClassVar[tuple[str, ...]] = ()  # whose versions matter, besides infoform, torch and numpy
    choices: ClassVar[tuple[str, ...]] = ()  # settings that say which pieces there are, and change none of them

    @abstractmethod
    def settings(self, *, quick: bool = False, full: bool = False) -> S:
        """Return the settings of a run: the default, a quick look (minutes), or all that the paper did."""

    @abstractmethod
    def pieces(self, settings: S) -> Sequence[str]:
        """Return the keys of all pieces, in the order in which they are run."""

    def needs(self, key: str, settings: S) -> Sequence[str]:
        """Return the keys of the pieces whose work a piece reads from the cache: they are done before it."""
        return ()

    @abstractmethod
    def run_piece(self, key: str, settings: S, *, cache: Path) -> dict[str, Any]:
        """Do one piece. `cache` is a folder for what pieces and experiments share, trained weights say."""

    @abstractmethod
    def page(self, result: Result) -> str:
        """Return the body of the experiment's page in Markdown; the runner adds title and settings."""

    def charts(self, result: Result, folder: Path) -> None:
        """Draw pictures into the folder, named `<experiment>-….png`; a page finds them at `../images/`."""
