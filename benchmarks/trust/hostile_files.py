"""Files that are broken, foreign or absurd: each must be refused in one sentence, or be harmless.

Unsigned files are changed in their bytes (flipped, cut, filled, joined). Signed files are right in form and checksum,
and hold values, names, shapes or types that make no sense. What happens to a file is one of

    refused     with the error that is meant for users
    harmless    it is read, and what follows is finite and raises nothing
    raw         another exception came out
    absurd      it was read, and then something failed or was not finite
    hung        nothing came out within LIMIT seconds of computing, or ten times as many of waiting
"""

import io
import json
import random
import signal
import tempfile
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
import typer
import yaml
from torch import Tensor, nn

import infoform
from infoform.cli.config_file import read_config
from infoform.cli.mistakes import Mistake
from infoform.cli.model_source import load_weights
from infoform.cli.options import DataOptions
from infoform.cli.sources import Reading, open_data
from infoform.common import files
from infoform.likelihoods import get_likelihood

from . import claim

LIMIT = 20  # seconds that a file may take
WHOLE = {  # how many of each kind
    "posterior, unsigned": 2000,
    "posterior, signed": 3000,
    "checkpoint, unsigned": 800,
    "checkpoint, signed": 1200,
    "weights": 900,
    "npz": 600,
    "YAML": 600,
    "tables": 600,
    "images": 300,
}
QUICK = 150  # of each kind
STRANGE: list[Any] = [
    None, True, 0, -1, 1, 2**63, 1e308, -1e-308, float("nan"), float("inf"), -float("inf"), "", "x", "0", "../../x",
    [], [[]], {}, {"x": 1}, [None], [1] * 7, "a" * 5000, {"0": {}}, "\0",
]  # fmt: skip


class Hung(BaseException):
    """A file took longer than LIMIT."""


def run(*, quick: bool, seed: int) -> dict[str, Any]:
    """Try all files; return how many of each kind met which end, and the first examples of bad ends.

    Args:
        quick: Whether a few of each kind will do.
        seed: Of the changes.
    """
    chance = random.Random(seed)
    ends: dict[str, Counter[str]] = {}
    bad: list[str] = []
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for kind, count in WHOLE.items():
            attempts = KINDS[kind](Path(name), chance)
            ends[kind] = Counter()
            for _ in range(min(count, QUICK) if quick else count):
                what, attempt = next(attempts)
                end = _end(attempt)
                ends[kind][end.partition(":")[0]] += 1
                if end.partition(":")[0] not in ("refused", "harmless") and len(bad) < 30:
                    bad.append(f"{kind}: {what}: {end}")
    total: Counter[str] = sum(ends.values(), Counter())
    tried, bad_ends = total.total(), total.total() - total["refused"] - total["harmless"]
    return {
        "claims": [
            claim(
                "broken, foreign and absurd files are refused in a sentence, or harmless",
                bad_ends == 0,
                f"{tried - bad_ends:,} of {tried:,} files",
            )
        ],
        "files": tried,
        "refused": total["refused"],
        "harmless": total["harmless"],
        "bad": bad_ends,
        "by_kind": {kind: dict(one) for kind, one in ends.items()},
        "examples": bad,
    }


def _end(attempt: Callable[[], Callable[[], None]]) -> str:
    """Return what happens when a file is read, and when what was read is used."""
    with _limited():
        try:
            use = attempt()
        except (infoform.BadFileError, Mistake, typer.TyperException):
            return "refused"
        except Hung:
            return "hung"
        except Exception as error:
            if isinstance(error, ValueError) and "delete the checkpoint" in str(error):
                return "refused"  # a fit that was stopped tells other data so
            return f"raw: {type(error).__name__}: {str(error)[:100]}"
        try:
            use()
        except (infoform.BadFileError, Mistake, typer.TyperException):
            return "refused"
        except Hung:
            return "hung"
        except Exception as error:
            if isinstance(error, ValueError) and "give a prior_precision above 0" in str(error):
                return "refused"  # a prior of 0 is no mistake of the file; where it is used it may be one
            return f"absurd: {type(error).__name__}: {str(error)[:100]}"
    return "harmless"


@contextmanager
def _limited() -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise Hung

    clocks = {signal.SIGPROF: (signal.ITIMER_PROF, LIMIT), signal.SIGALRM: (signal.ITIMER_REAL, 10 * LIMIT)}
    before = {number: signal.signal(number, stop) for number in clocks}
    for timer, seconds in clocks.values():
        signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        for number, (timer, _) in clocks.items():
            signal.setitimer(timer, 0)
            signal.signal(number, before[number])


Attempt = tuple[str, Callable[[], Callable[[], None]]]


def _model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))


def _data(count: int = 3) -> list[tuple[Tensor, Tensor]]:
    torch.manual_seed(1)
    return [(torch.randn(6, 3), torch.randint(0, 2, (6,))) for _ in range(count)]


def _posteriors(folder: Path) -> list[tuple[Path, nn.Module]]:
    """Save posteriors of every structure, of a regression, and with the curvature."""
    made = []
    for structure in ("inf", "diag", "kfac", "efb", "full"):
        for curvature in (False, True):
            model = _model()
            laplace = infoform.Laplace(model, "classification", structure=structure)
            path = folder / f"{structure}-{curvature}.safetensors"
            laplace.fit(_data(), progress=False).save(path, curvature=curvature)
            made.append((path, model))
    model = _model()
    laplace = infoform.Laplace(model, "regression", prior=infoform.Isotropic(2.0))
    laplace.fit([(x, torch.randn(6, 2)) for x, _ in _data()], progress=False).save(folder / "regression.safetensors")
    return [*made, (folder / "regression.safetensors", model)]


def _load(path: Path, model: nn.Module) -> Callable[[], None]:
    laplace = infoform.load(path, model)

    def use() -> None:
        prediction = laplace.predict(_data()[0][0], seed=0)
        shown = prediction.probs if prediction.probs is not None else prediction.mean
        if not shown.isfinite().all() or not prediction.epistemic.isfinite().all():
            raise ValueError("predictions are not finite")
        if bool((prediction.epistemic < 0).any()):
            raise ValueError("variances are negative")
        laplace.sample(1, seed=0)

    return use


def _unsigned_posteriors(folder: Path, chance: random.Random) -> Iterator[Attempt]:
    sources = _posteriors(folder)
    target = folder / "unsigned.safetensors"
    while True:
        path, model = chance.choice(sources)
        what, content = _broken(path.read_bytes(), chance)
        target.write_bytes(content)
        yield f"{path.name} {what}", lambda model=model: _load(target, model)  # type: ignore[misc]


def _signed_posteriors(folder: Path, chance: random.Random) -> Iterator[Attempt]:
    sources = [(*files.read_file(path), model) for path, model in _posteriors(folder)]
    target = folder / "signed.safetensors"
    while True:
        tensors, metadata, model = chance.choice(sources)
        what, changed, about = _absurd(tensors, metadata, chance)
        try:
            files.write_file(target, changed, about)
        except (TypeError, ValueError):
            continue  # what cannot be written cannot be met
        yield what, lambda model=model: _load(target, model)  # type: ignore[misc]


def _checkpoint(folder: Path) -> Path:
    """Leave the checkpoint of a fit that was stopped in its second pass."""

    class Stop(Exception):
        pass

    class Stopping(list[Any]):
        reads = 0

        def __iter__(self) -> Iterator[Any]:
            Stopping.reads += 1
            for place, batch in enumerate(list.__iter__(self)):
                if Stopping.reads == 2 and place == 2:
                    raise Stop
                yield batch

    own = Path(tempfile.mkdtemp(dir=folder))
    try:
        _fit(_model(), Stopping(_data()), own)
    except Stop:
        return own
    raise AssertionError("the fit was not stopped")


def _fit(model: nn.Module, data: list[Any], folder: Path) -> infoform.Laplace:
    return infoform.Laplace(model, "classification").fit(data, checkpoint=folder, checkpoint_every=0, progress=False)


def _resume(folder: Path, content: bytes) -> Callable[[], None]:
    for path in folder.iterdir():
        path.unlink()
    (folder / "pass-2.safetensors").write_bytes(content)
    laplace = _fit(_model(), _data(), folder)

    def use() -> None:
        if not laplace.predict(_data()[0][0], seed=0).epistemic.isfinite().all():
            raise ValueError("predictions are not finite")

    return use


def _unsigned_checkpoints(folder: Path, chance: random.Random) -> Iterator[Attempt]:
    own = _checkpoint(folder)
    whole = (own / "pass-2.safetensors").read_bytes()
    while True:
        what, content = _broken(whole, chance)
        yield what, lambda content=content: _resume(own, content)  # type: ignore[misc]


def _signed_checkpoints(folder: Path, chance: random.Random) -> Iterator[Attempt]:
    own = _checkpoint(folder)
    tensors, metadata = files.read_file(own / "pass-2.safetensors")
    target = folder / "signed-checkpoint"
    while True:
        what, changed, about = _absurd(tensors, metadata, chance)
        try:
            files.write_file(target, changed, about)
        except (TypeError, ValueError):
            continue
        content = target.read_bytes()
        yield what, lambda content=content: _resume(own, content)  # type: ignore[misc]


def _weights(folder: Path, chance: random.Random) -> Iterator[Attempt]:
    state = _model().state_dict()
    stream = io.BytesIO()
    torch.save(state, stream)
    files.write_tensors(folder / "weights.safetensors", state)
    whole = {".pt": stream.getvalue(), ".safetensors": (folder / "weights.safetensors").read_bytes()}
    while True:
        ending = chance.choice(list(whole))
        what, content = _broken(whole[ending], chance)
        if chance.random() < 0.4:
            what, _, changed = _absurd({}, dict(state), chance)
            stream = io.BytesIO()
            torch.save(changed, stream)
            ending, content = ".pt", stream.getvalue()
        path = folder / f"hostile{ending}"
        path.write_bytes(content)

        def read(path: Path = path) -> Callable[[], None]:
            model = _model()
            load_weights(model, path)
            return lambda: None

        yield f"{ending} {what}", read


def _npz(folder: Path, chance: random.Random) -> Iterator[Attempt]:
    stream = io.BytesIO()
    np.savez(stream, x=np.ones((5, 3), np.float32), y=np.zeros(5, np.int64))
    while True:
        what, content = _broken(stream.getvalue(), chance)
        if chance.random() < 0.5:
            packed = io.BytesIO()
            array = _strange_array(chance)
            np.savez(packed, x=array, y=np.zeros(len(array) if array.ndim else 1, np.int64))
            what, content = f"{array.dtype} {array.shape}", packed.getvalue()
        elif chance.random() < 0.2:
            packed = io.BytesIO()
            with zipfile.ZipFile(packed, "w") as archive:
                archive.writestr(chance.choice(["x.npy", "../x.npy", "x"]), bytes(chance.randrange(200)))
            what, content = "a zip of something else", packed.getvalue()
        yield what, _reader(folder / "hostile.npz", content)


def _yaml(folder: Path, chance: random.Random) -> Iterator[Attempt]:
    context: Any = typer.main.get_command(_app()).make_context("fit", [], resilient_parsing=True)
    whole = yaml.safe_dump({"data": "x.csv", "rank": 100, "layers": ["a", "b"], "seed": 3}).encode()
    bombs = [
        b"a: &a [x, x]\n" + b"".join(b"%c: &%c [*%c, *%c]\n" % (98 + i, 98 + i, 97 + i, 97 + i) for i in range(20))
    ]
    bombs += [
        b"[" * 5000,
        b"!!python/object/apply:os.system ['touch pwned']",
        b"? " * 3000,
        b"\xff\xfe",
        b"rank: !!float x",
    ]
    while True:
        what, content = _broken(whole, chance)
        if chance.random() < 0.4:
            content = chance.choice(bombs)
            what = repr(content[:20])
        elif chance.random() < 0.5:
            content = yaml.safe_dump(
                {chance.choice(["rank", "data", "seed", 3, None]): chance.choice(STRANGE)}
            ).encode()
            what = repr(content[:30])
        path = folder / "hostile.yaml"
        path.write_bytes(content)

        def read(path: Path = path) -> Callable[[], None]:
            read_config(context, path)
            return lambda: None

        yield what, read


def _app() -> typer.Typer:
    from infoform.cli import app
    from infoform.cli.groups import with_groups
    from infoform.cli.verbs.fit import fit

    assert app is not None
    alone = typer.Typer()
    alone.command("fit")(with_groups(fit))
    return alone


def _tables(folder: Path, chance: random.Random) -> Iterator[Attempt]:
    whole = b"a,b,c,y\n" + b"".join(b"%d,%d.5,3,%d\n" % (row, row, row % 2) for row in range(6))
    while True:
        what, content = _broken(whole, chance)
        if chance.random() < 0.3:
            cell = str(chance.choice(STRANGE))[:50]
            content, what = whole.replace(b"3,", cell.encode(errors="replace") + b",", 1), f"cell {cell!r}"
        yield what, _reader(folder / "hostile.csv", content)


def _images(folder: Path, chance: random.Random) -> Iterator[Attempt]:
    from PIL import Image

    whole = {}
    for ending in ("png", "jpeg", "bmp", "gif"):
        stream = io.BytesIO()
        Image.new("RGB", (8, 8), (200, 30, 40)).save(stream, ending)
        whole[ending] = stream.getvalue()
    root = folder / "pictures"
    for name in ("a", "b"):
        (root / name).mkdir(parents=True, exist_ok=True)
        (root / name / "good.png").write_bytes(whole["png"])
    while True:
        ending = chance.choice(list(whole))
        what, content = _broken(whole[ending], chance)
        if ending == "png" and chance.random() < 0.3:  # a small file that says it is enormous
            content = whole["png"][:16] + (2**31 - 1).to_bytes(4, "big") * 2 + whole["png"][24:]
            what = "enormous"
        for old in (root / "a").glob("hostile.*"):
            old.unlink()
        (root / "a" / f"hostile.{ending}").write_bytes(content)

        def read() -> Callable[[], None]:
            options = DataOptions(image_size="8")
            data = open_data(str(root), Reading(options, get_likelihood("classification")))
            return lambda: _read_all(data.loader)

        yield f"{ending} {what}", read


def _reader(path: Path, content: bytes) -> Callable[[], Callable[[], None]]:
    def read() -> Callable[[], None]:
        path.write_bytes(content)
        target = "y" if path.suffix == ".csv" else None
        data = open_data(str(path), Reading(DataOptions(target=target), get_likelihood("classification")))
        return lambda: _read_all(data.loader)

    return read


def _read_all(loader: Iterable[Any]) -> None:
    for _ in loader:
        pass


def _broken(content: bytes, chance: random.Random) -> tuple[str, bytes]:
    """Return a file whose bytes were changed."""
    where = chance.randrange(max(1, len(content)))
    how = chance.choice(["flip", "cut", "fill", "repeat", "empty", "noise", "head"])
    if how == "flip":
        changed = bytearray(content)
        for _ in range(chance.randint(1, 4)):
            changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
        return f"flip at {where}", bytes(changed)
    other = {
        "cut": content[:where],
        "fill": content[:where] + bytes(chance.randrange(64)) + content[where:],
        "repeat": content + content,
        "empty": b"",
        "noise": chance.randbytes(chance.randrange(1, 200)),
        "head": chance.randbytes(min(16, len(content))) + content[16:],
    }
    return f"{how} at {where}", other[how]


def _absurd(
    tensors: dict[str, Tensor], metadata: dict[str, Any], chance: random.Random
) -> tuple[str, dict[str, Tensor], dict[str, Any]]:
    """Return the same with one value, name, shape or type that makes no sense."""
    tensors, about = dict(tensors), json.loads(json.dumps(metadata)) if not _has_tensors(metadata) else dict(metadata)
    about = {key: value for key, value in about.items() if key not in ("format", "version")}
    if tensors and chance.random() < 0.5:
        name = chance.choice(sorted(tensors))
        one = tensors[name]
        how = chance.choice(["drop", "nan", "inf", "shape", "dtype", "rename", "scalar", "negative", "add", "long"])
        if how == "drop":
            del tensors[name]
        elif how == "rename":
            tensors[f"{name}x"] = tensors.pop(name)
        elif how == "add":
            tensors[chance.choice(["x", "layer/0/x", "layer/9/information", "novelty/x", ""])] = torch.zeros(2)
        else:
            filled = {"nan": torch.nan, "inf": torch.inf}
            tensors[name] = {
                "shape": one.unsqueeze(0),
                "dtype": one.to(chance.choice([torch.int64, torch.bool, torch.complex64])),
                "scalar": torch.tensor(1.0),
                "negative": -one if one.dtype != torch.bool else one,
                "long": torch.cat([one.flatten(), one.flatten()]),
            }.get(how, torch.full_like(one, filled.get(how, 0.0)) if one.is_floating_point() else one.flatten()[:0])
        return f"{how} of tensor '{name}'", tensors, about
    place: Any = about
    path = []
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = chance.choice(keys)
        path.append(str(key))
        inner = place[key]
        if isinstance(inner, dict | list) and inner and chance.random() < 0.75:
            place = inner
            continue
        if chance.random() < 0.25:
            del place[key]
            return f"no {'.'.join(path)}", tensors, about
        place[key] = chance.choice(STRANGE)
        return f"{'.'.join(path)} = {str(place[key])[:30]}", tensors, about


def _has_tensors(metadata: dict[str, Any]) -> bool:
    return any(isinstance(value, Tensor) for value in metadata.values())


def _strange_array(chance: random.Random) -> Any:
    shape = chance.choice([(), (0,), (0, 3), (5,), (5, 3), (1, 1, 1, 1), (5, 0)])
    dtype = chance.choice(["f4", "f8", "i8", "u1", "c8", "U3", "S2", "M8[s]", "?", "f2"])
    array = np.zeros(shape, dtype)
    if dtype in ("f4", "f8", "f2") and array.size:
        array.flat[0] = chance.choice([np.nan, np.inf, 0.0, 1.0])
    return array


KINDS: dict[str, Callable[[Path, random.Random], Iterator[Attempt]]] = {
    "posterior, unsigned": _unsigned_posteriors,
    "posterior, signed": _signed_posteriors,
    "checkpoint, unsigned": _unsigned_checkpoints,
    "checkpoint, signed": _signed_checkpoints,
    "weights": _weights,
    "npz": _npz,
    "YAML": _yaml,
    "tables": _tables,
    "images": _images,
}

if __name__ == "__main__":
    import sys

    print(json.dumps(run(quick="--quick" in sys.argv, seed=0), indent=1))
