"""The picture of the front page, as SVG: how unsure the answers to known and to unknown images are."""

from collections.abc import Mapping, Sequence

from infoform.demo.answers import AnswerRow

WIDTH, HEIGHT = 420, 468  # of the picture: narrow enough for a phone
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
PANELS = {"plain": "The network alone", "temperature": "with a temperature", "ours": "with infoform"}
GAP = 136  # from the top of one panel to that of the next


def draw_front(rows: Mapping[str, AnswerRow]) -> str:
    """Return the picture: a pair of histograms of the entropy for the network alone, a temperature, and infoform.

    Args:
        rows: Of the demo's first table.
    """
    panels = [
        _panel(f"{title}: AUROC {rows[name].auroc:.2f}", _shares(rows[name].histograms), top=62 + GAP * number)
        for number, (name, title) in enumerate(PANELS.items())
    ]
    legend = (
        f'<rect class="known" x="{LEFT}" y="16" width="12" height="12"/><text x="{LEFT + 18}" y="26">digits, '
        'as in training</text><rect class="unknown" x="172" y="16" width="12" height="12"/>'
        '<text x="190" y="26">pieces of photographs, never seen</text>'
    )
    axis = (
        f'<text class="quiet" x="{LEFT}" y="{HEIGHT - 16}">sure</text>'
        f'<text class="quiet" x="{WIDTH / 2:g}" y="{HEIGHT - 16}" text-anchor="middle">'
        "how unsure the answer is (entropy)</text>"
        f'<text class="quiet" x="{RIGHT}" y="{HEIGHT - 16}" text-anchor="end">no idea</text>'
    )
    title = "Answers to digits and to pieces of photographs, by their uncertainty, without and with infoform"
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


def _shares(histograms: Mapping[str, Sequence[int]]) -> dict[str, list[float]]:
    """Return the share of known and of unknown images in each interval."""
    return {name: [count / sum(counts) for count in counts] for name, counts in histograms.items()}
