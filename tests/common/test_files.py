"""Files: a round trip loses nothing; a truncated, edited or foreign file, or another model, is told in one sentence."""

import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn
from torch.testing import assert_close

import infoform
from flat import flat_laplace
from full_disks import full_disk
from infoform.common import files
from infoform.posteriors import PRESETS, STRUCTURES


def make_model(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    layers = (nn.Conv2d(1, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(27, 4), nn.Tanh(), nn.Linear(4, 3))
    return nn.Sequential(*layers).double()


def make_data() -> list[tuple[torch.Tensor, torch.Tensor]]:
    torch.manual_seed(1)
    return [(torch.randn(5, 1, 4, 4).double(), torch.randint(0, 3, (5,))) for _ in range(4)]


@pytest.fixture
def saved(tmp_path: Path) -> tuple[infoform.Laplace, nn.Sequential, Path]:
    model = make_model()
    laplace = flat_laplace(model, "classification", rank=7).fit(make_data(), progress=False)
    path = tmp_path / "posterior.safetensors"
    laplace.save(path)
    return laplace, model, path


@pytest.mark.parametrize("structure", [*STRUCTURES, *PRESETS])
def test_a_loaded_posterior_equals_the_saved_one(structure: str, tmp_path: Path) -> None:
    model = make_model()
    laplace = flat_laplace(model, "classification", structure=structure, rank=7).fit(make_data(), progress=False)
    laplace.prior_precision = 0.3
    laplace.num_data = 11.0
    laplace.save(tmp_path / "file")
    loaded = infoform.load(tmp_path / "file", model)
    assert loaded.prior_precision == 0.3
    assert loaded.num_data == 11.0
    for name, layer in laplace.posterior().layers.items():
        state = loaded.posterior().layers[name].state_dict()
        assert all(torch.equal(state[key], value) for key, value in layer.state_dict().items())
        assert_close(loaded.posterior().layers[name].dense(), layer.dense(), rtol=1e-10, atol=1e-14)
    for name, value in laplace.sample(3, seed=5).items():
        assert_close(loaded.sample(3, seed=5)[name], value, rtol=1e-10, atol=1e-14)
    assert [str(row) for row in loaded.coverage()] == [str(row) for row in laplace.coverage()]


def test_a_file_with_curvature_gives_every_structure(tmp_path: Path) -> None:
    model = make_model()
    laplace = flat_laplace(model, "classification", statistics="all", basis_size=5).fit(make_data(), progress=False)
    laplace.save(tmp_path / "file", curvature=True)
    loaded = infoform.load(tmp_path / "file", model)
    for structure in [*STRUCTURES, *PRESETS]:
        expected = laplace.posterior(structure=structure, prior_precision=0.1)
        found = loaded.posterior(structure=structure, prior_precision=0.1)
        for name in expected.layers:
            assert_close(found.layers[name].dense(), expected.layers[name].dense(), rtol=1e-10, atol=1e-14)


def test_regression_noise_and_priors_by_layer_survive(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    data = [(torch.randn(9, 3).double(), torch.randn(9, 2).double())]
    laplace = flat_laplace(model, infoform.Regression(noise=[0.5, 2.0]), fisher="exact").fit(data, progress=False)
    laplace.prior_precision = {"0": 1.0, "2": 0.125}
    laplace.save(tmp_path / "file")
    loaded = infoform.load(tmp_path / "file", model)
    assert isinstance(loaded.likelihood, infoform.Regression)
    assert loaded.likelihood.scales == (0.5, 2.0)
    assert loaded.prior_precision == {"0": 1.0, "2": 0.125}
    for name, layer in laplace.posterior().layers.items():
        assert_close(loaded.posterior().layers[name].dense(), layer.dense(), rtol=1e-10, atol=1e-14)


def test_metadata_can_be_read_without_infoform(saved: tuple[infoform.Laplace, nn.Module, Path]) -> None:
    with safe_open(saved[2], framework="pt") as file:
        metadata = file.metadata()
    assert metadata["structure"] == "inf"
    assert metadata["version"] == infoform.__version__
    assert json.loads(metadata["options"])["rank"] == 7
    assert json.loads(metadata["likelihood"])["name"] == "classification"
    assert set(json.loads(metadata["fingerprint"])) == {name for name, _ in make_model().named_parameters()}


def test_a_file_takes_the_space_of_its_posterior(saved: tuple[infoform.Laplace, nn.Module, Path]) -> None:
    laplace, _, path = saved
    header = struct.unpack("<Q", path.read_bytes()[:8])[0]
    assert laplace._known is not None
    assert path.stat().st_size == laplace.posterior().nbytes + laplace._known.nbytes + header + 8


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def truncate_header(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:20])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def edit_tensor(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-9] ^= 1
    path.write_bytes(bytes(content))


def edit_metadata(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"num_data":"20.0"', b'"num_data":"90.0"'))


def overwrite(path: Path) -> None:
    path.write_text("not a posterior")


def foreign(path: Path) -> None:
    save_file({"weight": torch.zeros(3)}, path)


def newer(path: Path) -> None:
    save_file({"weight": torch.zeros(3)}, path, metadata={"format": "infoform/99", "version": "99.0"})


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (truncate, "truncated"),
        (truncate_header, "truncated"),
        (empty, "truncated"),
        (edit_tensor, "changed after it was saved"),
        (edit_metadata, "changed after it was saved"),
        (overwrite, "no safetensors file"),
        (foreign, "not written by infoform"),
        (newer, "infoform/99"),
    ],
)
def test_a_damaged_or_foreign_file_is_refused(
    saved: tuple[infoform.Laplace, nn.Module, Path], damage: Callable[[Path], None], message: str
) -> None:
    _, model, path = saved
    before = path.read_bytes()
    damage(path)
    assert path.read_bytes() != before
    with pytest.raises(ValueError, match=message) as error:
        infoform.load(path, model)
    assert "\n" not in str(error.value)


def test_a_missing_file_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no file"):
        infoform.load(tmp_path / "nowhere", make_model())


def test_another_model_is_told_apart_by_what_differs(saved: tuple[infoform.Laplace, nn.Sequential, Path]) -> None:
    _, model, path = saved
    with pytest.raises(ValueError, match=r"'0.weight' has other values"):
        infoform.load(path, make_model(seed=3))
    with pytest.raises(ValueError, match=r"'0.weight' has dtype float32, not float64"):
        infoform.load(path, make_model().float())
    with pytest.raises(ValueError, match=r"'5.weight' has shape 9x4, not 3x4"):
        infoform.load(path, nn.Sequential(*list(model)[:-1], nn.Linear(4, 9).double()))
    with pytest.raises(ValueError, match=r"'5.weight' is missing"):
        infoform.load(path, nn.Sequential(*list(model)[:-1]))
    with pytest.raises(ValueError, match=r"'6.weight' is new"):
        infoform.load(path, nn.Sequential(*model, nn.Linear(3, 3).double()))


def test_other_values_are_accepted_on_request_but_other_shapes_never(
    saved: tuple[infoform.Laplace, nn.Sequential, Path],
) -> None:
    laplace, model, path = saved
    loaded = infoform.load(path, make_model(seed=3), strict=False)
    assert_close(loaded.posterior().layers["0"].dense(), laplace.posterior().layers["0"].dense())
    with pytest.raises(ValueError, match="shape"):
        infoform.load(path, nn.Sequential(*list(model)[:-1], nn.Linear(4, 9).double()), strict=False)


def test_a_loaded_file_without_curvature_says_what_it_lacks(saved: tuple[infoform.Laplace, nn.Module, Path]) -> None:
    loaded = infoform.load(saved[2], saved[1])
    with pytest.raises(ValueError, match="curvature=True"):
        loaded.posterior(structure="kfac")
    with pytest.raises(ValueError, match="curvature=True"):
        _ = loaded.curvature


def test_a_failed_save_leaves_the_old_file_and_nothing_else(
    saved: tuple[infoform.Laplace, nn.Module, Path],
) -> None:
    laplace, _, path = saved
    before = path.read_bytes()
    laplace.prior_precision = 3.0
    for size in range(0, len(before), 1 + len(before) // 7):
        with full_disk(size), pytest.raises(OSError, match=f"'{path}' cannot be written: File too large; what was"):
            laplace.save(path)
        assert path.read_bytes() == before
        assert list(path.parent.iterdir()) == [path]


def test_the_same_object_is_saved_as_the_same_bytes(saved: tuple[infoform.Laplace, nn.Module, Path]) -> None:
    laplace, model, path = saved
    before = path.read_bytes()
    for _ in range(2):
        laplace.save(path)
        assert path.read_bytes() == before
    infoform.load(path, model).save(path)
    assert path.read_bytes() == before


def test_saving_into_a_missing_folder_names_the_folder(
    saved: tuple[infoform.Laplace, nn.Module, Path], tmp_path: Path
) -> None:
    with pytest.raises(FileNotFoundError, match="create it"):
        saved[0].save(tmp_path / "missing" / "file")


def test_saving_before_a_fit_is_refused_and_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="call fit"):
        infoform.Laplace(make_model(), "classification").save(tmp_path / "file")
    assert not list(tmp_path.iterdir())


def test_the_fingerprint_of_quantised_weights_is_that_of_what_they_are_stored_in() -> None:
    from torch.testing._internal.two_tensor import TwoTensor

    codes, scales = torch.arange(6.0).reshape(2, 3), torch.ones(2, 3)
    told = {files.describe(TwoTensor(codes, other)) for other in (scales, scales.clone(), 2 * scales)}
    assert len(told) == 2
    assert files.describe(TwoTensor(codes + 1, scales)) not in told


def test_no_file_can_run_code() -> None:
    root = Path(infoform.__file__).parent
    for path in root.rglob("*.py"):
        source = path.read_text()
        assert "pickle.load" not in source, path  # the one Unpickler, of CIFAR-10's files, knows arrays alone
        whole = source.count("torch.load(") - source.count("weights_only=True")
        # MLflow's models keep the whole network, by pickle, on purpose; its docstring, docs and SECURITY.md say so
        assert whole == (path == root / "integrations" / "mlflow.py"), path
