from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from infoform.data import uci


@pytest.fixture
def small_uci(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
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
    uci._table.cache_clear()
    yield tmp_path
    uci._table.cache_clear()
