import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from infoform import experiments
from infoform.experiments import EXPERIMENTS, Experiment, Result, Settings, get_experiment
from infoform.experiments.__main__ import main
from infoform.experiments.base import choosing_pieces
from infoform.experiments.claims import Claims
from infoform.experiments.page import write_page
from infoform.experiments.runner import reproduce, result_path


@dataclass(frozen=True)
class SquareSettings(Settings):
    count: int = 3


@dataclass(frozen=True)
class SquaresOfAnyCount(SquareSettings):
    count: int = choosing_pieces(3)


class Squares(Experiment[SquareSettings]):
    name = "squares"
    summary = "Squares of small numbers."
    reproduces = "nothing"

    def __init__(self) -> None:
        self.count, self.done, self.fail_at = 3, list[str](), ""
        self.error: BaseException = KeyboardInterrupt()
        self.order: dict[str, list[str]] = {}
        self.after: Callable[[], object] = lambda: None
        self.kind_of_settings: type[SquareSettings] = SquareSettings

    def settings(self, *, quick: bool = False, full: bool = False) -> SquareSettings:
        return self.kind_of_settings(count=1 if quick else self.count)

    def pieces(self, settings: SquareSettings) -> Sequence[str] | Mapping[str, Sequence[str]]:
        keys = [str(index) for index in range(settings.count)]
        return {key: self.order.get(key, ()) for key in keys} if self.order else keys

    def run_piece(self, key: str, settings: SquareSettings, *, cache: Path) -> dict[str, Any]:
        if key == self.fail_at:
            raise self.error
        self.done.append(key)
        self.after()
        return {"square": int(key) ** 2, "third": int(key) / 3}

    def page(self, result: Result) -> str:
        return f"Sum {sum(piece['square'] for piece in result.pieces.values())}."

    def charts(self, result: Result, folder: Path) -> None:
        (folder / "squares-1.png").write_text("picture")


@pytest.fixture
def squares(monkeypatch: pytest.MonkeyPatch) -> Squares:
    one = Squares()
    monkeypatch.setitem(EXPERIMENTS, "squares", "a_module")
    monkeypatch.setattr(experiments, "import_module", lambda _: SimpleNamespace(EXPERIMENT=one))
    return one


def test_a_run_writes_one_json_with_all_that_it_depends_on(squares: Squares, tmp_path: Path) -> None:
    result = reproduce("squares", out=tmp_path, progress=False)
    saved = json.loads((tmp_path / "squares.json").read_text())
    assert saved["pieces"] == {str(n): {"square": n**2, "third": float(f"{n / 3:.7g}")} for n in range(3)}
    assert saved["settings"] == {"seed": 0, "count": 3}
    assert {"seed", "commit", "seconds", "peak_memory_bytes"} <= set(saved)
    assert {"python", "torch", "numpy", "infoform"} <= set(saved["versions"])
    assert result == Result.load(tmp_path / "squares.json")
    assert [path.name for path in tmp_path.iterdir()] == ["squares.json"]


def test_an_interrupted_run_goes_on_where_it_stopped(squares: Squares, tmp_path: Path) -> None:
    squares.fail_at = "2"
    with pytest.raises(KeyboardInterrupt):
        reproduce("squares", out=tmp_path, progress=False)
    assert not Result.load(tmp_path / "squares.json").complete
    squares.fail_at = ""
    assert reproduce("squares", out=tmp_path, progress=False).complete
    assert squares.done == ["0", "1", "2"]


def test_a_complete_run_is_not_repeated(squares: Squares, tmp_path: Path) -> None:
    first = reproduce("squares", out=tmp_path, progress=False)
    assert reproduce("squares", out=tmp_path, progress=False) == first
    assert len(squares.done) == 3


def test_a_file_of_other_settings_is_refused_and_left_alone(squares: Squares, tmp_path: Path) -> None:
    reproduce("squares", out=tmp_path, progress=False)
    before = (tmp_path / "squares.json").read_text()
    squares.count = 5
    with pytest.raises(ValueError, match=r"other settings \(count was 3, is 5\); move it away"):
        reproduce("squares", out=tmp_path, progress=False)
    assert (tmp_path / "squares.json").read_text() == before


@pytest.fixture
def done_of_any_count(squares: Squares, tmp_path: Path) -> Squares:
    squares.kind_of_settings = SquaresOfAnyCount
    reproduce("squares", out=tmp_path, progress=False)
    return squares


def test_a_run_that_has_got_more_pieces_goes_on_with_those(done_of_any_count: Squares, tmp_path: Path) -> None:
    done_of_any_count.count = 5
    result = reproduce("squares", out=tmp_path, progress=False)
    assert done_of_any_count.done == ["0", "1", "2", "3", "4"]
    assert result.complete
    assert result.settings["count"] == 5
    assert result == Result.load(tmp_path / "squares.json")


def test_a_run_that_has_got_fewer_pieces_is_refused(done_of_any_count: Squares, tmp_path: Path) -> None:
    done_of_any_count.count = 2
    with pytest.raises(ValueError, match=r"other settings \(count was 3, is 2\)"):
        reproduce("squares", out=tmp_path, progress=False)


def test_a_run_whose_missing_pieces_are_wanted_no_more_is_complete(done_of_any_count: Squares, tmp_path: Path) -> None:
    done_of_any_count.count, done_of_any_count.fail_at = 5, "4"
    with pytest.raises(KeyboardInterrupt):
        reproduce("squares", out=tmp_path, progress=False)
    done_of_any_count.count = 4
    result = reproduce("squares", out=tmp_path, progress=False)
    assert result.complete
    assert result.settings["count"] == 4
    assert result == Result.load(tmp_path / "squares.json")
    assert not (tmp_path / "squares.claims").exists()


def test_quick_and_default_runs_stand_side_by_side(squares: Squares, tmp_path: Path) -> None:
    assert reproduce("squares", quick=True, out=tmp_path, progress=False).total == 1
    assert reproduce("squares", out=tmp_path, progress=False).total == 3
    assert result_path("squares", tmp_path, quick=True).exists()
    with pytest.raises(ValueError, match="either quick or full"):
        reproduce("squares", quick=True, full=True, out=tmp_path)


def test_a_piece_that_is_not_finite_is_an_error_that_names_it(
    squares: Squares, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(squares, "run_piece", lambda key, settings, cache: {"square": float("nan")})
    with pytest.raises(ValueError, match="piece '0' of 'squares' must hold finite numbers"):
        reproduce("squares", out=tmp_path, progress=False)
    assert not (tmp_path / "squares.json").exists()


def test_a_file_that_is_no_run_is_named(squares: Squares, tmp_path: Path) -> None:
    (tmp_path / "squares.json").write_text("{")
    with pytest.raises(ValueError, match=r"squares\.json' must be the JSON of a run"):
        reproduce("squares", out=tmp_path, progress=False)


def test_a_page_is_written_from_the_result_alone(squares: Squares, tmp_path: Path) -> None:
    result = reproduce("squares", out=tmp_path, progress=False)
    squares.done.clear()
    text = write_page("squares", result, tmp_path / "docs").read_text()
    assert text.startswith("# squares\n\nSquares of small numbers.")
    assert "Sum 5." in text
    assert "count = 3" in text
    assert (tmp_path / "docs" / "images" / "squares-1.png").exists()
    assert not squares.done


def test_a_page_of_an_unfinished_run_is_refused(squares: Squares, tmp_path: Path) -> None:
    squares.fail_at = "1"
    with pytest.raises(KeyboardInterrupt):
        reproduce("squares", out=tmp_path, progress=False)
    with pytest.raises(ValueError, match="needs all 3 pieces of 'squares', got 1"):
        write_page("squares", Result.load(tmp_path / "squares.json"), tmp_path)


def test_the_command_ends_with_one_line(squares: Squares, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    squares.fail_at = "1"
    with pytest.raises(SystemExit, match="stopped; the same command goes on from"):
        main(["squares", "--out", str(tmp_path)])
    squares.error = ValueError("no data here.")
    with pytest.raises(SystemExit, match=r"^no data here\.$"):
        main(["squares", "--out", str(tmp_path)])
    squares.fail_at = ""
    main(["squares", "--out", str(tmp_path)])
    main(["squares", "--out", str(tmp_path), "--page", str(tmp_path / "docs")])
    assert capsys.readouterr().out.split() == [
        str(tmp_path / "squares.json"),
        str(tmp_path / "docs/experiments/squares.md"),
    ]


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_of_the_table_is_itself(name: str) -> None:
    one = get_experiment(name)
    assert one.name == name
    assert one.summary.endswith(".")
    for size in ({}, {"quick": True}, {"full": True}):
        settings = one.settings(**size)
        pieces = one.pieces(settings)
        keys = list(pieces)
        assert keys
        assert len(set(keys)) == len(keys)
        for number, key in enumerate(keys):  # one process alone can do them in their order, several can do them all
            needs = pieces[key] if isinstance(pieces, Mapping) else ()
            assert key not in needs
            assert set(needs) <= set(keys[:number])


def test_an_unknown_experiment_is_named() -> None:
    with pytest.raises(ValueError, match="got 'nonesuch'"):
        get_experiment("nonesuch")


def test_processes_share_the_pieces_of_a_run(squares: Squares, tmp_path: Path) -> None:
    """Another process holds piece 0 and dies; this one does the others, and then what was left."""
    script = f"""
import signal, time
signal.alarm(100)  # which ends it, whatever it waits for
from pathlib import Path
from infoform.experiments.claims import Claims
claim = Claims(Path({str(tmp_path / "squares.json")!r})).claim("0")
print("held" if claim else "refused", flush=True)
time.sleep(100)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        assert Claims(tmp_path / "squares.json").claim("0") is None
        squares.after = lambda: other.kill() if len(squares.done) == 2 else None
        result = reproduce("squares", out=tmp_path, progress=False)
    assert squares.done == ["1", "2", "0"]
    assert list(result.pieces) == ["0", "1", "2"]
    assert [path.name for path in tmp_path.iterdir()] == ["squares.json"]


def test_a_piece_waits_for_those_that_it_needs(squares: Squares, tmp_path: Path) -> None:
    squares.order = {"0": ["2"], "2": ["1"]}
    reproduce("squares", out=tmp_path, progress=False)
    assert squares.done == ["1", "2", "0"]


def test_what_another_process_has_found_meanwhile_is_kept(squares: Squares, tmp_path: Path) -> None:
    def other() -> None:  # finishes the last piece while the first is worked on
        path = tmp_path / "squares.json"
        before = Result.load(path) if path.exists() else Result("squares", {"seed": 0, "count": 3}, 0, 3)
        before.with_piece("2", {"square": 4}, seconds=1.0, peak_memory_bytes=0).save(path)

    squares.after = lambda: other() if squares.done == ["0"] else None
    result = reproduce("squares", out=tmp_path, progress=False)
    assert squares.done == ["0", "1"]
    assert result.complete
    assert result.pieces["2"] == {"square": 4}
