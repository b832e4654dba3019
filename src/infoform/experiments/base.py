"""What an experiment must tell: its settings, its pieces of work, how one is run, and its page.

A piece is a unit of work (one data set and split, say) with a short key; its outcome is a dict that JSON can hold. The
runner (runner.py) runs those that are missing and keeps them in one file. A page is made of results alone: means,
deviations and pictures of what the pieces hold, nothing measured anew.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Generic, TypeVar

from infoform.records.study_result import Result

CHOOSES_PIECES = "chooses_pieces"  # in the metadata of a field


@dataclass(frozen=True)
class Settings:
    """What a run depends on; every experiment adds its own fields, all of which JSON can hold.

    Example:
        >>> @dataclass(frozen=True)
        ... class SquareSettings(Settings):
        ...     numbers: tuple[int, ...] = choosing_pieces((1, 2, 3))
        >>> SquareSettings().choices
        ('numbers',)
    """

    seed: int = 0

    @property
    def choices(self) -> tuple[str, ...]:
        """Return the fields that say which pieces there are and change none of them: a run may get more pieces."""
        return tuple(one.name for one in fields(self) if one.metadata.get(CHOOSES_PIECES))


def choosing_pieces(default: Any) -> Any:
    """Return a field of settings that says which pieces there are, and that no single piece depends on.

    Args:
        default: the field's default value.

    Returns:
        The field, for the body of a dataclass, as `dataclasses.field` gives it.

    Example:
        >>> @dataclass(frozen=True)
        ... class SquareSettings(Settings):
        ...     numbers: tuple[int, ...] = choosing_pieces((1, 2, 3))
    """
    return field(default=default, metadata={CHOOSES_PIECES: True})


S = TypeVar("S", bound=Settings)
Pieces = Sequence[str] | Mapping[str, Sequence[str]]


class Experiment(ABC, Generic[S]):
    """One table or figure of the paper; the module's `EXPERIMENT` is the one object, and holds no state of a run.

    Example:
        >>> class Squares(Experiment[Settings]):
        ...     name, summary, reproduces = "squares", "Squares of small numbers.", "nothing"
        ...     def settings(self, *, quick: bool = False, full: bool = False) -> Settings:
        ...         return Settings()
        ...     def pieces(self, settings: Settings) -> list[str]:
        ...         return ["1", "2"]
        ...     def run_piece(self, key: str, settings: Settings, *, cache: Path) -> dict[str, int]:
        ...         return {"square": int(key) ** 2}
        ...     def page(self, result: Result) -> str:
        ...         return f"The sum is {sum(piece['square'] for piece in result.pieces.values())}."
        >>> Squares().run_piece("2", Settings(), cache=Path("out"))
        {'square': 4}
    """

    name: str  # as in EXPERIMENTS and on the command line
    summary: str  # one line
    reproduces: str  # which table or figure of the paper

    @abstractmethod
    def settings(self, *, quick: bool = False, full: bool = False) -> S:
        """Return the settings of a run.

        Args:
            quick: a small version, in minutes.
            full: all that the paper did, where the default is less.

        Returns:
            The settings, frozen; `pieces` and `run_piece` get them.
        """

    @abstractmethod
    def pieces(self, settings: S) -> Pieces:
        """Return the keys of all pieces.

        Args:
            settings: those of the run.

        Returns:
            The keys in the order in which they are run. Where pieces read from the cache what others put there, a
            mapping from every key to the keys of the pieces that must be done before it.
        """

    @abstractmethod
    def run_piece(self, key: str, settings: S, *, cache: Path) -> dict[str, Any]:
        """Do one piece.

        Args:
            key: one of `pieces`.
            settings: those of the run.
            cache: a folder for what pieces and experiments share, trained weights say; it may be deleted.

        Returns:
            What was found, as JSON can hold it; all numbers finite.
        """

    @abstractmethod
    def page(self, result: Result) -> str:
        """Return the body of the experiment's page in Markdown; the runner adds title and settings.

        Args:
            result: a complete run.
        """

    def charts(self, result: Result, folder: Path) -> None:
        """Draw pictures, if there are any.

        Args:
            result: a complete run.
            folder: where the pictures go, named `<experiment>-….png`; a page finds them at `../images/`.
        """
