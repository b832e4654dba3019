"""Every kind of data gives the batches that the same data in memory give, and bad data are refused in one sentence."""

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch
from PIL import Image
from trees import NAMES, NETWORK, TREES, read
from typer.testing import Result

from infoform.cli.mistakes import Mistake
from infoform.cli.options import DataOptions
from infoform.cli.sources import DATA_KINDS, Data, Reading, open_data
from infoform.likelihoods import get_likelihood
from infoform.records.fit import DataFacts

Call = Callable[..., Result]
Fail = Callable[..., str]
NO_FACTS = DataFacts()


def _open(
    spec: str, likelihood: str = "classification", *, labelled: bool = True, facts: DataFacts = NO_FACTS, **options: Any
) -> Data:
    return open_data(spec, Reading(DataOptions(**options), get_likelihood(likelihood), torch.float64, facts, labelled))


def _all(data: Data) -> list[torch.Tensor]:
    """Return inputs and targets of the whole."""
    return [torch.cat(parts) for parts in zip(*data.loader, strict=True)]


def test_every_kind_takes_its_own_and_no_other(home: Path) -> None:
    Path("pictures").mkdir()
    specs = {"images": "pictures", "table": "a.csv", "arrays": "a.npz", "function": "my.module:loader"}
    assert specs.keys() == DATA_KINDS.keys()
    for name, spec in specs.items():
        assert [other for other, kind in DATA_KINDS.items() if kind.takes(spec)] == [name]


@pytest.mark.parametrize("spec", ["trees.csv", "trees.parquet"])
def test_a_table(home: Path, spec: str) -> None:
    frame = pandas.read_csv("trees.csv")
    data = _open(spec, target="tree", ignore="id,class,height", batch_size=16)
    x, y = _all(data)
    torch.testing.assert_close(x, torch.tensor(frame[["a", "b", "c"]].to_numpy()), rtol=1e-6, atol=1e-6)
    assert [NAMES[label] for label in y] == list(frame["tree"])
    assert data.examples == 40
    assert data.name(7) == "row 7"
    assert [len(batch[0]) for batch in data.loader] == [16, 16, 8]


def test_whole_numbers_are_class_indices_and_names_follow_the_given_order(home: Path) -> None:
    frame = pandas.read_csv("trees.csv")
    assert _all(_open("trees.csv", target="class", ignore="id,tree,height"))[1].tolist() == list(frame["class"])
    backwards = _all(_open("trees.csv", target="tree", ignore="id,class,height", classes="cedar, birch, ash"))[1]
    assert [2 - int(label) for label in backwards] == list(frame["class"])


def test_several_targets(home: Path) -> None:
    _, y = _all(_open("trees.csv", "regression", target="height,a", ignore="id,class,tree"))
    assert y.shape == (40, 2)


@pytest.mark.parametrize(
    ("content", "options", "said"),
    [
        ("a,b,y\n1,2,0\n", {"target": "z"}, "has no column 'z', which --target names; it has a, b, y"),
        ("a,b,y\n1,2,0\n", {}, "which column of 'x.csv' is the target"),
        ("a,b,y\n1,2,0\n", {"target": "y", "ignore": "q"}, "has no column 'q', which --ignore names"),
        ("a,b,y\n1,,0\n3,4,1\n", {"target": "y"}, r"column 'b' of 'x.csv' must be finite.*1 of 2.*first in row 0"),
        ("a,b,y\n1,inf,0\n3,4,1\n", {"target": "y"}, "must be finite"),
        (
            "a,b,y\n1,big,0\n",
            {"target": "y"},
            "column 'b' of 'x.csv' must hold numbers, got 'big' in row 0; drop it with --ignore",
        ),
        (
            "a,my id,b,c,y\nx,u 1,1,v,0\ny,u 2,2,w,1\n",
            {"target": "y", "ignore": "c"},
            r"2 hold none: a, my id \(a is 'x' in row 0\); drop them with --ignore 'c,a,my id', or encode them",
        ),
        ("a;b;y\n1;2;0\n", {"target": "y"}, "must be separated by commas, and its header is by semicolons; save"),
        ("a;b;y\n1,5;2,5;0\n1,5;2,5;0\n", {"target": "y"}, "must be separated by commas, and its header is by semi"),
        ("a\tb\ty\n1\t2\t0\n", {"target": "y"}, "its header is by tabs"),
        ("a,b,y\n1,2,\n", {"target": "y"}, "no value in column 'y', row 0"),
        ("a,b,y\n1,2,0.5\n", {"target": "y"}, "classes are whole numbers or names; use --likelihood regression"),
        ("y\n1\n", {"target": "y"}, "has no columns besides the target"),
        ("a,y\n", {"target": "y"}, "has no rows"),
        ("", {"target": "y"}, "cannot be read as a table"),
        ("a,b,y\n1,2,0\n", {"target": "y,b"}, "a classifier has one target column"),
        ("a,b,y\n1,2,0,9\n3,4,1,9\n", {"target": "y"}, "more values than the header has names.*name every column"),
        ("a,b,y\n0,2,0,9\n1,4,1,9\n", {"target": "y"}, "more values than the header has names"),
        ("a,b,y\n1,2,0,9,9\n3,4,1,9,9\n", {"target": "y"}, "more values than the header has names"),
        ("a,b,y\n1,2,0,9\n3,4,1\n", {"target": "y"}, "more values than the header has names"),
        (
            "a,b,y,id\n1,2,0,7\n\n3,1,8\n",
            {"target": "y", "ignore": "id"},
            "row 1 of 'x.csv' has 3 values and the header 4",
        ),
        ("a,y,id,\n1,0,7,\n3,1\n", {"target": "y", "ignore": "id"}, "row 1 of 'x.csv' has 2 values and the header 3"),
        ("a,y\n1,0\n1_000,1\n", {"target": "y"}, "must hold numbers, got '1_000' in row 1"),
        ("a,b,y\n1,2,0\n3,4,1,9\n", {"target": "y"}, "cannot be read as a table"),
        ("a,b,a,y\n1,2,3,0\n", {"target": "y"}, "has more than one column 'a', so that the name does not say which"),
        ("a,b,y,y\n1,2,3,0\n", {"target": "y"}, "has more than one column 'y'"),
    ],
)
def test_bad_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, options: dict[str, Any], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.csv").write_text(content)
    with pytest.raises(Mistake, match=said):
        _open("x.csv", **options)


def test_columns_without_a_name_are_not_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.csv").write_text(",a,,y\n0,1,5,0\n1,3,6,1\n")
    assert _all(_open("x.csv", target="y"))[0].tolist() == [[0, 1, 5], [1, 3, 6]]


def test_a_separator_at_the_end_of_every_line_is_no_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.csv").write_text("a,b,y\n1,2,0,\n3,4,1,\n")
    x, y = _all(_open("x.csv", target="y"))
    assert (x.tolist(), y.tolist()) == ([[1, 2], [3, 4]], [0, 1])


def test_nan_in_a_table_ends_the_command(home: Path, fail: Fail) -> None:
    frame = pandas.read_csv("trees.csv")
    frame.loc[5, "b"] = np.nan
    frame.to_csv("trees.csv", index=False)
    assert "the first in row 5" in fail("fit", "run", *NETWORK, *TREES)


@pytest.mark.parametrize("spec", ["missing.csv", "missing.npz", "missing", "missing.py:loader", "missing.txt"])
def test_missing_files(home: Path, spec: str) -> None:
    with pytest.raises(Mistake, match="there is no file"):
        _open(spec, target="y")


def test_a_file_of_no_kind(home: Path) -> None:
    Path("notes.txt").write_text("")
    with pytest.raises(Mistake, match=r"data must be a folder of images, a .csv.*got 'notes.txt'"):
        _open("notes.txt")


def test_arrays(home: Path) -> None:
    saved = np.load("trees.npz")
    x, y = _all(_open("trees.npz"))
    torch.testing.assert_close(x, torch.tensor(saved["x"]).double())
    assert y.tolist() == saved["y"].tolist()
    _, heights = _all(_open("trees.npz", "regression", target="height"))
    torch.testing.assert_close(heights, torch.tensor(saved["height"]).double())
    np.savez("bytes.npz", images=np.arange(12, dtype=np.uint8).reshape(3, 4), labels=np.array(["b", "a", "b"]))
    data = _open("bytes.npz", divide_by=2.0)
    x, y = _all(data)
    assert x.tolist() == (np.arange(12).reshape(3, 4) / 2).tolist()
    assert (y.tolist(), data.facts.classes) == ([1, 0, 1], ["a", "b"])


def test_an_array_that_nobody_asked_for_stays_in_its_file(home: Path) -> None:
    content: dict[str, Any] = {"x": np.ones((4, 3), dtype="float32"), "y": np.zeros(4, dtype="int64")}
    np.savez_compressed("bomb.npz", **content, other=np.zeros(2**27, dtype="uint8"))  # 128 MB in 130 kB
    assert Path("bomb.npz").stat().st_size < 2**20
    tracemalloc.start()
    try:
        x, y = _all(_open("bomb.npz"))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (x.shape, y.shape) == ((4, 3), (4,))
    assert peak < 2**24


def test_arrays_without_targets(home: Path) -> None:
    np.savez("pool.npz", x=np.zeros((5, 3)))
    (batch,) = _open("pool.npz", labelled=False, target="y").loader
    assert len(batch) == 1


@pytest.mark.parametrize(
    ("arrays", "options", "said"),
    [
        ({"q": np.zeros(3)}, {}, "which array of 'a.npz' has the inputs"),
        ({"x": np.zeros((3, 2))}, {}, "which array of 'a.npz' has the targets"),
        ({"x": np.zeros((3, 2)), "y": np.zeros(3)}, {"target": "z"}, "has no array 'z', which --target names"),
        ({"x": np.zeros((3, 2)), "y": np.zeros(2)}, {}, "must be as many, got 3 in 'x' and 2 in 'y'"),
        ({"x": np.full((3, 2), np.nan), "y": np.zeros(3)}, {}, "must be finite, and 3 of 3 examples"),
        ({"x": np.array(["a"]), "y": np.zeros(1)}, {}, "must hold numbers"),
        ({"x": np.array([{}]), "y": np.zeros(1)}, {}, "cannot be read as plain arrays"),
    ],
)
def test_bad_arrays(home: Path, arrays: dict[str, Any], options: dict[str, Any], said: str) -> None:
    np.savez("a.npz", **arrays)
    with pytest.raises(Mistake, match=said):
        _open("a.npz", **options)


def test_whole_numbers_as_inputs_have_a_remedy(home: Path, fail: Fail, succeed: Call) -> None:
    np.savez("bytes.npz", x=np.ones((4, 3), dtype=np.uint8), y=np.arange(4) % 3)
    assert "give --divide-by 1 to make" in fail("fit", "run", *NETWORK, "--data", "bytes.npz")
    np.savez("bytes.npz", x=np.full((4, 3), 200, dtype=np.uint8), y=np.arange(4) % 3)
    assert "give --divide-by 255" in fail("fit", "run", *NETWORK, "--data", "bytes.npz")
    succeed("fit", "run", *NETWORK, "--data", "bytes.npz", "--divide-by", 255)


def _pictures(root: str, *, size: int = 8, classes: tuple[str, ...] = ("cat", "dog"), count: int = 3) -> None:
    generator = np.random.default_rng(0)
    for name in classes:
        (Path(root) / name).mkdir(parents=True)
        for index in range(count):
            pixels = generator.integers(0, 256, (size, size, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(Path(root) / name / f"{index}.png")


def test_a_folder_of_images(home: Path) -> None:
    _pictures("photos")
    x, y = _all(_open("photos", image_mean="0.5,0.4,0.3", image_std="2"))
    assert x.shape == (6, 3, 8, 8)
    pixels = np.asarray(Image.open("photos/dog/1.png")) / 255
    expected = (pixels - np.array([0.5, 0.4, 0.3])) / 2
    np.testing.assert_allclose(x[4].permute(1, 2, 0).numpy(), expected, atol=1e-6)
    assert y.tolist() == [0, 0, 0, 1, 1, 1]
    gray = _open("photos", gray=True, image_size="4x6")
    assert _all(gray)[0].shape == (6, 1, 4, 6)
    assert gray.name(4) == "dog/1.png"
    assert gray.facts == DataFacts(classes=["cat", "dog"])


def test_images_alone_have_no_labels(home: Path) -> None:
    _pictures("photos")
    (batch,) = _open("photos/cat", labelled=False).loader
    assert len(batch) == 1
    with pytest.raises(Mistake, match="without class folders"):
        _open("photos/cat")


def test_a_part_of_the_classes_keeps_their_places(home: Path) -> None:
    _pictures("photos", classes=("dog",))
    assert _all(_open("photos", facts=DataFacts(classes=["cat", "dog"])))[1].tolist() == [1, 1, 1]
    with pytest.raises(Mistake, match=r"has images of one class \('dog'\)"):
        _open("photos")
    with pytest.raises(Mistake, match="has the class 'dog', which is none of ant, bee"):
        _open("photos", classes="ant,bee")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"image_size": "big"}, "--image-size must be"),
        ({"image_mean": "1,2"}, "--image-mean must be one number, or one for each of 3 channels"),
        ({"image_std": "0"}, "--image-std must be"),
    ],
)
def test_bad_image_options(home: Path, options: dict[str, Any], said: str) -> None:
    _pictures("photos")
    with pytest.raises(Mistake, match=said):
        _open("photos", **options)


def test_bad_images(home: Path) -> None:
    _pictures("photos")
    Path("photos/cat/0.png").write_text("no image")
    with pytest.raises(Mistake, match=r"'photos/cat/0.png' cannot be read as an image"):
        _all(_open("photos"))
    _pictures("mixed", classes=("a",))
    _pictures("mixed", classes=("b",), size=9)
    with pytest.raises(Mistake, match=r"'mixed/b/0.png' has 9x9 where the first has 8x8; give --image-size"):
        _all(_open("mixed"))
    Path("nothing").mkdir()
    with pytest.raises(Mistake, match="holds no images"):
        _open("nothing", labelled=False)


def test_an_image_of_too_many_pixels_is_refused_before_it_is_unpacked(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 16)  # 64 pixels are more than twice as many, as 400 million are
    _pictures("huge")
    with pytest.raises(Mistake, match=r"'huge/cat/0.png' has too many pixels: .*64 pixels.*; make it smaller"):
        _all(_open("huge"))


def test_a_run_on_images_from_fit_to_labels(home: Path, succeed: Call, fail: Fail) -> None:
    _pictures("photos")
    options = ("--image-size", 8, "--gray", "--quiet")
    succeed("fit", "run", "--model", "model.py:pictures", "--data", "photos", *options)
    said = fail("evaluate", "run", "--data", "photos")  # no --weights: the factory gives others each time
    assert "belongs to another model" in said
    from infoform.cli.model_source import build_model

    torch.save(build_model("model.py:pictures", {}).state_dict(), "pictures.pt")
    succeed("fit", "run", "--model", "model.py:pictures", "-w", "pictures.pt", "--data", "photos", *options, "--force")
    succeed("predict", "run", "--data", "photos/dog")  # size and channels as in the fit
    table = pandas.read_csv("run/predict.csv")
    assert list(table["example"]) == ["0.png", "1.png", "2.png"]
    assert {"prob_cat", "prob_dog"} < set(table)
    _pictures("three", classes=("ant", "bee", "cow"))
    said = fail("fit", "other", "--model", "model.py:pictures", "-w", "pictures.pt", "--data", "three", *options)
    assert "the network has 2 outputs and 'three' 3 classes ('ant', 'bee', 'cow'); mend misspelt labels, or" in said


LOADERS = """
import torch
from torch.utils.data import DataLoader, TensorDataset

x, y = torch.ones(6, 3), torch.arange(6) % 3

def loader():
    return DataLoader(TensorDataset(x, y), batch_size=4)

def dataset():
    return TensorDataset(x, y)

def once():
    return iter([(x, y)])

def number():
    return 3

def fails():
    return x.nothing

batches = [(x, y)]
"""


@pytest.mark.parametrize("name", ["loader", "dataset", "batches"])
def test_a_function_of_the_users(home: Path, name: str) -> None:
    Path("loaders.py").write_text(LOADERS)
    x, y = _all(_open(f"loaders.py:{name}"))
    assert x.shape == (6, 3)
    assert y.tolist() == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("once", "can be read more than once, got a list_iterator"),
        ("number", "must give a loader, a list of batches or a Dataset, got a int"),
        ("fails", "fails: AttributeError: 'Tensor' object has no attribute 'nothing', line 20 of loaders.py"),
        ("absent", "has no 'absent', which --data names"),
    ],
)
def test_bad_functions(home: Path, name: str, said: str) -> None:
    Path("loaders.py").write_text(LOADERS)
    with pytest.raises(Mistake, match=said):
        _open(f"loaders.py:{name}")


def test_arrays_are_standardised_and_get_channels_first(home: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (5, 4, 6, 3), dtype=np.uint8)
    np.savez("last.npz", x=pixels, y=np.arange(5) % 3)
    mean, std = np.array([0.5, 0.4, 0.3]), np.array([2.0, 3.0, 4.0])
    told: dict[str, Any] = {"divide_by": 255.0, "image_mean": "0.5,0.4,0.3", "image_std": "2,3,4"}
    x, _ = _all(_open("last.npz", channels="last", **told))
    expected = (pixels / 255 - mean) / std
    np.testing.assert_allclose(x.permute(0, 2, 3, 1).numpy(), expected, atol=1e-6)
    np.savez("none.npz", x=pixels[..., 0], y=np.arange(5) % 3)
    x, _ = _all(_open("none.npz", channels="none", image_mean="100"))
    np.testing.assert_allclose(x[:, 0].numpy(), pixels[..., 0] - 100.0)
    assert x.shape == (5, 1, 4, 6)


def test_columns_of_a_table_are_standardised(home: Path) -> None:
    x, _ = _all(_open("trees.csv", target="tree", ignore="id,class,height", image_mean="1,2,3", image_std="2,4,8"))
    table = pandas.read_csv("trees.csv")[["a", "b", "c"]].to_numpy()
    np.testing.assert_allclose(x.numpy(), (table - [1, 2, 3]) / [2, 4, 8], atol=1e-12)
    with pytest.raises(Mistake, match="--image-mean must be one number, or one for each of 3"):
        _open("trees.csv", target="tree", ignore="id,class,height", image_mean="1,2")


@pytest.mark.parametrize(
    ("data", "options", "said"),
    [
        ("trees.npz", ("--gray",), "--gray or --colour is for a folder of images, got 'trees.npz', which is an .npz"),
        ("trees.npz", ("--image-size", 8), "--image-size is for a folder of images"),
        ("trees.npz", ("--ignore", "id"), "--ignore is for a .csv, .tsv or .parquet table"),
        ("photos", ("--divide-by", 255), "--divide-by is for a .csv, .tsv or .parquet table or an .npz, got 'photos'"),
        ("photos", ("--target", "y"), "--target is for"),
        ("loaders.py:loader", ("--image-std", 2), "--image-std is for a folder of images or a .csv"),
        ("trees.csv", ("--target", "tree", "--channels", "last"), "--channels is for an .npz"),
    ],
)
def test_an_option_that_the_data_do_not_heed_is_refused(
    home: Path, fail: Fail, data: str, options: tuple[Any, ...], said: str
) -> None:
    _pictures("photos")
    Path("loaders.py").write_text(LOADERS)
    assert said in fail("fit", "run", *NETWORK, "--data", data, *options)
    assert not Path("run").exists()


def test_options_that_the_run_remembers_may_be_of_other_data(home: Path, succeed: Call, fail: Fail) -> None:
    succeed("fit", "run", *NETWORK, *TREES, "--quiet")  # with --ignore
    succeed("evaluate", "run", "--data", "trees.npz", "--target", "y", "--quiet")
    assert "--gray or --colour is for" in fail("evaluate", "run", "--data", "trees.npz", "--target", "y", "--gray")


def test_the_option_that_helps_is_named(home: Path, fail: Fail) -> None:
    _pictures("photos", size=8)
    images = ("--model", "model.py:pictures")
    assert "the network takes one channel: give --gray." in fail("fit", "run", *images, "--data", "photos")
    np.savez("none.npz", x=np.zeros((4, 8, 8)), y=np.arange(4) % 2)
    assert "give --channels none." in fail("fit", "run", *images, "--data", "none.npz")
    np.savez("last.npz", x=np.full((4, 8, 8, 1), 200, dtype=np.uint8), y=np.arange(4) % 2)
    said = fail("fit", "run", *images, "--data", "last.npz")
    assert "give --divide-by 255" in said
    assert said.endswith("and the network wants the channels first: give --channels last.")


def test_a_column_of_ids_is_named(home: Path, fail: Fail) -> None:
    frame = pandas.read_csv("trees.csv").assign(number=range(100, 140))
    frame[["number", "a", "b", "c", "tree"]].to_csv("numbered.csv", index=False)
    said = fail("fit", "run", *NETWORK, "--data", "numbered.csv", "--target", "tree")
    assert "the network takes 3 columns and the table gives 4 (number, a, b, c)" in said
    assert said.endswith("with --ignore number.")


def test_a_column_of_ids_with_a_space_is_quoted_for_the_shell(home: Path, fail: Fail) -> None:
    frame = pandas.read_csv("trees.csv")
    frame[["a", "b", "c", "tree"]].to_csv("numbered.csv")  # pandas writes its index: "Unnamed: 0"
    said = fail("fit", "run", *NETWORK, "--data", "numbered.csv", "--target", "tree")
    assert said.endswith("with --ignore 'Unnamed: 0'.")


def test_a_table_in_another_encoding_is_told(home: Path, fail: Fail) -> None:
    pandas.read_csv("trees.csv").to_csv("wide.csv", index=False, encoding="utf-16")
    said = fail("fit", "run", *NETWORK, "--data", "wide.csv", "--target", "tree")
    assert said.startswith("'wide.csv' is not in UTF-8 (")
    assert said.endswith("; save it again in that encoding.")


def test_a_text_among_numbers_is_told_with_its_row(home: Path, fail: Fail) -> None:
    frame = pandas.read_csv("trees.csv", dtype={"b": object})
    frame.loc[3, "b"] = "high"
    frame.to_csv("trees.csv", index=False)
    said = fail("fit", "run", *NETWORK, *TREES)
    assert "column 'b' of 'trees.csv' must hold numbers, got 'high' in row 3;" in said


def test_ignored_columns_and_names_of_targets_are_kept(home: Path) -> None:
    data = _open("trees.csv", "regression", target="height", ignore="id,tree,class")
    assert list(data.ignored["id"])[:2] == ["n0", "n1"]
    assert data.facts.targets == ["height"]


def test_data_that_the_network_does_not_take(home: Path, fail: Fail) -> None:
    np.savez("wide.npz", x=np.zeros((4, 9)), y=np.arange(4) % 3)
    said = fail("fit", "run", *NETWORK, "--data", "wide.npz")
    assert said.startswith("the network fails on the first batch of 'wide.npz' (inputs (4, 9) float32)")
    assert not Path("run").exists()


def test_labels_beyond_the_outputs(home: Path, fail: Fail) -> None:
    np.savez("beyond.npz", x=np.zeros((4, 3)), y=np.full(4, 5))
    assert "in batch 0" in fail("fit", "run", *NETWORK, "--data", "beyond.npz", "--quiet")
    assert not Path("run").exists()


def test_options_of_the_data_are_kept_by_the_run(fitted: Path) -> None:
    assert read(fitted / "fit.json")["options"]["ignore"] == "id,class,height"
