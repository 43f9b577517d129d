"""Text and marks against what they stand on, from the colours that the pages' stylesheets name: WCAG 2.2, level AA."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest

import orchestrator.web
import results.reports

PAGES = (Path(orchestrator.web.__file__).parent / "static" / "page.css").read_text()
[REPORT_FILE] = (Path(results.reports.__file__).parent / "templates").glob("*.html")
STYLES = {"pages": PAGES, "report": REPORT_FILE.read_text()}
GROUNDS = ("paper", "panel")
TEXT = {"pages": ("ink", "soft", "bad", "kind-0"), "report": ("ink", "soft", "control")}  # 4.5 : 1 (1.4.3)
MARKS = {  # 3 : 1 (1.4.11): what is drawn, and the borders of inputs
    "pages": ("kind-0", "kind-1", "kind-2", "kind-3", "faint"),
    "report": ("control", "candidate", "faint"),
}


def schemes(style: str) -> dict[str, dict[str, str]]:
    light, dark = re.findall(r":root \{(.*?)\}", STYLES[style], re.DOTALL)[:2]
    return {
        name: dict(re.findall(r"--([\w-]+): (#\w{6})", block)) for name, block in (("light", light), ("dark", dark))
    }


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_the_measure_is_the_published_one() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)  # the well-known grey that just fails


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("style", STYLES)
def test_text_and_marks_can_be_told_from_their_ground(style: str, scheme: str) -> None:
    colours = schemes(style)[scheme]
    wanted = [(name, 4.5) for name in TEXT[style]] + [(name, 3.0) for name in MARKS[style]]
    found = {
        f"{name} on {ground}": round(contrast(colours[name], colours[ground]), 2)
        for (name, least), ground in product(wanted, GROUNDS)
        if contrast(colours[name], colours[ground]) < least
    }
    assert not found
