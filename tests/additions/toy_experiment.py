"""An experiment from outside the package: sums of numbers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from infoform.experiments import Experiment, Result, Settings


class Sums(Experiment[Settings]):
    """A piece is a number."""

    name = "toy-experiment"
    summary = "Numbers, doubled."
    reproduces = "nothing"

    def settings(self, *, quick: bool = False, full: bool = False) -> Settings:
        return Settings()

    def pieces(self, settings: Settings) -> Sequence[str]:
        return ["1", "2"]

    def run_piece(self, key: str, settings: Settings, *, cache: Path) -> dict[str, Any]:
        return {"doubled": 2 * int(key)}

    def page(self, result: Result) -> str:
        return f"The sum is {sum(piece['doubled'] for piece in result.pieces.values())}."


EXPERIMENT = Sums()
