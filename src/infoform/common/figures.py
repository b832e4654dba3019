"""Pictures of Matplotlib as whole files."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infoform.common.whole_files import writing

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def save_figure(figure: "Figure", path: str | os.PathLike[str], **how: Any) -> None:
    """Write a figure in the format that the file's ending names; a file that is there as a whole or not at all.

    Args:
        figure: What is drawn.
        path: The file.
        how: What `Figure.savefig` takes besides.
    """
    with writing(path) as file:
        figure.savefig(file, format=Path(path).suffix.removeprefix(".") or "png", **how)
