import os
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from infoform.data.uci import FOLDERS, RegressionSplit, download_uci, find_uci, load_uci, num_splits

SIZES = {"boston": (506, 13), "concrete": (1030, 8), "energy": (768, 8), "wine": (1599, 11), "yacht": (308, 6)}


def write_set(folder: Path) -> np.ndarray:
    table = np.random.default_rng(0).normal(size=(10, 4))
    table[:, 1] = 0.1  # constant
    folder.mkdir(parents=True)
    np.savetxt(folder / "data.txt", table)
    (folder / "index_features.txt").write_text("0\n1\n2\n")
    (folder / "index_target.txt").write_text("3\n")
    for split in range(2):
        np.savetxt(folder / f"index_train_{split}.txt", np.arange(split, split + 8))
        np.savetxt(folder / f"index_test_{split}.txt", np.array([8, 9] if split == 0 else [0, 9]))
    return table


def needs_data() -> None:
    if "INFOFORM_DATA" not in os.environ:
        if os.environ.get("CI"):
            pytest.fail("INFOFORM_DATA must name the folder of the data sets")
        pytest.skip("INFOFORM_DATA names no folder")


def test_a_split_holds_the_rows_and_columns_that_its_files_name(tmp_path: Path) -> None:
    table = torch.from_numpy(write_set(tmp_path / "uci" / "yacht"))
    split = load_uci("yacht", 1, root=tmp_path)
    assert num_splits("yacht", root=tmp_path) == 2
    assert_close(split.train_x, table[1:9, :3])
    assert_close(split.train_y, table[1:9, 3:])
    assert_close(split.test_x, table[[0, 9], :3])
    assert_close(split.test_y, table[[0, 9], 3:])


def test_standardised_targets_go_back_to_their_units(tmp_path: Path) -> None:
    write_set(tmp_path / "uci" / "yacht")
    raw = load_uci("yacht", 0, root=tmp_path)
    split = raw.standardised()
    assert_close(split.train_x.mean(0), torch.zeros(3, dtype=torch.float64))
    assert_close(split.train_x.std(0, correction=0), torch.tensor([1.0, 0.0, 1.0], dtype=torch.float64))
    assert_close(split.test_y * split.target_std + raw.train_y.mean(), raw.test_y)


def test_what_is_held_out_comes_from_the_training_part_alone() -> None:
    numbers = torch.arange(10.0).double().unsqueeze(1)
    split = RegressionSplit(numbers, numbers, -numbers, -numbers).held_out(0.3)
    assert split.train_y.flatten().tolist() == list(range(7))
    assert split.test_y.flatten().tolist() == [7, 8, 9]
    with pytest.raises(ValueError, match="between 0 and 1, got 1"):
        split.held_out(1.0)


def test_names_splits_and_missing_folders_are_told(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"one of boston, .* got 'iris'"):
        load_uci("iris", 0)
    with pytest.raises(FileNotFoundError, match="set INFOFORM_DATA"):
        find_uci("yacht", root=tmp_path)
    write_set(tmp_path / "uci" / "yacht")
    with pytest.raises(ValueError, match="between 0 and 1, got 2"):
        load_uci("yacht", 2, root=tmp_path)


def test_a_download_gives_the_same_set(tmp_path: Path) -> None:
    write_set(tmp_path / "server" / "yacht" / "data")
    source = (tmp_path / "server").as_uri()
    download_uci("yacht", root=tmp_path / "here", source=source, splits=2)
    download_uci("yacht", root=tmp_path / "here", source="file:///nowhere", splits=2)  # all is there: nothing is asked
    loaded = load_uci("yacht", 0, root=tmp_path / "here")
    assert loaded.train_x.shape == (8, 3)
    assert loaded.test_x.shape == (2, 3)


@pytest.mark.parametrize("name", FOLDERS)
def test_real_splits_are_disjoint_and_complete(name: str) -> None:
    needs_data()
    folder = find_uci(name)
    splits = num_splits(name)
    assert splits == (5 if name == "protein" else 20)
    for split in (0, splits - 1):
        train, test = (set(np.loadtxt(folder / f"index_{part}_{split}.txt")) for part in ("train", "test"))
        assert not train & test
        assert train | test == set(range(len(train) + len(test)))


@pytest.mark.parametrize("name", SIZES)
def test_real_sets_have_the_published_sizes(name: str) -> None:
    needs_data()
    split = load_uci(name, 0)
    assert (len(split.train_x) + len(split.test_x), split.train_x.shape[1]) == SIZES[name]
    assert split.train_y.shape == (len(split.train_x), 1)
