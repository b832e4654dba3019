import time
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

from flat import flat_laplace
from infoform.experiments import Result
from infoform.experiments.cost.sampling_time import EXPERIMENT, TimeSettings, in_rounds, one_thread
from infoform.experiments.cost.stand_ins import stand_in
from infoform.experiments.networks.architectures import build


def test_rounds_run_every_work_in_turn_and_leave_the_first_out() -> None:
    order: list[str] = []

    def work(name: str, seconds: float) -> None:
        order.append(name)
        time.sleep(seconds)

    found = in_rounds({"a": lambda: work("a", 0.002), "b": lambda: work("b", 0.0)}, 2)
    assert order == ["a", "b"] * 3
    assert [len(values) for values in found.values()] == [2, 2]
    assert min(found["a"]) >= 0.002
    assert [len(values) for values in in_rounds({"a": lambda: None}, 1, uncounted=0).values()] == [1]


def test_threads_are_as_before_even_after_an_error() -> None:
    before = torch.get_num_threads()

    def fail() -> None:
        with one_thread():
            assert torch.get_num_threads() == 1
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert torch.get_num_threads() == before


def test_stand_ins_have_the_shapes_of_a_fit() -> None:
    model = build("tiny-resnet")
    laplace = flat_laplace(model, "classification", statistics="all", block_limit=1)
    laplace.fit([torch.randn(3, 3, 32, 32)], progress=False)
    for structure in ("kfac", "efb-paper"):
        one = stand_in(model, structure)
        for name, layer in laplace.posterior(structure=structure).layers.items():
            shapes = {key: tensor.shape for key, tensor in layer.state_dict().items()}
            assert {key: tensor.shape for key, tensor in one.layers[name].state_dict().items()} == shapes
            assert one.layers[name].sample(1).isfinite().all()


def test_pieces_and_page(small_imagenet: Path) -> None:
    settings = TimeSettings(networks=("tiny-densenet",), images=2, size=32, fit_rounds=1, sample_rounds=2)
    result = Result("time", asdict(settings), 0, 3)
    for key in EXPERIMENT.pieces(settings):
        piece = EXPERIMENT.run_piece(key, settings, cache=small_imagenet)
        result = result.with_piece(key, piece, seconds=1.0, peak_memory_bytes=1)
    assert all(
        value > 0 for piece in result.pieces.values() for values in piece["seconds"].values() for value in values
    )
    text = EXPERIMENT.page(result)
    assert text.count("| tiny-densenet |") == 5
    assert "- tiny-densenet: `inf` is " in text
