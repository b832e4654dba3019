"""Targets of an export: to add one, write a file with a `Target` and a line in `TARGETS`."""

from infoform.export.targets.base import Names, Runner, Target
from infoform.export.targets.onnx import Onnx
from infoform.export.targets.pt2 import Pt2
from infoform.export.targets.pte import Pte

TARGETS: dict[str, Target] = {  # by the suffix of its files
    "onnx": Onnx(),
    "pt2": Pt2(),
    "pte": Pte(),
}

__all__ = ["TARGETS", "Names", "Runner", "Target"]
