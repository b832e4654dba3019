"""torch.export: a .pt2 archive, read by PyTorch alone; the manifest is a file in it."""

from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch.export import ExportedProgram

from infoform.export.targets.base import Names, Runner, Target
from infoform.export.trace import quiet

FILE = "manifest.json"


class Pt2(Target):
    """An exported program, by torch.export."""

    name: ClassVar[str] = "pt2"

    def write(self, program: ExportedProgram, path: Path, *, names: Names, manifest: str) -> None:
        for node in program.graph.nodes:
            node.meta.pop("stack_trace", None)  # lines of the code it came from: half of a small file
        with quiet():
            torch.export.save(program, path, extra_files={FILE: manifest})

    def open(self, path: Path, names: Names) -> Runner:
        with quiet():
            module = torch.export.load(path).module()

        def run(inputs: Mapping[str, Any]) -> dict[str, Any]:
            with torch.no_grad():
                found = module(*(torch.from_numpy(inputs[name]) for name in names.inputs))
            return {name: found[name].numpy() for name in names.outputs}

        return run

    def read_manifest(self, path: Path) -> str:
        extra = {FILE: ""}
        with quiet():
            torch.export.load(path, extra_files=extra)
        return extra[FILE]

    def versions(self) -> dict[str, str]:
        return {"torch": version("torch")}
