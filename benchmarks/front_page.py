"""The picture and the table of the front page (docs/index.md and README.md), from committed results.

    python -m benchmarks.front_page

draws docs/images/front.svg and writes the table between two marks of both pages. Nothing is measured here: the numbers
are means over the three networks of `infoform reproduce mnist` and `infoform reproduce cifar10`, with the library's
default posterior, tuned by validation data, and `kind="linear"`.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from infoform.pages.markdown import table

ROOT = Path(__file__).parent.parent
PICTURE = ROOT / "docs" / "images" / "front.svg"
PAGES = (ROOT / "docs" / "index.md", ROOT / "README.md")
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
NETWORKS = range(3)
ALONE, OURS = "plain {}", "inf activation:8x30 linear validation {}"  # pieces of a result, by the network's number
Piece = Mapping[str, Any]

WIDTH, HEIGHT = 420, 332  # of the picture: narrow enough for a phone
LEFT, RIGHT, PANEL = 20, 400, 96  # of a panel: its sides and its height
STYLE = """
  .card { fill: #fcfcfe; stroke: #d9dbe6 } text { font: 12px system-ui, sans-serif; fill: #23252f }
  .title { font-size: 14px; font-weight: 600 } .quiet { fill: #5b5f70 } .axis { stroke: #8b8fa0 }
  .known { fill: #2f6fc4 } .unknown { fill: #d9730d } .bars { fill-opacity: .8 }
  @media (prefers-color-scheme: dark) {
    .card { fill: #1c1e27; stroke: #3a3d4b } text { fill: #e4e6ef } .quiet { fill: #a9adbd }
    .known { fill: #6ba4f0 } .unknown { fill: #f0984a }
  }
"""


def main() -> None:
    """Draw the picture and write the table into both pages."""
    PICTURE.write_text(picture(), encoding="utf-8")
    for page in PAGES:
        head, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
        page.write_text(f"{head}{BEGIN}\n\n{measured()}\n\n{END}{rest.partition(END)[2]}", encoding="utf-8")


def measured(root: Path = ROOT) -> str:
    """Return the table of the front page, as Markdown."""
    mnist, cifar10 = (_pieces(root, name) for name in ("mnist", "cifar10"))
    rows = [
        _row("MNIST: digits set aside by mistake, to find 95 % of the letters", mnist, "fpr95", "{:.1%}"),
        _row("MNIST: calibration error", mnist, "ece", "{:.1%}"),
        _row("MNIST: accuracy", mnist, "accuracy", "{:.1%}"),
        _row("CIFAR-10: calibration error", cifar10, "ece", "{:.1%}"),
        _row("CIFAR-10: accuracy", cifar10, "accuracy", "{:.1%}"),
        _row("CIFAR-10: AUROC of street numbers (SVHN)", cifar10, "auroc", "{:.3f}"),
    ]
    return table(["", "network alone", "with infoform"], rows)


def picture(root: Path = ROOT) -> str:
    """Return the picture as SVG: how unsure the answers to known and to unknown images are."""
    pieces = _pieces(root, "mnist")
    panels = [
        _panel("The network alone", _histograms(pieces, ALONE), top=62),
        _panel("The same network with infoform", _histograms(pieces, OURS), top=198),
    ]
    legend = (
        f'<rect class="known" x="{LEFT}" y="16" width="12" height="12"/><text x="{LEFT + 18}" y="26">digits, '
        'as in training</text><rect class="unknown" x="190" y="16" width="12" height="12"/>'
        '<text x="208" y="26">letters, never seen</text>'
    )
    axis = (
        f'<text class="quiet" x="{LEFT}" y="316">sure</text>'
        f'<text class="quiet" x="{WIDTH / 2:g}" y="316" text-anchor="middle">how unsure the answer is (entropy)</text>'
        f'<text class="quiet" x="{RIGHT}" y="316" text-anchor="end">no idea</text>'
    )
    title = "Answers to known digits and to unknown letters, by their uncertainty, without and with infoform"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n"
        f'<rect class="card" x=".5" y=".5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="8"/>\n'
        + "\n".join([legend, *panels, axis])
        + "\n</svg>\n"
    )


def _panel(title: str, shares: Mapping[str, Sequence[float]], *, top: int) -> str:
    """Return one pair of histograms; a bar of full height is all of the images."""
    base = top + PANEL
    parts = [f'<text class="title" x="{LEFT}" y="{top - 10}">{title}</text>']
    for name, values in shares.items():
        width = (RIGHT - LEFT) / len(values)
        for index, value in enumerate(values):
            if value > 0:
                height = PANEL * value
                x, y = LEFT + index * width + 1, base - height
                shape = f'x="{x:.1f}" y="{y:.1f}" width="{width - 2:.1f}" height="{height:.1f}"'
                parts.append(f'<rect class="{name} bars" {shape}/>')
    parts.append(f'<line class="axis" x1="{LEFT}" x2="{RIGHT}" y1="{base}" y2="{base}"/>')
    return "\n".join(parts)


def _histograms(pieces: Mapping[str, Piece], method: str) -> dict[str, list[float]]:
    """Return the share of known and of unknown images in each interval of the entropy, over all networks."""
    histograms = [pieces[method.format(network)]["histograms"] for network in NETWORKS]
    counts = {
        name: [sum(bins) for bins in zip(*(one[name] for one in histograms), strict=True)] for name in histograms[0]
    }
    return {name: [count / sum(bins) for count in bins] for name, bins in counts.items()}


def _row(label: str, pieces: Mapping[str, Piece], score: str, form: str) -> list[str]:
    """Return the label and the mean score over networks, alone and with the posterior."""
    means = (mean(pieces[method.format(network)][score] for network in NETWORKS) for method in (ALONE, OURS))
    return [label, *(form.format(value).replace("%", " %") for value in means)]


def _pieces(root: Path, experiment: str) -> Mapping[str, Piece]:
    pieces: Mapping[str, Piece] = json.loads((root / f"results/{experiment}.json").read_text())["pieces"]
    return pieces


if __name__ == "__main__":
    main()
