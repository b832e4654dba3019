from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from infoform.data import uci


@pytest.fixture
def small_uci(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with tiny stand-ins of some UCI sets, of the right form: 260 rows, 3 features, 2 splits."""
    for seed, name in enumerate(("boston", "wine", "energy", "yacht")):
        folder = tmp_path / "data" / "uci" / uci.FOLDERS[name]
        folder.mkdir(parents=True)
        generator = np.random.default_rng(seed)
        x = generator.normal(size=(260, 3))
        y = np.sin(x[:, :1]) + x[:, 1:2] + 0.1 * generator.normal(size=(260, 1))
        np.savetxt(folder / "data.txt", np.hstack([x, 5 + 3 * y]))
        (folder / "index_features.txt").write_text("0\n1\n2\n")
        (folder / "index_target.txt").write_text("3\n")
        for split in range(2):
            order = generator.permutation(260)
            np.savetxt(folder / f"index_train_{split}.txt", order[:60])
            np.savetxt(folder / f"index_test_{split}.txt", order[60:80])
    monkeypatch.setenv("INFOFORM_DATA", str(tmp_path / "data"))
    return tmp_path


@pytest.fixture
def small_imagenet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with stand-ins of ImageNet's validation part (10 classes, 2 pictures each) and of 4 paintings."""
    folder = tmp_path / "data"
    names = [f"imagenet/val/n{number:02}/{which}.JPEG" for number in range(10) for which in range(2)]
    generator = np.random.default_rng(0)
    for name in [*names, *(f"paintings/{number}.png" for number in range(4))]:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        coarse = Image.fromarray(generator.integers(0, 256, (64, 64, 3)).astype(np.uint8))
        coarse.resize((256, 256)).save(folder / name, format="PNG")
    monkeypatch.setenv("INFOFORM_DATA", str(folder))
    return folder
