"""Sections lay out what the verbs wrote: every number on the page is one of the run's, and nothing is made up."""

import json
import math
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from infoform.records import AcquireResult
from infoform.report import make_report, run_panel
from infoform.report.blocks import Cards, Chart, Gallery, Sentences, Table, Text
from infoform.report.compare import compare
from infoform.report.inputs import Run, read_inputs
from infoform.report.sections import (
    SECTIONS,
    acquire,
    calibration,
    landscape,
    novelty,
    predictions,
    summary,
    unknown,
)
from infoform.report.words import percent, size

Change = Callable[[str, Callable[[dict[str, Any]], None]], Run]


def _run(page_file: Path, name: str) -> Run:
    (run,) = read_inputs([page_file.parent / "runs" / name])
    assert isinstance(run, Run)
    return run


@pytest.fixture
def change(page_file: Path, tmp_path: Path) -> Change:
    """Copy the run 'inf', change one of its records, and read it again."""
    folder = tmp_path / "inf"
    shutil.copytree(page_file.parent / "runs" / "inf", folder)

    def changed(verb: str, how: Callable[[dict[str, Any]], None]) -> Run:
        record = json.loads((folder / f"{verb}.json").read_text())
        how(record)
        (folder / f"{verb}.json").write_text(json.dumps(record))
        (run,) = read_inputs([folder])
        assert isinstance(run, Run)
        return run

    return changed


EXPECTED = {
    "inf": set(SECTIONS) - {"intervals", "acquire", "compare"},
    "diag": set(SECTIONS) - {"intervals", "predictions", "spectra", "acquire", "compare"},
    "diabetes": set(SECTIONS) - {"calibration", "predictions", "landscape", "acquire", "compare"},
}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_run_has_the_sections_that_it_has_results_for(page_file: Path, name: str) -> None:
    run = _run(page_file, name)
    assert {key for key, make in SECTIONS.items() if make(run) is not None} == EXPECTED[name]


def test_the_summary_says_the_scores_in_words(page_file: Path) -> None:
    run = _run(page_file, "inf")
    result = run.evaluate
    assert result is not None
    assert result.confidences is not None
    assert result.unknown is not None
    assert result.unknown.classes is not None
    assert run.fit is not None
    said = " ".join(next(block for block in summary.section(run).blocks if isinstance(block, Sentences)).items)
    assert f"given with 90\u00a0% confidence or more, {percent(result.confidences.sure.right)} were right" in said
    assert f"of the unknown one {percent(result.unknown.classes.entropy.auroc)} of the time" in said
    assert size(run.fit.total_bytes) in said
    assert "over-confident" in said  # as the network alone is


def test_the_summary_says_what_was_not_measured(page_file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "alone"
    folder.mkdir()
    shutil.copy(page_file.parent / "runs" / "inf" / "fit.json", folder)
    (run,) = read_inputs([folder])
    assert isinstance(run, Run)
    texts = [block.text for block in summary.section(run).blocks if isinstance(block, Text)]
    assert texts == [f"Not measured yet: scores ('infoform evaluate {folder} --data TEST')."]
    assert "was not tuned" in str(summary.section(run))
    assert "<h3>In short</h3>" in make_report([folder])


def test_an_outdated_evaluation_is_pointed_out(change: Change) -> None:
    run = change("tune", lambda record: record.update(began="2999-01-01T00:00:00+00:00"))
    assert "The posterior was changed after 'infoform evaluate' and 'infoform predict' had run" in str(
        summary.section(run)
    )


def test_every_chart_has_a_table_and_a_sentence(page_file: Path) -> None:
    for name in EXPECTED:
        charts = [b for s in run_panel(_run(page_file, name)).sections for b in s.blocks if isinstance(b, Chart)]
        assert charts
        for chart in charts:
            assert chart.table.rows
            assert all(len(row) == len(chart.table.head) for row in chart.table.rows)
            assert chart.says.endswith(".")
            for step in [] if chart.slider is None else chart.slider.steps:
                assert set(step.traces) <= set(range(len(chart.figure["data"])))


def test_the_landscape_is_drawn_from_the_trials(page_file: Path) -> None:
    run = _run(page_file, "inf")
    assert run.tune is not None
    trials = run.tune.trials
    section = landscape.section(run)
    assert section is not None
    plane, cut = (block for block in section.blocks if isinstance(block, Chart))
    (heat, best) = plane.figure["data"]
    assert heat["type"] == "heatmap"
    for trial in trials:
        row, column = heat["y"].index(trial.prior_precision), heat["x"].index(trial.num_data)
        assert heat["z"][row][column] == trial.scores["nll"]
    least = min(trials, key=lambda trial: trial.scores["nll"] or 0.0)
    assert (best["x"], best["y"]) == ([least.num_data], [least.prior_precision])
    assert cut.slider is not None
    shown = [(x, y) for step in cut.slider.steps for x, y in zip(step.traces[0]["x"], step.traces[0]["y"], strict=True)]
    assert sorted(shown) == sorted((trial.num_data, trial.scores["nll"]) for trial in trials)


def test_trials_that_lie_on_no_grid(change: Change) -> None:
    def scatter(record: dict[str, Any]) -> None:
        source = random.Random(0)
        for trial in record["result"]["trials"]:
            trial["num_data"], trial["prior_precision"] = source.uniform(10, 1000), source.uniform(0.1, 100)
        record["result"]["trials"][3]["scores"]["nll"] = None  # was not finite

    run = change("tune", scatter)
    section = landscape.section(run)
    assert section is not None
    plane, cut = (block for block in section.blocks if isinstance(block, Chart))
    assert run.tune is not None
    count = len(run.tune.trials) - 1
    assert plane.figure["data"][0]["type"] == "scatter"
    assert len(plane.figure["data"][0]["x"]) == count
    assert cut.slider is not None
    assert sum(len(step.traces[0]["x"]) for step in cut.slider.steps) == count


def test_a_comparison_marks_the_best_and_says_what_does_not_compare(page_file: Path) -> None:
    runs = [_run(page_file, name) for name in EXPECTED]
    (section,) = compare(runs).sections
    assert "evaluated on different data ('test.csv' and 'test.npz')" in str(section.blocks[0])
    table = next(block for block in section.blocks if isinstance(block, Table))
    row = next(at for at, cells in enumerate(table.rows) if cells[0] == "Brier score")
    scores = [run.evaluate.scores["brier"] or 0.0 for run in runs[:2] if run.evaluate is not None]
    better = 1 + scores.index(min(scores))
    assert {place for place in table.best if place[0] == row} == {(row, better)}
    row = next(at for at, cells in enumerate(table.rows) if cells[0] == "NLL")
    assert (row, 3) not in table.best  # of other data
    assert len({place for place in table.best if place[0] == row}) == 1
    (alike,) = compare(runs[:2]).sections
    assert not isinstance(alike.blocks[0], Text)


def test_a_damaged_result_is_told_in_one_sentence(change: Change) -> None:
    run = change("evaluate", lambda record: None)
    file = run.path / "evaluate.json"
    record = json.loads(file.read_text())
    del record["result"]["plain_scores"]
    file.write_text(json.dumps(record))
    said = r"or is damaged \('result.plain_scores' is missing\); run 'infoform evaluate' again"
    with pytest.raises(ValueError, match=said):
        make_report([run.path])


def test_novelty_is_laid_out_as_it_was_written(page_file: Path) -> None:
    run = _run(page_file, "inf")
    result = run.evaluate
    assert result is not None
    assert result.novelty is not None
    assert result.unknown_sets is not None
    (other,) = result.unknown_sets
    section = novelty.section(run)
    assert section is not None
    sets, parts = (block for block in section.blocks if isinstance(block, Table))
    assert sets.rows[0][:3] == ("known data", f"{result.examples:,}", percent(result.novelty.share))
    aurocs = [other.scores[name].auroc for name in ("novelty", "entropy", "mutual_information")]
    assert sets.rows[1] == ("unknown.npz", f"{other.examples:,}", percent(other.novel), *map(percent, aurocs))
    assert sets.best == {(1, 3 + aurocs.index(max(aurocs)))}
    assert [row[0] for row in parts.rows] == ["all together", "typicality", "head", "answer"]
    *heaps, roc = (block for block in section.blocks if isinstance(block, Chart))
    for chart, score in zip(heaps, other.scores.values(), strict=True):
        known, unknown = chart.figure["data"]
        assert (known["customdata"], unknown["customdata"]) == (score.known, score.unknown)
    for trace, score in zip(roc.figure["data"], other.scores.values(), strict=True):
        assert (trace["x"], trace["y"]) == (score.roc.false_alarms, score.roc.found)
    galleries = [block for block in section.blocks if isinstance(block, Gallery)]
    assert [gallery.title for gallery in galleries] == ["Unknown, and strangest", "Known, yet strangest"]
    assert result.unknown is not None
    assert result.unknown.chosen is not None
    for shown, example in zip(galleries[0].examples, result.unknown.chosen.strangest or [], strict=True):
        assert shown.png == example.png
        assert f"strangest to layer {example.strangest_layer}" in shown.lines
    said = " ".join(next(block for block in summary.section(run).blocks if isinstance(block, Sentences)).items)
    assert f"it calls {percent(other.novel)} novel" in said
    assert run.predict is not None
    assert run.predict.novelty is not None
    new = predictions.section(run)
    assert new is not None
    assert isinstance(new.blocks[0], Text)
    assert f"{percent(run.predict.novelty.share)} are novel" in new.blocks[0].text


def test_novelty_without_unknown_data_shows_the_known(change: Change) -> None:
    def without_unknown(record: dict[str, Any]) -> None:
        del record["result"]["unknown"], record["result"]["unknown_sets"]

    section = novelty.section(change("evaluate", without_unknown))
    assert section is not None
    (table,) = (block for block in section.blocks if isinstance(block, Table))
    assert [row[0] for row in table.rows] == ["known data"]
    assert [block.title for block in section.blocks if isinstance(block, Gallery)] == ["Known, yet strangest"]


def test_a_posterior_without_novelty_has_no_such_section(change: Change) -> None:
    def without_novelty(record: dict[str, Any]) -> None:
        result = record["result"]
        del result["novelty"], result["unknown_sets"], result["strangest"]
        del result["unknown"]["novelty"], result["unknown"]["strangest"]

    run = change("evaluate", without_novelty)
    assert novelty.section(run) is None
    assert "it calls" not in str(summary.section(run))


def test_a_table_behind_a_curve_keeps_its_ends() -> None:
    points = [(place / 199, place / 199) for place in range(200)]
    for few in (points, points[:2], points[:20], points[:21]):
        kept = novelty.thinned(few)
        assert (kept[0], kept[-1]) == (few[0], few[-1])
        assert len(set(kept)) == len(kept) <= novelty.ROC_ROWS + 1


def _with_two_sets(record: dict[str, Any]) -> None:
    result = record["result"]
    other = json.loads(json.dumps(result["unknown"])) | {"name": "harder"}
    other["novelty"]["together"]["auroc"] = 0.625
    for name in ("entropy", "mutual_information"):
        other[name]["auroc"] = 0.5
    result["unknown"]["name"] = "first"
    result["more_unknown"] = [other]
    again = json.loads(json.dumps(result["unknown_sets"][0])) | {"name": "harder"}
    result["unknown_sets"].append(again)


def test_the_headline_is_the_best_measure_and_the_hardest_set(page_file: Path, change: Change) -> None:
    run = _run(page_file, "inf")
    assert run.evaluate is not None
    assert run.evaluate.unknown is not None
    best = run.evaluate.unknown.best_separation
    assert best is not None
    assert best[1].auroc == max(
        run.evaluate.unknown.separations["entropy"].auroc,
        run.evaluate.unknown.separations["mutual_information"].auroc,
        run.evaluate.unknown.novelty.together.auroc if run.evaluate.unknown.novelty else 0.0,
    )
    cards = next(block for block in summary.section(run).blocks if isinstance(block, Cards)).items
    assert any(card.value == percent(best[1].auroc) and "told from known by" in card.label for card in cards)
    two = change("evaluate", _with_two_sets)
    cards = next(block for block in summary.section(two).blocks if isinstance(block, Cards)).items
    (card,) = (card for card in cards if "told from known" in card.label)
    assert card.value == percent(0.625)
    assert "by novelty (AUROC), 'harder', the hardest of 2 sets" in card.label


def test_every_unknown_set_has_its_row_and_its_charts(change: Change) -> None:
    run = change("evaluate", _with_two_sets)
    section = novelty.section(run)
    assert section is not None
    table = next(block for block in section.blocks if isinstance(block, Table))
    assert [row[0] for row in table.rows] == ["known data", "unknown.npz", "harder"]
    titles = [block.title for block in section.blocks if isinstance(block, Chart)]
    assert len(titles) == 8
    assert any("(harder)" in title for title in titles)
    told = unknown.section(run)
    assert told is not None
    rows = next(block for block in told.blocks if isinstance(block, Table)).rows
    assert {row[0] for row in rows} == {"first", "harder"}


def test_a_temperature_alone_stands_among_the_scores(change: Change) -> None:
    def with_temperature(record: dict[str, Any]) -> None:
        result = record["result"]
        result["plain_temperature"] = 1.5
        result["temperature_scores"] = result["scores"] | {"nll": 0.0}

    run = change("evaluate", with_temperature)
    assert run.evaluate is not None
    table = calibration.score_table(run.evaluate)
    assert table.head[2] == "temperature alone (T = 1.5)"
    row = next(at for at, cells in enumerate(table.rows) if cells[0] == "NLL")
    assert {place for place in table.best if place[0] == row} == {(row, 2)}


def test_dots_of_few_examples_have_long_error_bars() -> None:
    low, high = calibration.wilson(2 / 3, 3)
    # the ends solve (p − q)² = z² q (1 − q) / n
    for end in (low, high):
        assert (2 / 3 - end) ** 2 == pytest.approx(1.96**2 * end * (1 - end) / 3)
    assert calibration.wilson(1.0, 3)[1] == 1
    assert high - low > 3 * (calibration.wilson(2 / 3, 300)[1] - calibration.wilson(2 / 3, 300)[0])


def test_runs_on_other_data_share_no_chart(page_file: Path) -> None:
    runs = [_run(page_file, name) for name in EXPECTED]
    (section,) = compare(runs).sections
    charts = [block for block in section.blocks if isinstance(block, Chart)]
    for chart in charts:
        shown = {row[0] for row in chart.table.rows}
        data = {run.option("evaluate", "data") for run in runs if run.name in shown}
        assert len(data) == 1


def test_nearly_equal_sizes_look_equal() -> None:
    from infoform.report.compare import _size_axis

    made = _size_axis([2_622_000, 2_623_000])
    low, high = made["range"]
    assert high - low >= 1
    assert low < math.log10(2_622_000) < high
    assert made["ticktext"] == [size(tick) for tick in made["tickvals"]]


def test_what_to_label_next_is_shown(page_file: Path) -> None:
    run = _run(page_file, "inf")
    assert acquire.section(run) is None
    chosen = AcquireResult([4, 2], ["row 4", "row 2"], "variance", [0.5, 0.25], ["ash", "birch"], ["a or b", "b or c"])
    record = replace(run.records["fit"], verb="acquire", options={"data": "pool.csv"}, result=chosen)
    section = acquire.section(replace(run, records={**run.records, "acquire": record}))
    assert section is not None
    table = next(block for block in section.blocks if isinstance(block, Table))
    assert list(table.rows) == [("1", "row 4", "0.5", "ash", "a or b"), ("2", "row 2", "0.25", "birch", "b or c")]
