from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from torch import nn

import infoform
from flat import flat_laplace
from infoform.experiments import Result
from infoform.experiments.cost.spectra import EXPERIMENT, SpectraSettings, histogram, layer_spectrum
from infoform.experiments.cost.spectra_page import RANKS


@pytest.fixture
def laplace() -> infoform.Laplace:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(200, 6), nn.Tanh(), nn.Linear(6, 3)).double()
    data = [torch.randn(300, 200, dtype=torch.float64)]
    return flat_laplace(model, "classification", fisher="exact").fit(data, progress=False)


def test_the_energy_is_the_trace_of_the_information(laplace: infoform.Laplace) -> None:
    for name, curvature in laplace.curvature.items():
        assert curvature.diagonal is not None
        found = layer_spectrum(curvature)
        # what a truncated basis leaves out is measured on a part of the data
        assert found["energy"] == pytest.approx(float(curvature.diagonal.sum()), rel=0.1 if name == "0" else 1e-9)
        assert found["weights"] == curvature.diagonal.numel()


def test_kept_shares_grow_to_the_part_that_is_known(laplace: infoform.Laplace) -> None:
    small = layer_spectrum(laplace.curvature["2"])  # 3 × 7: all eigenvalues are known
    assert small["known"] == 21
    assert small["kept"] == sorted(small["kept"])
    assert small["kept"][RANKS.index(30)] == pytest.approx(1)
    large = layer_spectrum(laplace.curvature["0"])  # 6 × 201, of which 64 columns are kept
    assert large["known"] == 6 * 64
    values = laplace.curvature["0"].bases["gradient"].eigenvalues.flatten().sort(descending=True).values
    assert large["kept"][2] == pytest.approx(float(values[:10].sum()) / large["energy"])


def test_histograms_count_every_known_eigenvalue_over_the_mean(laplace: infoform.Laplace) -> None:
    found = histogram(laplace.curvature)
    assert found["weights"] == 6 * 201 + 3 * 7
    assert sum(found["count"]) == 6 * 64 + 21 == found["weights"] - found["unknown"]
    every = torch.cat([one.bases["gradient"].eigenvalues.flatten() for one in laplace.curvature.values()])
    energy = sum(layer_spectrum(one)["energy"] for one in laplace.curvature.values())
    above = int((every > energy / found["weights"]).sum())
    assert sum(found["count"][len(found["count"]) // 2 :]) == above


def test_pieces_page_and_pictures(small_imagenet: Path, tmp_path: Path) -> None:
    settings = SpectraSettings(networks=("tiny-resnet", "tiny-densenet"), images=3, size=32)
    result = Result("spectra", asdict(settings), 0, 2)
    for key in EXPERIMENT.pieces(settings):
        piece = EXPERIMENT.run_piece(key, settings, cache=small_imagenet)
        result = result.with_piece(key, piece, seconds=1.0, peak_memory_bytes=1)
    text = EXPERIMENT.page(result)
    assert text.count("| tiny-resnet |") == 3
    EXPERIMENT.charts(result, tmp_path)
    assert {path.name for path in tmp_path.glob("*.png")} == {"spectra-histograms.png", "spectra-energy.png"}
