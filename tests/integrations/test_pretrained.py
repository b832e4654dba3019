"""Folders as the Hugging Face Hub keeps models; the Hub itself is not asked."""

import json
from copy import deepcopy
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import infoform
from infoform.integrations.hub import HubLaplace


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 3))


@pytest.fixture
def laplace() -> infoform.Laplace:
    torch.manual_seed(0)
    x = torch.randn(60, 4)
    found = infoform.Laplace(network().eval(), "classification").fit([(x, torch.arange(60) % 3)], progress=False)
    found.temperature = 1.5
    return found


X = torch.linspace(-1, 1, 20).reshape(5, 4)


def test_a_folder_gives_back_network_and_posterior(laplace: infoform.Laplace, tmp_path: Path) -> None:
    folder = laplace.save_pretrained(tmp_path / "net", base_model="someone/net", comparison="| NLL | 0.25 |")
    names = {"model.safetensors", "posterior.safetensors", "config.json", "README.md"}
    assert {one.name for one in folder.iterdir()} == names
    again = infoform.Laplace.from_pretrained(folder, network())
    assert_close(again.predict(X).probs, laplace.predict(X).probs, rtol=0, atol=0)
    config = json.loads((folder / "config.json").read_text())
    assert config["temperature"] == 1.5
    card = (folder / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: infoform\n")
    assert "base_model: someone/net" in card
    assert "| NLL | 0.25 |" in card
    assert [one.name for one in tmp_path.iterdir()] == ["net"]


def test_a_card_that_was_changed_stays(laplace: infoform.Laplace, tmp_path: Path) -> None:
    folder = laplace.save_pretrained(tmp_path / "net")
    (folder / "README.md").write_text("mine")
    laplace.save_pretrained(folder)
    assert (folder / "README.md").read_text() == "mine"


def test_the_mixin_of_the_hub_writes_and_reads_the_same_folder(laplace: infoform.Laplace, tmp_path: Path) -> None:
    HubLaplace(laplace).save_pretrained(tmp_path / "net")
    again = HubLaplace.from_pretrained(str(tmp_path / "net"), model=network()).laplace
    assert_close(again.predict(X).probs, laplace.predict(X).probs, rtol=0, atol=0)


def test_bad_folders_and_models_are_told_and_leave_nothing(laplace: infoform.Laplace, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"does not exist; create it before saving there"):
        laplace.save_pretrained(tmp_path / "none" / "net")
    (tmp_path / "file").write_text("")
    with pytest.raises(FileExistsError, match=r"is a file, and a folder is needed"):
        laplace.save_pretrained(tmp_path / "file")
    with pytest.raises(FileNotFoundError, match=r"has no model.safetensors; give a folder that save_pretrained wrote"):
        infoform.Laplace.from_pretrained(tmp_path, network())
    folder = laplace.save_pretrained(tmp_path / "net")
    other = nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 3))
    with pytest.raises(ValueError, match=r"are of another model"):
        infoform.Laplace.from_pretrained(folder, other)


def test_an_unfitted_posterior_is_not_saved(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="no posterior yet"):
        infoform.Laplace(deepcopy(network()), "classification").save_pretrained(tmp_path / "net")
    assert list(tmp_path.iterdir()) == []
