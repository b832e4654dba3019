"""A fit that is stopped after any batch and started again is, bit for bit, the fit that was not."""

import itertools
import json
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import bounded
import infoform
from flat import flat_laplace
from infoform import Laplace
from infoform.common import files
from infoform.common.digest import update_digest
from infoform.curvature.curvature import pack_curvature
from infoform.fitting.checkpoint import Checkpoint, Snapshot
from infoform.fitting.data_pass import DataPass
from infoform.fitting.layer_statistics import LayerStatistics
from infoform.fitting.reader import ReadBatch
from infoform.fitting.running_sums import InputEnergy, ProjectedSquares, Squares, Sums
from infoform.likelihoods import FISHER_KINDS
from infoform.posteriors import PRESETS, STRUCTURES
from models import MODELS

EVERY = [*STRUCTURES, *PRESETS]
SIZES = [4, 3, 5, 1]  # of the batches


class Stopped(Exception):
    """What ends a fit in these tests, as a crash would."""


class Stopping:
    """The batches, with something done before one of them, counted over passes."""

    def __init__(self, batches: list[Any], before: int, action: Any) -> None:
        self.batches, self.before, self.action, self.count = batches, before, action, 0

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[Any]:
        for batch in self.batches:
            if self.count == self.before:
                self.action()
            self.count += 1
            yield batch


def stop() -> None:
    raise Stopped


def press() -> None:
    signal.raise_signal(signal.SIGINT)


def make_data(case: str = "linear", *, scale: float = 1.0) -> list[tuple[Tensor, Tensor]]:
    x = MODELS[case].inputs(sum(SIZES)) * scale
    y = torch.arange(len(x)) % 3
    return list(zip(x.split(SIZES), y.split(SIZES), strict=True))


def make_laplace(case: str = "linear", **options: Any) -> Laplace:
    return flat_laplace(MODELS[case].model(), "classification", **{"rank": 5, "seed": 3} | options)


def check_same(found: Laplace, expected: Laplace) -> None:
    assert found._fit is not None
    assert expected._fit is not None
    assert found._fit.summary == expected._fit.summary
    assert found._fit.unreached == expected._fit.unreached
    assert found.curvature.keys() == expected.curvature.keys()
    for name, one in found.curvature.items():
        (tensors, settings), (others, plain) = pack_curvature(one), pack_curvature(expected.curvature[name])
        assert settings == plain
        assert tensors.keys() == others.keys()
        for key, value in tensors.items():
            assert torch.equal(value, others[key]), (name, key)


def check_stops(
    case: str, folder: Path, *, at: Sequence[int] = (2, len(SIZES), len(SIZES) + 3), **options: Any
) -> None:
    """Stop a fit before these batches, counted over both passes, and go on, each time in an object of its own."""
    data = make_data(case)
    whole = make_laplace(case, **options).fit(data, progress=False)
    passes = 2 if any(one.bases for one in whole.curvature.values()) else 1
    for before in (one for one in at if one < passes * len(data)):
        with pytest.raises(Stopped):
            make_laplace(case, **options).fit(
                Stopping(data, before, stop), checkpoint=folder, checkpoint_every=0, progress=False
            )
        assert len(list(folder.iterdir())) == 1
        again = make_laplace(case, **options)
        check_same(again.fit(data, checkpoint=folder, progress=False), whole)
        assert list(folder.iterdir()) == []


def test_a_fit_goes_on_after_any_batch(tmp_path: Path) -> None:
    check_stops("linear", tmp_path, at=range(2 * len(SIZES)))


@pytest.mark.parametrize("structure", EVERY)
def test_every_structure_goes_on(structure: str, tmp_path: Path) -> None:
    check_stops("linear", tmp_path, structure=structure)


@pytest.mark.parametrize("case", MODELS)
def test_every_kind_of_layer_goes_on(case: str, tmp_path: Path) -> None:
    check_stops(case, tmp_path, statistics="all")


@pytest.mark.parametrize("fisher", FISHER_KINDS)
@pytest.mark.parametrize("samples", [1, 2])
def test_every_fisher_goes_on(fisher: str, samples: int, tmp_path: Path) -> None:
    check_stops("linear", tmp_path, fisher=fisher, fisher_samples=samples)


@pytest.mark.parametrize(
    "options", [{"basis_data": 0.5}, {"basis_size": 2}, {"chunk": 200}, {"prior_rank": 0, "prior": "activation"}]
)
def test_every_way_to_sum_goes_on(options: dict[str, Any], tmp_path: Path) -> None:
    check_stops("linear", tmp_path, **options)


def test_sketches_and_residuals_of_large_layers_go_on(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(140, 150), nn.Tanh(), nn.Linear(150, 3))  # float32, more than EXACT_LIMIT
    data = [(x, torch.arange(len(x)) % 3) for x in torch.randn(200, 140).split(45)]

    def make() -> Laplace:
        return flat_laplace(model, "classification", rank=4, basis_size=8)

    whole = make().fit(data, progress=False)
    for before in (2, 5, 7, 9):
        with pytest.raises(Stopped):
            make().fit(Stopping(data, before, stop), checkpoint=tmp_path, checkpoint_every=0, progress=False)
        check_same(make().fit(data, checkpoint=tmp_path, progress=False), whole)


def test_a_fit_that_comes_one_batch_further_each_time_ends_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, add = make_data(), DataPass._add
    whole = make_laplace().fit(data, progress=False)
    taken: list[int] = []

    def add_one(self: DataPass, read: ReadBatch) -> int:
        if taken:
            raise Stopped
        taken.append(add(self, read))
        return taken[-1]

    monkeypatch.setattr(DataPass, "_add", add_one)
    for _ in range(2 * len(data) - 1):
        with pytest.raises(Stopped):
            make_laplace().fit(data, checkpoint=tmp_path, checkpoint_every=0, progress=False)
        taken.clear()
    check_same(make_laplace().fit(data, checkpoint=tmp_path, checkpoint_every=0, progress=False), whole)


@pytest.mark.parametrize("structure", ["diag", "inf", "kfac"])
def test_an_update_goes_on(structure: str, tmp_path: Path) -> None:
    first, second = make_data(), make_data(scale=2.0)

    def make() -> Laplace:
        return make_laplace(structure=structure).fit(first, progress=False)

    whole = make().fit(second, update=True, progress=False)
    for before in (0, len(second) - 1):
        with pytest.raises(Stopped):
            make().fit(
                Stopping(second, before, stop), update=True, checkpoint=tmp_path, checkpoint_every=0, progress=False
            )
        check_same(make().fit(second, update=True, checkpoint=tmp_path, progress=False), whole)


class Branching(nn.Module):
    """Its second head is used where the first input is large."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        out = self.other(x) if float(x.detach()[0, 0]) > 100 else self.one(x)
        assert isinstance(out, Tensor)
        return out


def test_an_update_that_reaches_another_layer_goes_on_in_its_second_pass(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Branching()
    first, second = [torch.randn(6, 4)], [torch.randn(5, 4), torch.randn(5, 4) + 200]

    def make() -> Laplace:
        return Laplace(model, "classification").fit(first, progress=False)

    whole = make().fit(second, update=True, progress=False)
    assert set(whole.curvature) == {"one", "other"}
    for before in range(2 * len(second)):
        with pytest.raises(Stopped):
            make().fit(
                Stopping(second, before, stop), update=True, checkpoint=tmp_path, checkpoint_every=0, progress=False
            )
        check_same(make().fit(second, update=True, checkpoint=tmp_path, progress=False), whole)


def test_a_shuffling_loader_goes_on_in_its_order(tmp_path: Path) -> None:
    x, y = (torch.cat(part) for part in zip(*make_data(), strict=True))
    loader = DataLoader(TensorDataset(x, y), batch_size=4, shuffle=True)
    whole = make_laplace().fit(loader, progress=False)
    torch.manual_seed(99)
    collated = [1, 5]
    for before in collated:
        seen = itertools.count()

        def collate(items: list[Any], before: int = before, seen: Iterator[int] = seen) -> Any:
            if next(seen) == before:
                raise Stopped
            return torch.utils.data.default_collate(items)

        breaking = DataLoader(TensorDataset(x, y), batch_size=4, shuffle=True, collate_fn=collate)
        with pytest.raises(Stopped):
            make_laplace().fit(breaking, checkpoint=tmp_path, checkpoint_every=0, progress=False)
        check_same(make_laplace().fit(loader, checkpoint=tmp_path, progress=False), whole)


KILLED = """
import os, random, signal, sys, time
import torch
from torch import nn
from infoform import Inf, Laplace

torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.Tanh(), nn.Flatten(), nn.Linear(48, 20), nn.Tanh(), nn.Linear(20, 3))
data = [(x, torch.arange(len(x)) % 3) for x in torch.randn(120, 1, 6, 6).split(6)]
folder, out = sys.argv[1:]

class Telling:
    def __iter__(self):
        os.write(tells, b".")
        yield from data

def fit(loader, **options):
    return Laplace(model, "classification", structure=Inf(rank=7)).fit(loader, progress=False, **options)

fit(data).save(f"{out}/whole.safetensors", curvature=True)
started = time.monotonic()
fit(data, checkpoint=folder, checkpoint_every=0)
lasts = time.monotonic() - started
kills = 0
while kills < 8 or not os.listdir(folder):
    told, tells = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # which ends it, whatever it waits for
        fit(Telling(), checkpoint=folder, checkpoint_every=0)
        os._exit(0)
    os.close(tells)
    assert os.read(told, 1)  # it has begun
    time.sleep(random.random() * lasts)  # one that is done by then does not count
    os.kill(child, signal.SIGKILL)
    kills += os.WIFSIGNALED(os.waitpid(child, 0)[1])
fit(data, checkpoint=folder).save(f"{out}/again.safetensors", curvature=True)
"""


def run_script(script: str, *arguments: str) -> None:
    bounded.run([sys.executable, "-c", script, *arguments], check=True)


def test_a_fit_killed_at_random_moments_ends_the_same(tmp_path: Path) -> None:
    folder, out = tmp_path / "checkpoint", tmp_path / "out"
    out.mkdir()
    run_script(KILLED, str(folder), str(out))
    whole, again = (load_file(out / f"{name}.safetensors") for name in ("whole", "again"))
    assert whole.keys() == again.keys()
    assert all(torch.equal(again[name], value) for name, value in whole.items())
    assert list(folder.iterdir()) == []


def stopped_fit(folder: Path, before: int = 2, **options: Any) -> Path:
    with pytest.raises(Stopped):
        make_laplace(**options).fit(
            Stopping(make_data(), before, stop), checkpoint=folder, checkpoint_every=0, progress=False
        )
    (path,) = folder.iterdir()
    return path


@pytest.mark.parametrize("damage", ["cut", "flipped", "text"])
def test_a_damaged_checkpoint_is_refused_by_name(damage: str, tmp_path: Path) -> None:
    path = stopped_fit(tmp_path)
    content = bytearray(path.read_bytes())
    if damage == "flipped":
        content[-9] ^= 1
    path.write_bytes({"cut": bytes(content[:-50]), "flipped": bytes(content), "text": b"hello"}[damage])
    with pytest.raises(ValueError, match=rf"checkpoint cannot be read: '{path}' .*delete it to start again"):
        make_laplace().fit(make_data(), checkpoint=tmp_path, progress=False)


def test_a_posterior_is_no_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "pass-1.safetensors"
    make_laplace().fit(make_data(), progress=False).save(path)
    with pytest.raises(ValueError, match=rf"'{path}' is a saved posterior and no checkpoint"):
        make_laplace().fit(make_data(), checkpoint=tmp_path, progress=False)


def signed_again(path: Path, change: Callable[[dict[str, Tensor], dict[str, Any]], None]) -> None:
    """Change tensors and values of a checkpoint, and sign it."""
    tensors, about = files.read_file(path)
    about = {key: value for key, value in about.items() if key not in ("format", "version")}
    change(tensors, about["checkpoint"]["values"])
    files.write_file(path, tensors, about)


@pytest.mark.parametrize("before", [2, 6])  # in the first pass, and in the second
@pytest.mark.parametrize("how", ["left out", "of another shape", "of another dtype", "not finite", "another beside it"])
def test_a_signed_checkpoint_without_one_of_its_tensors_is_refused(how: str, before: int, tmp_path: Path) -> None:
    path = stopped_fit(tmp_path, before)
    whole = path.read_bytes()
    for name in files.read_file(path)[0]:

        def change(tensors: dict[str, Tensor], _: dict[str, Any], name: str = name) -> None:
            one = tensors.pop(name)
            if how == "another beside it":
                tensors |= {name: one, f"{name}x": one}
            elif how == "not finite" and one.is_floating_point() and one.numel():
                tensors[name] = torch.full_like(one, torch.nan)
            elif how != "left out":
                tensors[name] = one.unsqueeze(0) if how == "of another shape" else one.to(torch.complex64)

        signed_again(path, change)
        with pytest.raises(infoform.BadFileError, match=r"the checkpoint .*delete it to start again"):
            make_laplace().fit(make_data(), checkpoint=tmp_path, progress=False)
        path.write_bytes(whole)


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        ("first/examples", -1, "a negative number of batches"),
        ("first/examples", "13", "'progress.examples' must be a whole number"),
        ("first/called", "0", "'progress.called' must be a list"),
        ("summary/counts", {"0": {}}, "'summary.counts.0' must be a number"),
        ("summary/num_outputs", 1e-308, "'summary.num_outputs' must be a whole number"),
        ("first", {}, "a first pass that is over has read at least one example"),
        ("summary/num_outputs", 0, "at least one example with one output"),
        ("pass/progress/marks", 3, "'progress.marks' must be a list"),
    ],
)
def test_a_signed_checkpoint_with_absurd_values_is_refused(place: str, value: Any, said: str, tmp_path: Path) -> None:
    def change(_: dict[str, Tensor], values: dict[str, Any]) -> None:
        *outer, last = place.split("/")
        for key in outer:
            values = values[key]
        values[last] = value

    signed_again(stopped_fit(tmp_path, 6), change)
    with pytest.raises(infoform.BadFileError, match=said):
        make_laplace().fit(make_data(), checkpoint=tmp_path, progress=False)


@pytest.mark.parametrize("value", [-1, 9])
def test_a_signed_checkpoint_with_pairs_outside_of_a_basis_is_refused(value: int, tmp_path: Path) -> None:
    def change(tensors: dict[str, Tensor], _: dict[str, Any]) -> None:
        tensors["sums/0..gradient.core_pairs"].fill_(value)

    signed_again(stopped_fit(tmp_path, 6), change)
    with pytest.raises(infoform.BadFileError, match="the pairs of the gradient basis of layer '0' lie outside of it"):
        make_laplace().fit(make_data(), checkpoint=tmp_path, progress=False)


def test_a_signed_checkpoint_with_negative_sums_of_squares_is_refused(tmp_path: Path) -> None:
    def change(tensors: dict[str, Tensor], _: dict[str, Any]) -> None:
        tensors["sums/0..squares.squares"].neg_()

    signed_again(stopped_fit(tmp_path, 6), change)
    with pytest.raises(infoform.BadFileError, match="the sums of squares 'squares' must not be negative"):
        make_laplace().fit(make_data(), checkpoint=tmp_path, progress=False)


@pytest.mark.parametrize(
    ("sums", "name"),
    [
        (Squares((2, 3)), "squares"),
        (ProjectedSquares(torch.eye(3), torch.eye(2)), "eigenvalues"),
        (InputEnergy(3, rank=1, name="", seed=0), "diagonal"),
    ],
)
def test_sums_of_squares_take_no_negative_ones(sums: Sums, name: str) -> None:
    state = {name: torch.ones(sums.shapes()[name])}
    sums.restore(state)
    assert torch.equal(getattr(sums, name), state[name])
    with pytest.raises(ValueError, match=f"the sums of squares '{name}' must not be negative"):
        sums.restore({name: state[name].index_fill(0, torch.tensor([1]), -1e-9)})


def test_another_number_of_examples_says_to_delete_the_checkpoint(tmp_path: Path) -> None:
    def change(_: dict[str, Tensor], values: dict[str, Any]) -> None:
        values["first"]["examples"] = 7

    signed_again(stopped_fit(tmp_path, 6), change)
    with pytest.raises(ValueError, match=r"got 7 examples, then 13; .*or delete the checkpoint to start again"):
        make_laplace().fit(make_data(), checkpoint=tmp_path, progress=False)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"seed": 4}, "seed was 3 and is 4"),
        ({"fisher": "exact"}, "fisher was 'mc' and is 'exact'"),
        ({"structure": "diag"}, "bases was"),
        ({"layers": ["0"]}, "layer '2' is missing"),
    ],
)
def test_other_settings_are_named(options: dict[str, Any], named: str, tmp_path: Path) -> None:
    path = stopped_fit(tmp_path)
    with pytest.raises(ValueError, match=rf"'{path}' is of another fit \(.*{named}"):
        make_laplace(**options).fit(make_data(), checkpoint=tmp_path, progress=False)


def test_another_model_is_named(tmp_path: Path) -> None:
    stopped_fit(tmp_path)
    laplace = make_laplace()
    with torch.no_grad():
        next(laplace.model.parameters()).mul_(2)
    with pytest.raises(ValueError, match=r"of another fit \(parameter '0.weight' was"):
        laplace.fit(make_data(), checkpoint=tmp_path, progress=False)


def test_other_running_statistics_are_named(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    data = [torch.randn(5, 4), torch.randn(5, 4)]
    with pytest.raises(Stopped):
        Laplace(model, "classification").fit(
            Stopping(data, 1, stop), checkpoint=tmp_path, checkpoint_every=0, progress=False
        )
    model.train()(data[0])
    with pytest.raises(ValueError, match=r"buffer '1.running_mean'"):
        Laplace(model, "classification").fit(data, checkpoint=tmp_path, progress=False)


def test_another_fit_before_an_update_is_named(tmp_path: Path) -> None:
    data = make_data()
    with pytest.raises(Stopped):
        make_laplace().fit(data, progress=False).fit(
            Stopping(data, 2, stop), update=True, checkpoint=tmp_path, checkpoint_every=0, progress=False
        )
    with pytest.raises(ValueError, match="the fit before was"):
        make_laplace().fit(data[:2], progress=False).fit(data, update=True, checkpoint=tmp_path, progress=False)


@pytest.mark.parametrize("before", [2, 6])
def test_an_order_that_is_not_the_same_is_an_error(before: int, tmp_path: Path) -> None:
    stopped_fit(tmp_path, before)
    data = make_data()
    with pytest.raises(ValueError, match="its first 2 batches are others now; use one whose order is reproducible"):
        make_laplace().fit([data[2], data[1], data[0], data[3]], checkpoint=tmp_path, progress=False)


def test_fewer_batches_than_before_are_an_error(tmp_path: Path) -> None:
    stopped_fit(tmp_path, 3)
    with pytest.raises(ValueError, match="at least 3 batches, got 2"):
        make_laplace().fit(make_data()[:2], checkpoint=tmp_path, progress=False)


def test_other_data_in_a_resumed_second_pass_are_an_error(tmp_path: Path) -> None:
    stopped_fit(tmp_path, len(SIZES))  # with no batch of the second pass read
    with pytest.raises(ValueError, match="as before the fit was stopped, and in pass 2 the first batch is another"):
        make_laplace().fit(make_data(scale=2.0), checkpoint=tmp_path, progress=False)


@pytest.fixture
def _heard() -> Iterator[None]:
    """Have Ctrl-C raise, as in a terminal; a process in the background may ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_heard")
@pytest.mark.parametrize("before", [0, 2, 5])
def test_ctrl_c_saves_and_says_how_to_go_on(before: int, tmp_path: Path) -> None:
    data = make_data()
    laplace = make_laplace()
    state = {name: value.clone() for name, value in laplace.model.state_dict().items()}
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt, match=rf"saved in '{tmp_path}'; call fit .*checkpoint='{tmp_path}' to go on"):
        laplace.fit(Stopping(data, before, press), checkpoint=tmp_path, progress=False)
    assert signal.getsignal(signal.SIGINT) is handler
    assert all(torch.equal(state[name], value) for name, value in laplace.model.state_dict().items())
    (path,) = tmp_path.iterdir()
    read = Stopping(data, before, lambda: None)
    check_same(laplace.fit(read, checkpoint=tmp_path, progress=False), make_laplace().fit(data, progress=False))
    assert not path.exists()


@pytest.mark.usefixtures("_heard")
def test_a_second_ctrl_c_stops_at_once(tmp_path: Path) -> None:
    def press_twice() -> None:
        press()
        press()

    with pytest.raises(KeyboardInterrupt) as error:
        make_laplace().fit(Stopping(make_data(), 2, press_twice), checkpoint=tmp_path, progress=False)
    assert "to go on" not in str(error.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("_heard")
def test_ctrl_c_that_ends_the_loader_saves_too(tmp_path: Path) -> None:
    def die() -> None:
        press()
        raise RuntimeError("a worker exited unexpectedly")

    data = make_data()
    with pytest.raises(KeyboardInterrupt, match="to go on"):
        make_laplace().fit(Stopping(data, 2, die), checkpoint=tmp_path, progress=False)
    check_same(make_laplace().fit(data, checkpoint=tmp_path, progress=False), make_laplace().fit(data, progress=False))


@pytest.mark.usefixtures("_heard")
def test_ctrl_c_after_the_last_batch_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finish = LayerStatistics.finish

    def press_and_finish(self: LayerStatistics, numbers: range) -> Any:
        press()
        monkeypatch.undo()
        return finish(self, numbers)

    monkeypatch.setattr(LayerStatistics, "finish", press_and_finish)
    with pytest.raises(KeyboardInterrupt):
        make_laplace().fit(make_data(), checkpoint=tmp_path, progress=False)
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.usefixtures("_heard")
def test_a_fit_in_another_thread_leaves_ctrl_c_alone(tmp_path: Path) -> None:
    handler = signal.getsignal(signal.SIGINT)
    seen = []
    data = make_data()
    laplace = make_laplace()

    def look() -> None:
        seen.append(signal.getsignal(signal.SIGINT))

    loader = Stopping(data, 1, look)
    thread = threading.Thread(target=lambda: laplace.fit(loader, checkpoint=tmp_path, progress=False), daemon=True)
    thread.start()
    bounded.join(thread)
    assert seen == [handler]
    check_same(laplace, make_laplace().fit(data, progress=False))


def test_a_fit_writes_no_more_often_than_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = []
    monkeypatch.setattr(Checkpoint, "write", lambda self, snapshot: written.append(snapshot.stage))
    make_laplace().fit(make_data(), checkpoint=tmp_path, checkpoint_every=1000, progress=False)
    assert written == [1, 2, 2]  # at the ends of the passes, and when the bases are found


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".pass-1.safetensors.0123456789ab.infoform-tmp").write_bytes(b"half")
    (tmp_path / "notes.txt").write_text("mine")
    make_laplace().fit(make_data(), checkpoint=tmp_path / ".", progress=False)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_the_folder_is_made_and_must_be_one(tmp_path: Path) -> None:
    make_laplace().fit(make_data(), checkpoint=str(tmp_path / "a" / "b"), progress=False)
    assert (tmp_path / "a" / "b").is_dir()
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(NotADirectoryError, match=f"'{file}' is a file"):
        make_laplace().fit(make_data(), checkpoint=file, progress=False)


@pytest.mark.parametrize("every", [-1.0, float("nan"), float("inf")])
def test_the_time_between_checkpoints_is_checked(every: float, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="checkpoint_every must be a number of seconds"):
        make_laplace().fit(make_data(), checkpoint=tmp_path, checkpoint_every=every, progress=False)


def test_tensors_come_back_as_they_lay_in_memory(tmp_path: Path) -> None:
    padded = torch.arange(32.0).reshape(2, 16)[:, :5]
    tensors = {"padded": padded, "turned": torch.randn(3, 4).T, "half": torch.randn(3).bfloat16(), "none": padded[:0]}
    checkpoint = Checkpoint(tmp_path)
    with checkpoint.open({"name": "this"}):
        checkpoint.write(Snapshot(1, tensors, {"value": 0.1}))
        found = checkpoint.read(1, device=torch.device("cpu"))
    assert found.values == {"value": 0.1}
    for name, value in tensors.items():
        assert torch.equal(found.tensors[name], value)
        assert found.tensors[name].dtype == value.dtype
        assert found.tensors[name].shape == value.shape
    assert found.tensors["padded"].stride() == (16, 1)
    assert found.tensors["turned"].stride() == (1, 4)


def test_files_of_other_numbers_of_processes_are_refused(tmp_path: Path) -> None:
    (tmp_path / "pass-1.0-of-4.safetensors").write_bytes(b"")
    with pytest.raises(ValueError, match="written by 4 processes, and these are 1"):
        Checkpoint(tmp_path).stage()
    assert Checkpoint(tmp_path, process=0, processes=4).stage() == 1
    assert Checkpoint(tmp_path, process=1, processes=4).stage() == 0


def test_a_digest_tells_batches_apart() -> None:
    x, y = torch.arange(6.0).reshape(2, 3), torch.tensor([1, 0])
    batches: list[Any] = [
        x,
        x.T,
        x.double(),
        (x, y),
        (x, y.flip(0)),
        {"x": x, "y": y},
        {"x": x, "z": y},
        [x, [1, 0]],
        [x, None],
        [x, "text"],
        (x.numpy(), y.numpy() + 1),
        [x, object()],
    ]
    digests = [update_digest(batch, 0) for batch in batches]
    assert len(set(digests)) == len(batches)
    assert digests == [update_digest(batch, 0) for batch in batches]
    assert json.loads(json.dumps(digests)) == digests
    assert update_digest(x, 1) != update_digest(x, 2)


def test_a_process_that_ignores_ctrl_c_goes_on_doing_so(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        laplace = make_laplace().fit(Stopping(make_data(), 2, press), checkpoint=tmp_path, progress=False)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    check_same(laplace, make_laplace().fit(make_data(), progress=False))
