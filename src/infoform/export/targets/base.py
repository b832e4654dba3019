"""What a target must tell: how a program becomes a file, and how that file is run by its own runtime."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

from numpy import ndarray
from torch.export import ExportedProgram

Runner = Callable[[Mapping[str, "ndarray[Any, Any]"]], dict[str, "ndarray[Any, Any]"]]


class Target(ABC):
    """A file format with a runtime; holds no state.

    Attributes:
        name: in `TARGETS`, and the suffix of its files.
        packages: what must be installed to write and to check a file.
        extra: the extra of infoform that installs these.
        max_batch: the largest batch, where memory is planned when the file is written; None for any.
    """

    name: ClassVar[str]
    packages: ClassVar[tuple[str, ...]] = ()
    extra: ClassVar[str] = ""
    max_batch: ClassVar[int | None] = None

    def check_installed(self) -> None:
        """Raise an ImportError that says what to install, unless all is there."""
        missing = [name for name in self.packages if find_spec(name) is None]
        if missing:
            raise ImportError(
                f"export to .{self.name} needs {', '.join(missing)}, not installed here: "
                f"pip install 'infoform[{self.extra}]'."
            )

    @abstractmethod
    def write(self, program: ExportedProgram, path: Path, *, names: "Names", manifest: str) -> None:
        """Write a program to a file, with a manifest inside it."""

    @abstractmethod
    def open(self, path: Path, names: "Names") -> Runner:
        """Return what runs a file by the target's own runtime."""

    @abstractmethod
    def read_manifest(self, path: Path) -> str:
        """Return the manifest of a file."""

    @abstractmethod
    def versions(self) -> dict[str, str]:
        """Return the versions of the packages that write and run the file."""


class Names:
    """The names of a graph's inputs and outputs, in order."""

    def __init__(self, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> None:
        self.inputs, self.outputs = inputs, outputs
