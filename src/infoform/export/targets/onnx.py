"""ONNX: one file with its weights and, as metadata, the manifest; run by onnxruntime."""

from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch.export import ExportedProgram

from infoform.export.targets.base import Names, Runner, Target
from infoform.export.trace import explained, quiet

KEY = "infoform"  # of the manifest among a file's metadata
FOLD = 256  # numbers up to which a stored tensor may be decoded in the file; onnxruntime decodes the others as it loads


class Onnx(Target):
    """An ONNX model, by torch.onnx and onnxscript."""

    name: ClassVar[str] = "onnx"
    packages: ClassVar[tuple[str, ...]] = ("onnx", "onnxscript", "onnxruntime")
    extra: ClassVar[str] = "onnx"

    def write(self, program: ExportedProgram, path: Path, *, names: Names, manifest: str) -> None:
        with quiet(), explained("torch.onnx"):
            from onnxscript.optimizer import optimize
            from onnxscript.rewriter.onnx_fusions import fuse

            model = torch.onnx.export(
                program,
                dynamo=True,
                input_names=list(names.inputs),
                output_names=list(names.outputs),
                verbose=False,
                optimize=False,
            )
            assert model is not None
            optimize(model.model, input_size_limit=FOLD)  # torch's own call decodes up to 8192 int8 numbers to float64
            fuse(model.model)
        graph = model.model.graph
        public = {id(one) for one in (*graph.inputs, *graph.outputs)}
        for node in graph:
            node.metadata_props.clear()  # names and lines of the code it came from: three quarters of a small file
            for one in node.outputs:  # what torch calls "mean" inside must not be taken for the output of that name
                if one.name in (*names.inputs, *names.outputs) and id(one) not in public:
                    one.name = f"inside/{one.name}"
        model.model.metadata_props[KEY] = manifest
        model.save(path, external_data=False)

    def open(self, path: Path, names: Names) -> Runner:
        import onnxruntime

        with explained("onnxruntime"):
            session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])

        def run(inputs: Mapping[str, Any]) -> dict[str, Any]:
            with explained("onnxruntime"):
                found = session.run(list(names.outputs), dict(inputs))
            return dict(zip(names.outputs, found, strict=True))

        return run

    def read_manifest(self, path: Path) -> str:
        import onnxruntime

        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        return str(session.get_modelmeta().custom_metadata_map[KEY])

    def versions(self) -> dict[str, str]:
        return {name: version(name) for name in ("torch", *self.packages)}
