"""An experiment whose page has a table, a picture and HTML."""

import base64
from pathlib import Path

from infoform.experiments.base import Settings
from infoform.records.study_result import Result

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


class Tiny:
    """What a report uses of an experiment."""

    summary = "A tiny <experiment>."
    reproduces = "nothing"

    def settings(self) -> Settings:
        return Settings()

    def page(self, result: Result) -> str:
        return (
            "# Title\n\n| a | b |\n|---|---|\n| 1 | <script>alert(1)</script> |\n\n![Chart](../images/tiny.png)\n\n"
            f"See [another page](../other.md). {result.pieces['one']['value']}"
        )

    def charts(self, result: Result, folder: Path) -> None:
        (folder / "tiny.png").write_bytes(PNG)


EXPERIMENT = Tiny()
