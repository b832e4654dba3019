"""ExecuTorch: a .pte program for small devices, by XNNPACK where it can; the manifest is its method `manifest`."""

from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch.export import ExportedProgram

from infoform.export.targets.base import Names, Runner, Target
from infoform.export.trace import explained, quiet

METHOD = "manifest"


class Pte(Target):
    """An ExecuTorch program with XNNPACK's kernels; memory is planned for batches of up to `max_batch`."""

    name: ClassVar[str] = "pte"
    packages: ClassVar[tuple[str, ...]] = ("executorch",)
    extra: ClassVar[str] = "executorch"
    max_batch: ClassVar[int | None] = 16

    def write(self, program: ExportedProgram, path: Path, *, names: Names, manifest: str) -> None:
        with quiet(), explained("ExecuTorch"):
            from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
            from executorch.exir import to_edge_transform_and_lower

            lowered = to_edge_transform_and_lower(
                program, partitioner=[XnnpackPartitioner()], constant_methods={METHOD: manifest}
            )
            path.write_bytes(lowered.to_executorch().buffer)

    def open(self, path: Path, names: Names) -> Runner:
        method = self._method(path, "forward")

        def run(inputs: Mapping[str, Any]) -> dict[str, Any]:
            try:
                found = method.execute([torch.from_numpy(inputs[name]) for name in names.inputs])
            except RuntimeError as error:
                raise ValueError(
                    f"ExecuTorch's runtime cannot run the exported file ({error}), which is not kept; "
                    "export to .onnx or .pt2."
                ) from error
            return {name: one.clone().numpy() for name, one in zip(names.outputs, found, strict=True)}

        return run

    def read_manifest(self, path: Path) -> str:
        (manifest,) = self._method(path, METHOD).execute([])
        return str(manifest)

    def versions(self) -> dict[str, str]:
        return {name: version(name) for name in ("torch", "executorch")}

    def _method(self, path: Path, name: str) -> Any:
        with quiet():
            from executorch.runtime import Runtime

            return Runtime.get().load_program(path).load_method(name)
