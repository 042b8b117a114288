"""The comparison as pictures: `python -m tests.benchmarks.chart FILE.json [...]`.

Draws one SVG per kind of result: a row per scenario, a panel per quantity in which the
peers compete, a bar per peer. The same figures give the same bytes. `page` writes the
text around the charts, `readme` the README's comparison.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import matplotlib as mpl
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
import typer

from tests.benchmarks import document, page, readme

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from tests.benchmarks.columns import Column
    from tests.benchmarks.document import Comparison

_DOCS = Path("docs/benchmarks")

_STYLE = {
    "svg.hashsalt": "mirror",
    # Text stays text: it can be searched, and a style can turn it light.
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9,
    "figure.constrained_layout.h_pad": 0.08,
    "figure.constrained_layout.w_pad": 0.08,
}
_INK, _CARD = "#1f2328", "#ffffff"
# A picture knows the reader's preference, not the page it is on: it has its own card.
_DARK = f"""
  <style>@media (prefers-color-scheme: dark) {{
   #card path {{ fill: #0d1117 !important }}
   [style*="fill: {_INK}"] {{ fill: #e6edf3 !important }}
   [style*="stroke: {_INK}"] {{ stroke: #e6edf3 !important }}
  }}</style>"""
# Of medium lightness, to stand out from both a white card and a black one.
_COLOURS = {
    "mm2": "#d9822b",
    "mirror": "#2f81f7",
    "franz-go": "#1a9c86",
    "confluent": "#a371f7",
}
_OTHER = "#8b949e"
_VARIANT_OPACITY = 0.6

_PANEL_WIDTH = 3.1
_BAR_HEIGHT = 0.22
_ROW_EXTRA = 0.75
"""Inches for a row's titles and the space below it."""
_LABEL_ROOM = 1.75
"""A panel's width as a multiple of the longest bar: values are right of the bars."""


def draw(comparisons: Sequence[Comparison]) -> bytes:
    """All scenarios of one kind, as SVG."""
    contests = comparisons[0].contests()
    heights = [len(each.peers) * _BAR_HEIGHT + _ROW_EXTRA for each in comparisons]
    with mpl.rc_context(_STYLE):
        figure = Figure(
            figsize=(_PANEL_WIDTH * len(contests) + 0.9, sum(heights) + 0.1),
            facecolor=_CARD,
            layout="constrained",
        )
        FigureCanvasSVG(figure)
        figure.patch.set_gid("card")
        grid = figure.subplots(
            len(comparisons), len(contests), squeeze=False, height_ratios=heights
        )
        for row, comparison in zip(grid, comparisons, strict=True):
            for axes, column in zip(row, contests, strict=True):
                _panel(axes, comparison, column, first=axes is row[0])
        picture = io.BytesIO()
        figure.savefig(picture, format="svg", metadata={"Date": None, "Creator": None})
    return picture.getvalue().replace(b"<defs>", f"<defs>{_DARK}".encode(), 1)


def _panel(axes: Axes, comparison: Comparison, column: Column, *, first: bool) -> None:
    values = {
        peer: figures[column.field]
        for peer, figures in comparison.peers.items()
        if column.field in figures
    }
    longest = max((value.max for value in values.values()), default=0) or 1
    rows = range(len(comparison.peers))
    for row, peer in zip(rows, comparison.peers, strict=True):
        if peer not in values:
            continue
        value = values[peer]
        family, _, variant = _family(peer)
        axes.barh(
            row,
            value.median,
            height=0.7,
            color=_COLOURS.get(family, _OTHER),
            alpha=_VARIANT_OPACITY if variant else None,
        )
        axes.plot([value.min, value.max], [row, row], color=_INK, linewidth=1)
        text = column.show(value.median)
        if value.ratio is not None and peer != comparison.yardstick:
            text += f"  x {value.ratio:.2f}"
        place = max(value.max, value.median) + longest * 0.03
        axes.text(place, row, text, color=_INK, va="center")
    axes.set_xlim(0, longest * _LABEL_ROOM)
    axes.set_ylim(len(comparison.peers) - 0.5, -0.5)
    axes.set_yticks(rows, list(comparison.peers) if first else [])
    axes.set_xticks([])
    axes.tick_params(length=0, labelcolor=_INK)
    axes.set_facecolor("none")
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    axes.spines["left"].set_color(_INK)
    better = f"{column.title} ({column.better} is better)"
    title = f"{comparison.title}\n{better}" if first else better
    axes.set_title(title, loc="left", color=_INK, fontsize=9)


def _family(peer: str) -> tuple[str, str, str]:
    """`mirror-alo` is mirror in another colour; franz-go is a name of its own."""
    return (peer, "", "") if peer in _COLOURS else peer.partition("-")


def main(
    files: Annotated[list[Path], typer.Argument(help="From artifacts/bench/.")],
    folder: Annotated[
        Path, typer.Option(help="Where pictures and page are written.")
    ] = _DOCS,
    front: Annotated[
        Path, typer.Option("--readme", help="The page whose comparison is updated.")
    ] = Path("README.md"),
) -> None:
    """Draw saved results; for a scenario in several files the latest run counts."""
    try:
        found = document.read(files)
    except document.DocumentError as error:
        raise typer.BadParameter(str(error)) from error
    folder.mkdir(parents=True, exist_ok=True)
    for kind, comparisons in found.kinds().items():
        (folder / f"{kind}.svg").write_bytes(draw(comparisons))
    (folder / "README.md").write_text(page.write(found), encoding="utf-8")
    text = readme.put(readme.write(found), front.read_text(encoding="utf-8"))
    front.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
