"""`infoform.compare` on a public network: ResNet-20 with its public CIFAR-10 weights, and SVHN as what is unknown.

    python -m benchmarks.compare --cifar cifar10.npz      # writes benchmarks/results/compare.json

The curvature is measured on training images, methods are tuned on some test images and scored on others. Weights and
SVHN are read from the folder `INFOFORM_DATA`. `--page` writes docs/compare.md from the result. A run
that was interrupted goes on from the methods that are done.
"""

from pathlib import Path

import torch
from benchmarks.common import DOCS, RESULTS, command_line, read_results, rounded, versions, write_results
from benchmarks.front_page import BEGIN, END
from benchmarks.speed.cifar_resnet import load_resnet20
from torch import Tensor

import infoform
from infoform.common.bytes import show_bytes
from infoform.common.json_values import from_json, to_json
from infoform.comparing import METHODS
from infoform.data import cifar10, svhn
from infoform.data.images import Images
from infoform.experiments.networks import cifar_resnets
from infoform.pages.markdown import table
from infoform.records.compare import CompareResult
from infoform.records.compare_table import BY, forwards, signed

CURVATURE, VALIDATION, TEST, UNKNOWN, SAMPLES, BATCH = 2000, 600, 1500, 1000, 20, 100


def batches(images: Images) -> list[tuple[Tensor, Tensor]]:
    scaled = cifar_resnets.scaled(images.pixels)
    return list(zip(scaled.split(BATCH), images.labels.split(BATCH), strict=True))


def measured() -> str:
    """Return what docs/compare.md shows of the committed result."""
    found = from_json(CompareResult, read_results("compare")["result"])
    rows = []
    for one in found.methods:
        gain = one.to_plain.get("nll")
        shown = f"{one.scores['nll']:.3f}" if gain is None else f"{one.scores['nll']:.3f} ({signed(gain, digits=3)})"
        ece = f"{one.scores['ece']:.3f} ({one.calibrated_ece:.3f})"
        signs = one.unknown["SVHN"]
        aurocs = (f"{signs[sign].auroc:.3f}" if sign in signs else "–" for sign in BY)
        size = "–" if one.cost.nbytes is None else show_bytes(one.cost.nbytes)
        rows.append((one.name, shown, ece, *aurocs, forwards(one.cost.predict), forwards(one.cost.tune), size))
    head = ("ResNet-20, CIFAR-10", "NLL (difference to plain, 95 % interval)", "ECE (perfect calibration)",
            *(f"AUROC, SVHN, by {sign}" for sign in BY.values()), "predict", "tune", "bytes")  # fmt: skip
    tuned = f"{found.validation_examples:,} to tune on" if found.validation_examples else "none to tune on"
    left_out = [name for name in METHODS if name not in {one.name for one in found.methods}]
    about = f"{found.examples:,} test images, {tuned}, {found.unknown_examples['SVHN']:,} of SVHN, defaults everywhere."
    if left_out:
        about += f" Not run: {', '.join(left_out)}."
    about += " `predict` and `tune` are in plain forward passes."
    return f"> {found.recommendation.reason}\n\n{table(head, rows)}\n\n{about}"


def write_block() -> None:
    """Write the result into docs/compare.md."""
    path = DOCS / "compare.md"
    head, _, rest = path.read_text(encoding="utf-8").partition(BEGIN)
    path.write_text(f"{head}{BEGIN}\n\n{measured()}\n\n{END}{rest.partition(END)[2]}", encoding="utf-8")


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--cifar", type=Path, help="the file cifar10.npz")
    parser.add_argument("--methods", nargs="*", choices=list(METHODS), help="default: all")
    arguments = parser.parse_args()
    if arguments.page:
        write_block()
        return
    if arguments.cifar is None:
        parser.error("--cifar names the file cifar10.npz")
    train = cifar10.load("train", root=arguments.cifar.parent)[:CURVATURE]
    test, strange = cifar10.load("test", root=arguments.cifar.parent), svhn.load()
    order = torch.randperm(len(test.labels), generator=torch.Generator().manual_seed(0))
    model = load_resnet20()
    laplace = infoform.Laplace(model, "classification").fit(batches(train), progress=False)
    unlike = torch.randperm(len(strange.labels), generator=torch.Generator().manual_seed(0))[:UNKNOWN]
    found = infoform.compare(
        laplace,
        batches(test[order[VALIDATION : VALIDATION + TEST]]),
        val_loader=batches(test[order[:VALIDATION]]),
        unknown={"SVHN": batches(strange[unlike])},
        methods=arguments.methods,
        samples=SAMPLES,
        path=RESULTS / "compare.part.json",
    )
    (RESULTS / "compare.part.json").unlink()
    print(found)
    settings = {"curvature": CURVATURE, "validation": VALIDATION, "test": TEST, "unknown": UNKNOWN, "samples": SAMPLES}
    write_results("compare", {"result": rounded(to_json(found)), "settings": settings, "versions": versions()})


if __name__ == "__main__":
    main()
