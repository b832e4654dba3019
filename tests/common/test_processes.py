"""Several processes fit what one process fits, and fail together."""

import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.parallel import DataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import bounded
import infoform
import killed_processes
import processes
from infoform import Laplace
from infoform.common.processes import Processes
from infoform.curvature.curvature import pack_curvature
from infoform.curvature.eigenbasis import coupled_diagonal
from infoform.network.sharding import Shard, dealt_shard, distributed_sampler, shard_of, unwrap
from infoform.novelty.known_inputs import pack_known
from infoform.predicting.over_loader import join_processes
from torchrun_script import documented_script, run_documented_script

FISHERS = ("mc", "exact", "empirical")
COUNTS = (2, 4)
Run = tuple[int, Path]  # number of processes, and their folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Run]:
    """Return what runs all cases once for a number of processes, and tells where they left their results."""

    @cache
    def run_once(count: int) -> Run:
        folder = tmp_path_factory.mktemp("processes")
        script = [sys.executable, "-W", "error", processes.__file__, str(count), str(folder)]
        done = bounded.run(script)
        assert done.returncode == 0, done.stderr
        return count, folder

    return run_once


@pytest.fixture(params=COUNTS, ids=lambda count: f"{count} processes")
def ran(request: pytest.FixtureRequest, run: Callable[[int], Run]) -> Run:
    return run(request.param)


@pytest.fixture
def two(run: Callable[[int], Run]) -> Run:
    return run(2)


def read(ran: Run, name: str) -> dict[str, Tensor]:
    """Return what all processes ended with, which must be the same."""
    count, folder = ran
    first, *others = (load_file(folder / f"{name}.{rank}") for rank in range(count))
    for other in others:
        assert other.keys() == first.keys()
        assert all(torch.equal(other[key], value) for key, value in first.items())
    return first


def read_texts(ran: Run, name: str) -> list[str]:
    return [(ran[1] / f"{name}.{rank}").read_text() for rank in range(ran[0]) if (ran[1] / f"{name}.{rank}").exists()]


def check_same(found: dict[str, Tensor], expected: Laplace, *, tolerance: float) -> None:
    """Compare all statistics; those in a basis by what they say of the layer, which does not depend on signs."""
    summary = expected._fit.summary if expected._fit is not None else None
    assert summary is not None
    assert found["summary"][0] == summary.num_examples
    torch.testing.assert_close(float(found["summary"][1]), summary.log_likelihood or 0.0, rtol=1e-6, atol=1e-6)
    keys = {"summary"}
    for name, one in expected.curvature.items():
        tensors, _ = pack_curvature(one)
        own = {key: found[f"{name} {key}"] for key in tensors}
        keys |= {f"{name} {key}" for key in tensors}
        for basis in one.bases:
            for given in (own, tensors):
                u, v, values = (
                    given.pop(f"{basis}.{key}") for key in ("gradient_vectors", "input_vectors", "eigenvalues")
                )
                given[f"{basis} diagonal"] = u.square() @ values @ v.square().T
                if f"{basis}.core" in given:
                    pairs, core = given.pop(f"{basis}.core_pairs"), given.pop(f"{basis}.core")
                    given[f"{basis} coupled"] = coupled_diagonal(v, u, pairs[0], pairs[1], core)
                    given[f"{basis} core"] = core.norm()
                given[f"{basis} trace"] = values.sum()[None]
        if "inputs.vectors" in tensors:
            for given in (own, tensors):
                v = given.pop("inputs.vectors")
                given["inputs low rank"] = v * given.pop("inputs.values") @ v.T
        for key, value in tensors.items():
            assert float((own[key] - value).norm()) <= tolerance * float(value.norm()), (name, key)
    assert found.keys() == keys


@pytest.mark.parametrize("fisher", FISHERS)
def test_dealt_out_examples_give_the_fit_of_one_process_in_single_precision(ran: Run, fisher: str) -> None:
    laplace = processes.make_laplace(processes.make_model(), statistics="all", fisher=fisher)
    laplace.fit(processes.batches_of(processes.make_data()), progress=False)
    check_same(read(ran, f"dealt {fisher}"), laplace, tolerance=1e-6)


@pytest.mark.parametrize("statistics", ["all", "needed"])
@pytest.mark.parametrize("parts", ["none", "split"])
def test_uneven_parts_give_the_fit_of_one_process(ran: Run, statistics: str, parts: str) -> None:
    data = processes.make_data(dtype=torch.float64)
    laplace = processes.make_laplace(processes.make_model(torch.float64), statistics=statistics)
    laplace.fit(processes.batches_of(data), progress=False)
    check_same(read(ran, f"{parts} {statistics}"), laplace, tolerance=1e-9)


def check_same_known(found: dict[str, Tensor], expected: Laplace) -> None:
    """Compare what is known of inputs: all numbers but those of eigenvectors, whose signs are free."""
    assert expected._known is not None
    own = pack_known(expected._known)[0]
    assert found.keys() == own.keys()
    for name, value in own.items():
        if not name.endswith(("/factor", "/places", "/directions")):
            torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("parts", ["none", "split", "dealt"])
def test_what_is_known_of_inputs_is_that_of_one_process(ran: Run, parts: str) -> None:
    data = processes.make_data(dtype=torch.float64)
    expected = processes.make_laplace(processes.make_model(torch.float64))
    check_same_known(read(ran, f"{parts} known"), expected.fit(processes.batches_of(data), progress=False))


def test_novelty_is_calibrated_and_told_by_all_processes(two: Run) -> None:
    data = processes.make_data(dtype=torch.float64)
    expected = processes.make_laplace(processes.make_model(torch.float64))
    expected.fit(processes.batches_of(data), progress=False)
    expected.calibrate_novelty(processes.batches_of(data), progress=False)
    check_same_known(read(two, "tuned known"), expected)
    novelty = expected.novelty(data.tensors[0]).novelty
    torch.testing.assert_close(read(two, "novelty")["novelty"], novelty, rtol=1e-4, atol=1e-4)


def test_an_update_adds_the_data_of_all_processes(ran: Run) -> None:
    batches = processes.batches_of(processes.make_data(dtype=torch.float64))
    laplace = processes.make_laplace(processes.make_model(torch.float64)).fit(batches, progress=False)
    check_same(read(ran, "update"), laplace.fit(batches, update=True, progress=False), tolerance=1e-9)


@pytest.mark.parametrize("parts", ["sure", "sure parts"])
def test_examples_left_out_of_bases_are_those_of_one_process(ran: Run, parts: str) -> None:
    model, data = processes.make_sure()
    laplace = processes.make_laplace(model).fit(processes.batches_of(data), progress=False)
    check_same(read(ran, parts), laplace, tolerance=1e-9)
    whole = processes.make_laplace(model, basis_floor=0.0).fit(processes.batches_of(data), progress=False)
    with pytest.raises(AssertionError):
        check_same(read(ran, parts), whole, tolerance=1e-9)


def test_sketches_and_sampled_residuals_are_those_of_one_process(ran: Run) -> None:
    model, data = processes.make_large()
    laplace = processes.make_laplace(model, basis_size=8, prior_rank=4)
    laplace.fit(processes.batches_of(data), progress=False)
    assert laplace.curvature["0"].bases["gradient"].residual is not None
    assert laplace.curvature["0"].inputs is not None
    check_same(read(ran, "large"), laplace, tolerance=1e-8)


def test_a_basis_from_a_part_of_the_data_is_the_same_in_all_processes(ran: Run) -> None:
    found = read(ran, "part")
    assert found["summary"][0] == 41
    laplace = processes.make_laplace(processes.make_model(torch.float64), basis_data=0.5)
    laplace.fit(processes.batches_of(processes.make_data(dtype=torch.float64)), progress=False)
    diagonal = laplace.curvature["3"].diagonal  # which all of the data is in
    assert diagonal is not None
    torch.testing.assert_close(found["3 diagonal"], diagonal, rtol=1e-9, atol=0)


def test_the_last_layer_is_found_though_a_process_has_no_data(ran: Run) -> None:
    batches = processes.batches_of(processes.make_data(dtype=torch.float64))
    laplace = processes.make_laplace(processes.make_model(torch.float64), layers=["5"]).fit(batches, progress=False)
    check_same(read(ran, "last"), laplace, tolerance=1e-9)


def test_groups_of_layers_are_the_same_in_all_processes(ran: Run) -> None:
    batches = processes.batches_of(processes.make_data(dtype=torch.float64))
    laplace = processes.make_laplace(processes.make_model(torch.float64), chunk="4kB")
    budget = processes.too_little(laplace)
    groups = infoform.plan(laplace, example=batches[0][0], max_memory=budget, offload=True).groups
    assert len(groups) > 1
    check_same(read(ran, "groups"), laplace.fit(batches, progress=False), tolerance=1e-9)


def test_a_wrapped_model_is_fitted_and_saved_once(two: Run) -> None:
    batches = processes.batches_of(processes.make_data(dtype=torch.float64))
    laplace = processes.make_laplace(processes.make_model(torch.float64)).fit(batches, progress=False)
    check_same(read(two, "ddp"), laplace, tolerance=1e-9)
    assert [path.name for path in two[1].glob("saved-by-*")] == ["saved-by-0.safetensors"]
    Laplace.load(two[1] / "saved-by-0.safetensors", processes.make_model(torch.float64))


@pytest.mark.parametrize("how", ["linear", "mc", "none"])
def test_predictions_come_in_the_order_of_the_data(two: Run, how: str) -> None:
    found = read(two, f"predicted {how}")
    batches = processes.batches_of(processes.make_data(dtype=torch.float64))
    laplace = processes.make_laplace(processes.make_model(torch.float64)).fit(batches, progress=False)
    options: dict[str, Any] = {"kind": "mc", "samples": 3} if how == "mc" else {}
    prediction, targets = laplace.predict_loader(batches, link="probit", progress=False, **options)
    torch.testing.assert_close(found["probs"], prediction.value, rtol=1e-6, atol=1e-9)
    assert targets is not None
    assert torch.equal(found["targets"], targets)


def test_a_search_is_scored_on_the_data_of_all_processes(two: Run) -> None:
    batches = processes.batches_of(processes.make_data(dtype=torch.float64))
    laplace = processes.make_laplace(processes.make_model(torch.float64)).fit(batches, progress=False)
    torch.testing.assert_close(read(two, "searched")["scores"], processes.scores_of(laplace, batches))


def test_a_fit_stopped_in_one_process_goes_on_in_all(two: Run) -> None:
    assert "process 1 of 2 stopped with 'OSError: the disk is gone'" in read_texts(two, "stopped")[0]
    unbroken, resumed = read(two, "unbroken"), read(two, "resumed")
    assert unbroken.keys() == resumed.keys()
    assert all(torch.equal(resumed[key], value) for key, value in unbroken.items())


def test_processes_killed_at_random_moments_end_the_same(tmp_path: Path) -> None:
    script = [sys.executable, killed_processes.__file__, str(tmp_path), "6"]
    done = bounded.run(script)
    assert done.returncode == 0, done.stderr
    whole, again = (load_file(tmp_path / f"{name}.safetensors") for name in ("whole", "again"))
    assert whole.keys() == again.keys()
    assert all(torch.equal(again[name], value) for name, value in whole.items())
    assert list((tmp_path / "checkpoint").iterdir()) == []


def test_a_file_that_cannot_be_saved_is_said_by_all_processes(two: Run) -> None:
    _, folder = two
    assert (folder / "no folder.0").read_text().startswith("FileNotFoundError: the folder")
    assert (folder / "no folder.1").read_text().startswith("PeerError: process 0 of 2 stopped with 'FileNotFoundError")


def test_the_documented_script_ends_well_in_every_process(tmp_path: Path) -> None:
    assert "dist.destroy_process_group()" in documented_script()
    for _ in range(2):
        done = run_documented_script(tmp_path)
        assert done.returncode == 0, done.stderr
        assert "destroy_process_group" not in done.stderr  # torch's warning to those who leave it out
    infoform.load(tmp_path / "posterior.safetensors", torch.nn.Linear(4, 3), strict=False)


def test_one_process_that_raises_stops_all(ran: Run) -> None:
    count = ran[0]
    *others, last = read_texts(ran, "raised")
    assert last == "OSError: the disk is gone"
    assert len(others) == count - 1
    for rank, text in enumerate(others):
        assert f"process {count - 1} of {count} stopped with 'OSError: the disk is gone', so process {rank}" in text


def test_one_process_that_is_killed_stops_all(ran: Run) -> None:
    texts = read_texts(ran, "killed")
    assert len(texts) == ran[0] - 1
    for rank, text in enumerate(texts):
        assert text.startswith(f"PeerError: process {rank} of {ran[0]} has lost the others (one was killed")


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("same data", "ValueError: each process must have a part of the data of its own"),
        ("iterator", "ValueError: with several processes the examples are counted before the fit"),
        ("empty", "ValueError: the loader gave no examples"),
        ("other weights", "ValueError: all processes must fit the same model with the same settings"),
    ],
)
def test_what_cannot_be_fitted_together_is_said_by_all(ran: Run, case: str, expected: str) -> None:
    texts = read_texts(ran, case)
    assert len(texts) == ran[0]
    assert all(text.startswith(expected) for text in texts), texts


def test_a_sampler_for_other_processes_is_refused(ran: Run) -> None:
    texts = read_texts(ran, "other sampler")
    assert texts[0].startswith("ValueError: the loader's DistributedSampler must be for process 0 of")
    assert all("got one for process 3 of 7" in text for text in texts)


def test_alone_a_process_tells_nothing() -> None:
    alone = Processes.running()
    assert alone == Processes(0, 1)
    with alone.together():
        assert alone.gather(3) == [3]
    assert shard_of(iter([]), alone, seed=0) == Shard()
    assert join_processes(None, None, processes=alone, shard=Shard()) is None


def test_numbers_are_those_that_one_process_would_give() -> None:
    data = TensorDataset(torch.arange(11))
    seen: dict[int, int] = {}
    for rank in range(3):
        sampler: Any = DistributedSampler(data, num_replicas=3, rank=rank, shuffle=False)
        shard = dealt_shard(sampler, Processes(rank, 3))
        order = list(sampler)
        for done in range(0, len(order), 2):
            part = order[done : done + 2]
            seen |= dict(zip(shard.numbers(done, len(part)), part, strict=False))
    assert seen == {number: number for number in range(11)}  # copies have no number


def test_work_is_shared_out_by_its_cost() -> None:
    owners = Processes(0, 2).owners({"a": 1.0, "b": 8.0, "c": 3.0, "d": 3.0, "e": 1.0})
    assert owners["b"] != owners["c"] == owners["d"]
    assert set(owners.values()) == {0, 1}


def test_a_distributed_sampler_is_found_in_a_batch_sampler() -> None:
    data = TensorDataset(torch.arange(4))
    sampler: Any = DistributedSampler(data, num_replicas=1, rank=0)
    batches = torch.utils.data.BatchSampler(sampler, 2, drop_last=False)
    assert distributed_sampler(DataLoader(data, batch_sampler=batches)) is sampler
    assert distributed_sampler(DataLoader(data)) is None
    assert distributed_sampler([1]) is None


def test_wrapped_models_are_unwrapped_and_sharded_ones_refused() -> None:
    inner = nn.Linear(2, 2)
    assert unwrap(inner) is inner
    assert unwrap(DataParallel(inner)) is inner

    class FullyShardedDataParallel(nn.Module):
        """Has the name of torch's class, which a test without a group of processes cannot make."""

    with pytest.raises(TypeError, match="the weights of '0' are sharded by FSDP"):
        Laplace(nn.Sequential(FullyShardedDataParallel(), inner), "classification")
