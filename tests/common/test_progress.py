"""What a progress bar says: what is counted, and how fast."""

import pytest

from infoform.common.progress import progress_bar, show_count, show_rate


def test_counts_have_a_unit() -> None:
    assert show_count(3, 27, "trials") == "3/27 trials"
    assert show_count(3, None, "batches") == "3 batches"


@pytest.mark.parametrize(
    ("rate", "said"), [(12_345.0, "12,345 examples/s"), (3.14, "3.1 examples/s"), (0.2, "5.0 s each"), (0.0, "")]
)
def test_slow_work_tells_the_time_of_one(rate: float, said: str) -> None:
    assert show_rate(rate, "examples") == said


def test_a_bar_counts_batches_and_examples_and_rates_what_it_counts(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar(True) as bar:
        tick = bar("predict", 2)
        tick(512)
        tick(512)
    shown = capsys.readouterr().err
    assert "2/2 batches, 1,024 examples" in shown
    assert "examples/s" in shown
