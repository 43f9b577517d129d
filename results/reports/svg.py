"""matplotlib figures as SVG text for a page: its colours, its fonts, no dates, the same bytes for the same facts.

As PNG too, for places that take no SVG; a bitmap has no variables, so its colours are given.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping
from typing import Any

from campaigns.printable import one_line
from results.reports.figures import BAND, CANDIDATE, CONTROL, FAINT, INK

_VARIABLES = {
    INK: "currentColor",
    FAINT: "var(--faint)",
    CONTROL: "var(--control)",
    CANDIDATE: "var(--candidate)",
    BAND: "var(--band)",
}
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text: it scales, is read aloud, and takes the page's font
    "svg.hashsalt": "campaign",
    "font.size": 10,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.formatter.useoffset": False,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "hatch.linewidth": 0.6,
    "figure.constrained_layout.use": True,
    "text.parse_math": False,  # a name with two dollars is a name
}


def svg(draw: Callable[[Any], Any], label: str, *, rows: int = 1) -> str | None:
    """What `draw` puts on fresh axes (a tuple of them where `rows` > 1); None where it draws nothing."""
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(4.6, 2.4 + 0.9 * rows), facecolor="none", dpi=72)  # an SVG's points
        canvas = FigureCanvasSVG(figure)
        axes = figure.subplots(rows, 1, sharex=True)
        for ax in axes if rows > 1 else [axes]:
            ax.set_facecolor("none")
        if draw(tuple(axes) if rows > 1 else axes) is None:
            return None
        _spell(figure)
        out = io.StringIO()
        # `savefig` draws the whole figure once for its layout and once more for the file.
        layout = figure.get_layout_engine()
        assert layout is not None, "the style asks for one"
        layout.execute(figure)
        figure.set_layout_engine("none")
        canvas.print_svg(out, metadata={"Date": None, "Creator": None})  # type: ignore[no-untyped-call]  # untyped in matplotlib
    return _for_page(out.getvalue(), label)


def png(draw: Callable[[Any], Any], colours: Mapping[str, str]) -> bytes | None:
    """`colours` for each variable of `svg`, on white; None where nothing is drawn."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.colors import get_named_colors_mapping
    from matplotlib.figure import Figure

    names = get_named_colors_mapping()  # a name that is known comes before the hex that a placeholder looks like
    for placeholder, variable in _VARIABLES.items():
        names[placeholder] = colours[variable]
    try:
        with mpl.rc_context(_STYLE):
            figure = Figure(figsize=(6.4, 4.2), facecolor="white", dpi=150)
            FigureCanvasAgg(figure)
            if draw(figure.subplots()) is None:
                return None
            _spell(figure)
            out = io.BytesIO()
            figure.savefig(out, format="png", metadata={"Software": None})
    finally:
        for placeholder in _VARIABLES:
            del names[placeholder]
    return out.getvalue()


def _spell(figure: Any) -> None:
    """Before its layout: what no font has a glyph for takes room as it is spelt."""
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        text.set_text(one_line(text.get_text()))


def _for_page(text: str, label: str) -> str:
    text = text[text.index("<svg") :]
    for placeholder, variable in _VARIABLES.items():
        text = text.replace(placeholder, variable)
    text = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font-size: \1px", text)
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    escaped = one_line(label).replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
    return re.sub(
        r'<svg [^>]*viewBox="([^"]*)"[^>]*>',
        lambda found: f'<svg viewBox="{found[1]}" role="img" aria-label="{escaped}">',  # a name may hold a backslash
        text,
        count=1,
    )
