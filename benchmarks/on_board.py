"""What a posterior costs on board: bytes, latency and scores of exported files, run by onnxruntime on one thread.

    python -m benchmarks.on_board             # writes benchmarks/results/on_board.json, network by network
    python -m benchmarks.on_board --page      # writes docs/on-board.md from it, runs nothing

LeNet on MNIST, ResNet-20 on CIFAR-10 and EfficientNet-Lite0 on ImageNet, the networks of benchmarks/novelty. Every
file is written by `Laplace.export`; scores are those of the file's own outputs. A latency is the least of many runs of
one example, since others may use the machine at the same time.
"""

import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.common import (
    command_line,
    read_results,
    run_fold,
    template,
    versions,
    write_page,
    write_results,
)
from benchmarks.novelty.networks import CASES
from torch import Tensor, nn

import infoform
from infoform.common.bytes import show_bytes
from infoform.export.targets import TARGETS
from infoform.export.write import TOLERANCE
from infoform.metrics import accuracy, ece, nll
from infoform.pages.markdown import table
from infoform.predicting.kinds import MANY_OUTPUTS
from infoform.tuning.temperature import best_temperature

SIZES = {"mnist": (2000, 500, 2000), "resnet20": (1000, 500, 500), "efficientnet": (250, 125, 125)}  # fit, val, test
FORMS = {  # by network; sampled networks where a posterior over all layers is soon fitted
    "mnist": [("last-layer", "float32"), ("last-layer", "int8"), ("samples", "int8")],
    "resnet20": [("last-layer", "float32"), ("last-layer", "int8")],
    "efficientnet": [("last-layer", "float32"), ("last-layer", "int8")],
}
NETWORKS = 16
SECONDS = 3.0  # of each latency


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "infoform-networks")
    parser.add_argument("--only", choices=list(SIZES), nargs="+", default=list(SIZES))
    arguments = parser.parse_args()
    if not arguments.page:
        torch.set_num_threads(1)
        for name in arguments.only:
            rows = measure(name, arguments.cache)
            found = read_results("on_board", empty={"networks": {}})  # now: another process may have added a network
            found["networks"][name] = with_least_plain(rows, found["networks"].get(name))
            found |= {"settings": {"sizes": SIZES, "networks": NETWORKS, "threads": 1}, "versions": versions()}
            write_results("on_board", found)
    write_page("on-board", page())


def measure(name: str, cache: Path) -> dict[str, Any]:
    """Return the rows of one network."""
    case, (fit, val, test) = CASES[name], SIZES[name]
    cache.mkdir(parents=True, exist_ok=True)
    model, known = case.load(cache), case.known()

    def batches(images: Any, count: int) -> list[tuple[Tensor, Tensor]]:
        chosen = images[:: max(1, len(images.labels) // count)][:count]
        pixels, labels = case.scaled(chosen.pixels), chosen.labels
        return list(zip(pixels.split(case.batch), labels.split(case.batch), strict=True))

    train, validation, fresh = batches(known.train, fit), batches(known.validation, val), batches(known.fresh, test)
    x, y = torch.cat([one for one, _ in fresh]), torch.cat([one for _, one in fresh])
    with tempfile.TemporaryDirectory() as folder:
        rows = [plain_row(model, x, y, validation)]
        laplace = infoform.Laplace(model, "classification", layers="last").fit(train, progress=False)
        laplace.tune(validation, progress=False)
        for kind, precision in FORMS[name]:
            own, options = laplace, {}
            if kind == "samples":
                own = infoform.Laplace(model, "classification").fit(train, progress=False)
                own.tune(validation, kind="mc", samples=NETWORKS, trials=5, progress=False)
            if kind != "last-layer":
                options = {"samples": NETWORKS}
            done = own.export(
                Path(folder) / "model.onnx",
                kind=kind,
                precision=precision,
                example=x[:4],
                **options,  # type: ignore[arg-type]
            )
            probs, seconds = run_file(done.path, x)
            rows.append(
                {"form": kind, "precision": precision, "bytes": done.nbytes, "seconds": seconds}
                | {"parity": max(done.differences.values()), "link": done.manifest["link"], **scores(probs, y)}
            )
            print(name, rows[-1], flush=True)
    return {"title": case.title, "classes": int(y.max()) + 1, "test": len(y), "rows": rows}


def with_least_plain(one: dict[str, Any], earlier: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a network's rows with the least latency of the network alone in this run and an earlier one.

    An export leaves the network as it was, so that a longer time is only that of a busier machine.
    """
    plain, *files = one["rows"]
    seconds = [plain["seconds"], *(row["seconds"] for row in (earlier or one)["rows"] if row["form"] == "plain")]
    return {**one, "rows": [{**plain, "seconds": min(seconds)}, *files]}


def plain_row(model: nn.Module, x: Tensor, y: Tensor, validation: list[tuple[Tensor, Tensor]]) -> dict[str, Any]:
    """Return the network alone in PyTorch: its scores without and with a temperature."""
    with torch.no_grad():
        logits = torch.cat([model(one) for one, _ in validation])
        found = torch.cat([model(one) for one in x.split(50)])
        seconds = least_seconds(lambda: model(x[:1]))
    labels = torch.cat([one for _, one in validation])
    temperature = best_temperature(lambda t: nll((logits / t).softmax(1), labels))
    with_temperature = scores((found / temperature).softmax(1), y)
    size = sum(one.nbytes for one in model.state_dict().values())
    return {
        "form": "plain", "precision": "float32", "bytes": size, "seconds": seconds, "parity": None,
        "temperature": temperature, **scores(found.softmax(1), y), "tempered": with_temperature,
    }  # fmt: skip


def scores(probs: Tensor, y: Tensor) -> dict[str, float]:
    return {"accuracy": accuracy(probs, y), "nll": nll(probs, y), "ece": ece(probs, y)}


def run_file(path: Path, x: Tensor, *, output: str = "probs") -> tuple[Tensor, float]:
    """Return an output for all inputs, and the least seconds that one input takes."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name

    def run(part: Tensor) -> Any:
        return session.run([output], {name: part.numpy()})[0]

    found = torch.from_numpy(np.concatenate([run(part) for part in x.split(50)]))
    return found, least_seconds(lambda: run(x[:1]))


def least_seconds(call: Callable[[], object]) -> float:
    times: list[float] = []
    begin = time.perf_counter()
    while len(times) < 20 or time.perf_counter() - begin < SECONDS:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def page() -> str:
    """Return docs/on-board.md."""
    found = read_results("on_board")
    networks = found["networks"]
    first = [line for one in networks.values() for line in _short(one)]
    whole = [line for one in networks.values() for row in one["rows"] for line in _lines(one, row)]
    resnet = networks["resnet20"]["rows"]
    times = resnet[1]["seconds"] / resnet[0]["seconds"]
    parity = max(row["parity"] or 0 for one in networks.values() for row in one["rows"])
    left = [CASES[name].title for name in SIZES if name not in networks]
    return template("on_board").fill(
        answer=table(["", "file", "one example", "NLL", "calibration error"], first),
        whole=table(["", "weights", "file", "one example", "accuracy", "NLL", "calibration error"], whole),
        resnet_times=f"{times:.1f}",
        resnet_more=show_bytes(resnet[1]["bytes"] - resnet[0]["bytes"]),
        parity=f"{parity:.0e}",
        older=", of a variance that was still computed in float32" if parity > TOLERANCE else "",
        missing=f" {' and '.join(left)}: not run yet." if left else "",
        heads=NETWORKS,
        many=MANY_OUTPUTS,
        tests=", ".join(f"{one['test']:,} of {one['title']}" for one in networks.values()),
        pte_batch=TARGETS["pte"].max_batch,
        run=run_fold(found["settings"], found["versions"]),
    )


def _short(one: Mapping[str, Any]) -> list[list[str]]:
    """Return the network alone, with a temperature, and the last layer."""
    plain, last = one["rows"][0], one["rows"][1]
    tempered = {**plain, **plain["tempered"]}
    named = {"network alone": plain, "with a temperature": tempered, "**last layer, exported**": last}
    return [
        [f"{one['title']}, {label}", show_bytes(row["bytes"]), _ms(row), f"{row['nll']:.3f}", f"{row['ece']:.3f}"]
        for label, row in named.items()
    ]


def _lines(one: Mapping[str, Any], row: Mapping[str, Any]) -> list[list[str]]:
    label = {"plain": "network alone", "heads": f"{NETWORKS} sampled last layers", "samples": f"{NETWORKS} networks"}
    form = label.get(row["form"], "last layer")
    cells = [f"{one['title']}, {form}", row["precision"], show_bytes(row["bytes"]), _ms(row)]
    return [[*cells, f"{row['accuracy']:.1%}", f"{row['nll']:.3f}", f"{row['ece']:.3f}"]]


def _ms(row: Mapping[str, Any]) -> str:
    return f"{1e3 * row['seconds']:.2f} ms"


if __name__ == "__main__":
    main()
