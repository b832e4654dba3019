"""What was measured is kept where it is asked for, unchanged."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from flat import flat_laplace
from infoform import Laplace
from infoform.curvature.curvature import pack_curvature
from infoform.fitting.placement import Placement
from models import MODELS

CASE = MODELS["conv2d"]


def fitted(**options: Any) -> Laplace:
    return flat_laplace(CASE.model(), "classification", statistics="all").fit(
        [CASE.inputs()], progress=False, **options
    )


def check_same(one: Laplace, other: Laplace) -> None:
    assert list(one.curvature) == list(other.curvature)
    for name in one.curvature:
        tensors, others = pack_curvature(one.curvature[name])[0], pack_curvature(other.curvature[name])[0]
        assert tensors.keys() == others.keys()
        assert all(torch.equal(tensors[key], others[key]) for key in tensors)


def test_files_hold_what_memory_would(tmp_path: Path) -> None:
    kept, plain = fitted(offload=tmp_path), fitted()
    check_same(kept, plain)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["layer-0.safetensors", "layer-3.safetensors"]
    a, b = (one.sample(2, seed=1) for one in (kept, plain))
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_an_update_may_write_over_the_files_that_it_reads(tmp_path: Path) -> None:
    kept, plain = fitted(offload=tmp_path), fitted()
    old = kept.curvature
    kept.fit([CASE.inputs(3)], update=True, offload=tmp_path, progress=False)
    check_same(kept, plain.fit([CASE.inputs(3)], update=True, progress=False))
    assert all(bool(one.isfinite().all()) for layer in old.values() for one in pack_curvature(layer)[0].values())


def test_saved_and_loaded_like_any_other(tmp_path: Path) -> None:
    kept = fitted(offload=tmp_path / "kept")
    kept.save(tmp_path / "posterior.safetensors", curvature=True)
    check_same(Laplace.load(tmp_path / "posterior.safetensors", kept.model), kept)


def test_devices_by_name_are_those_of_the_result() -> None:
    kept = fitted(device="cpu", offload="cpu")
    check_same(kept, fitted())
    for layer in kept.curvature.values():
        assert {one.device for one in pack_curvature(layer)[0].values()} == {torch.device("cpu")}


def test_work_and_result_are_where_the_model_is_unless_said_otherwise(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    cpu, gpu = torch.device("cpu"), torch.device("cuda", 0)
    assert Placement.of(model) == Placement(cpu, cpu)
    assert Placement.of(model).stays
    assert not Placement(gpu, cpu).stays
    assert not Placement.of(model, offload=tmp_path).stays
    assert Placement.of(model, offload=str(tmp_path / "new")).folder == tmp_path / "new"
    # tensors without numbers stand for those of another device
    shapes = Placement(cpu, torch.device("meta")).keep(fitted().curvature["0"])
    assert {one.device.type for one in pack_curvature(shapes)[0].values()} == {"meta"}


def test_the_work_may_be_done_on_another_device_than_the_model_is_on() -> None:
    layer = fitted().curvature["3"]
    moved = Placement(torch.device("meta"), torch.device("cpu")).fetch(layer)
    assert {one.device.type for one in pack_curvature(moved)[0].values()} == {"meta"}
    assert {one.device.type for one in pack_curvature(layer)[0].values()} == {"cpu"}


def test_mistakes_get_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError, match="offload must be a device or a folder"):
        fitted(offload=tmp_path / "file")
    with pytest.raises(ValueError, match="device must be a device of this machine, got 'cuda:63'"):
        fitted(device="cuda:63")
    with pytest.raises(ValueError, match="a device that holds numbers, got 'meta'"):
        fitted(device="meta")
    for name, meant in (("cdua", "cuda"), ("gpu", "cuda"), ("Cpu", "cpu"), ("abc:0", "cpu")):
        with pytest.raises(ValueError, match=f"got '{name}'; write '{meant}' for the device, or './{name}' for a new"):
            fitted(offload=name)
