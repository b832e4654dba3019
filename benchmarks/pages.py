"""Every page of the documentation that a benchmark writes: to add one, write its function and a line in `PAGES`.

    python -m benchmarks.pages      # writes all of them from committed results; pictures are drawn by `--page` of each

A test compares every committed page with what its function makes of the committed results.
"""

from collections.abc import Callable

from benchmarks import (
    evidence_page,
    fast_settings,
    laplace_torch_check,
    large_layers,
    layer_variance,
    mc_or_linear_page,
    memory_page,
    minilm_page,
    on_board,
    predict_speed,
    predictives_page,
    structures_page,
    why_page,
)
from benchmarks.answers import page as answers_page
from benchmarks.common import write_page
from benchmarks.novelty import page as novelty_page
from benchmarks.speed import page as speed_page

PAGES: dict[str, Callable[[], str]] = {  # name in docs/ -> what makes its text
    "answers": answers_page.page,
    "evidence": evidence_page.page,
    "fast-settings": fast_settings.page,
    "laplace-torch": laplace_torch_check.page,
    "large-layers": large_layers.page,
    "layer-variance": layer_variance.page,
    "mc-or-linear": mc_or_linear_page.page,
    "memory": memory_page.page,
    "minilm": minilm_page.page,
    "novelty-compared": novelty_page.page,
    "on-board": on_board.page,
    "predict-speed": predict_speed.page,
    "predictives": predictives_page.page,
    "speed": speed_page.page,
    "structures": structures_page.page,
    "why": why_page.page,
}

if __name__ == "__main__":
    for name, page in PAGES.items():
        write_page(name, page())
