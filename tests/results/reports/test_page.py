"""The HTML report in a real browser: nothing overflows, nothing is loaded, every text can be read, light and dark."""

import html
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from campaigns.plan import Arm, CampaignPlan, Fixture, Role, ServerPlan
from results.reports.report import render
from results.store.reader import Reader
from results.store.writer import Store
from results.transfer.scripts import Script, Trajectory
from results.transfer.synthetic import Driver

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
SCREENSHOTS = Path(__file__).parents[3] / "outputs" / "screenshots"

PROBE = """
<script>
addEventListener("load", () => {
  const linear = v => v / 255 <= .03928 ? v / 255 / 12.92 : ((v / 255 + .055) / 1.055) ** 2.4;
  const luminance = ([r, g, b]) => .2126 * linear(r) + .7152 * linear(g) + .0722 * linear(b);
  const rgb = text => (text.match(/[\\d.]+/g) || []).map(Number);
  const background = e => {
    for (; e; e = e.parentElement) {
      const c = rgb(getComputedStyle(e).backgroundColor);
      if (c.length === 3 || c[3] > 0) return c.slice(0, 3);
    }
    return [255, 255, 255];
  };
  const contrast = (a, b) => {
    const [x, y] = [luminance(a), luminance(b)].sort((p, q) => q - p);
    return (x + .05) / (y + .05);
  };
  const low = [], small = [], wide = [];
  for (const e of document.querySelectorAll("body *")) {
    const style = getComputedStyle(e), box = e.getBoundingClientRect(), svg = e.closest("svg");
    const own = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
    const name = e.textContent.trim().slice(0, 40);
    if (own && box.width && !e.closest("script, style, defs, .skip")) {
      const ratio = contrast(rgb(svg ? style.fill : style.color).slice(0, 3), background(svg ? svg.parentElement : e));
      if (ratio < 4.5) low.push(name + " " + ratio.toFixed(2));
      const m = svg ? e.getScreenCTM() : {a: 1, b: 0};
      const size = parseFloat(style.fontSize) * Math.hypot(m.a, m.b);
      if (size < 9.5) small.push(name + " " + size.toFixed(1));
    }
    if (box.right > innerWidth + 1 && !e.closest(".scroll, .skip, svg")) wide.push(e.tagName + " " + box.right);
  }
  const found = {
    width: innerWidth, overflow: document.documentElement.scrollWidth - innerWidth, low, small, wide,
    resources: performance.getEntriesByType("resource").map(r => r.name),
    figures: document.querySelectorAll("figure svg").length,
    unreachable: [...document.querySelectorAll(".scroll")].filter(e => e.tabIndex !== 0).length,
    paper: getComputedStyle(document.body).backgroundColor,
  };
  top.document.getElementById("found").textContent = JSON.stringify(found);
});
</script>
"""


@pytest.fixture(scope="module")
def page(module_ram):
    plan = CampaignPlan(
        name="endpoint",
        control=Arm("columns-128", (("projection", "columns-128"),)),
        candidate=Arm("columns-32", (("projection", "columns-32"),)),
        fixtures=(Fixture("release1k", "{}", (20260925,)), Fixture("mbpp28", "{}", (0,))),
        server=ServerPlan("null"),
        startups=5,
        pairs=6,
        warmups=1,
    )
    rng = np.random.default_rng(0)

    def script(step, attempt):
        long = step.key.fixture == "release1k"
        ms = (
            (32.9 if long else 29.8)
            * (0.975 if step.role is Role.CANDIDATE else 1)
            * (1 + 0.002 * rng.standard_normal())
        )
        trajectory = Trajectory(283, 94, 189) if long else Trajectory(297, 65, 232)
        return Script(trajectory, ms, 400, round_noise=0.03, growth=0.05, sm_clock_mhz=int(1980 - 15 * rng.random()))

    path = module_ram / "store.sqlite"
    with Store.open(path) as store:
        Driver(store, plan, script, samples=True).run()
    with Reader.open(path) as reader:
        return render(reader, reader.resolve("last"), "html")


class Collector(HTMLParser):
    def __init__(self):
        super().__init__()
        self.links, self.tags = [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.links += [value for name, value in attributes if name in ("src", "href", "xlink:href", "data")]


def test_the_page_is_self_contained(page):
    found = Collector()
    found.feed(page)
    assert not {"script", "link", "img", "iframe"} & set(found.tags)
    assert all(link.startswith("#") for link in found.links), found.links
    assert not re.findall(r"@import|url\((?!#)", page)
    assert page.count("<svg") == found.tags.count("svg") >= 9


def test_the_figures_take_the_colours_of_the_page(page):
    assert "var(--control)" in page and "var(--candidate)" in page and "var(--band)" in page
    assert not re.findall(r"#0[1-5]0[1-5]0[1-5]\b", page)


def test_the_same_facts_give_the_same_bytes(ram):
    plan = CampaignPlan(
        "twice", Arm("a"), Arm("b"), (Fixture("f", "{}", (0,)),), ServerPlan("null"), startups=1, pairs=2
    )
    with Store.open(ram / "store.sqlite") as store:
        Driver(store, plan, lambda step, attempt: Script(Trajectory(30, 10, 19), 16.0)).run()
    with Reader.open(ram / "store.sqlite") as reader:
        first, second = (render(reader, reader.resolve("last"), "html") for _ in range(2))
    assert first == second and first.count("<svg") == 6


def framed(page, width, height):
    """The page in a frame of that width: a browser's own window may not become as narrow as a phone."""
    frame = f'<iframe width={width} height={height} style="border: 0" srcdoc="{html.escape(page)}"></iframe>'
    return f'<body style="margin: 0">{frame}<pre id="found" hidden></pre></body>'


def look(file, width, height, dark, *arguments):
    command = [
        CHROMIUM,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        f"--user-data-dir={file.parent / 'profile'}",
        f"--window-size={max(width, 500)},{height}",
        f"--blink-settings=preferredColorScheme={0 if dark else 1}",
        *arguments,
        file.as_uri(),
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


@pytest.mark.acceptance
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize(("width", "height"), [(390, 9000), (1440, 5000)])
def test_in_a_browser(page, tmp_path, width, height, dark):
    file = tmp_path / "report.html"
    file.write_text(framed(page.replace("</body>", PROBE + "</body>"), width, height))
    dom = look(file, width, height, dark, "--dump-dom")
    found = json.loads(html.unescape(re.search(r'<pre id="found"[^>]*>(.*?)</pre>', dom, re.DOTALL).group(1)))
    assert found["width"] == width
    assert found["overflow"] <= 0 and found["wide"] == []
    assert found["resources"] == [] and found["unreachable"] == 0
    assert found["low"] == [] and found["small"] == []
    assert found["figures"] >= 9
    assert (found["paper"] == "rgb(13, 17, 23)") == dark
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    file.write_text(framed(page, width, height))
    name = f"report-{width}-{'dark' if dark else 'light'}.png"
    look(file, width, height, dark, f"--screenshot={SCREENSHOTS / name}")
    assert (SCREENSHOTS / name).stat().st_size > 50_000
