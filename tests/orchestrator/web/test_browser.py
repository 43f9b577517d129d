"""The pages in Chromium: light and dark, a phone and a desk, the keyboard alone, and names that would be markup.

Wants Debian's `chromium` and `pip install playwright`; no browser is downloaded.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.orchestrator.web.test_serve import Site, every_page, ids, site

__all__ = ["site"]  # the fixture
UNPICKED = "(a => a.type === 'checkbox' && a.name === 'id' && !a.checked)(document.activeElement)"
CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.skipif(
        CHROMIUM is None or importlib.util.find_spec("playwright") is None, reason="chromium or playwright is missing"
    ),
]


@pytest.fixture
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_fits_asks_nobody_else_and_runs_no_name(site: Site, browser: Any, scheme: str, width: int) -> None:
    page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    told: list[str] = []
    page.on("dialog", lambda dialog: (told.append(f"dialog {dialog.message}"), dialog.dismiss()))
    page.on("console", lambda message: told.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: told.append(str(error)))
    page.on(
        "request", lambda request: told.append(request.url) if f"127.0.0.1:{site.port}" not in request.url else None
    )
    for path, _ in every_page(site):
        page.goto(f"http://127.0.0.1:{site.port}{path}")
        wide = page.evaluate("document.scrollingElement.scrollWidth - document.scrollingElement.clientWidth")
        assert wide <= 0, f"{path} is {wide} px too wide"
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert ground == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(13, 17, 23)"), path
        assert page.locator("h1").count() == 1 and page.locator("img, iframe, object").count() == 0
    assert not [line for line in told if not line.endswith("favicon.ico")]


def test_the_keyboard_alone_filters_picks_compares_and_reads_a_mark(site: Site, browser: Any) -> None:
    one, _ = ids(site)
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.goto(f"http://127.0.0.1:{site.port}/")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    reach(page, "document.activeElement.id === 'arm'")
    page.keyboard.type("projection")
    page.keyboard.press("Enter")
    page.wait_for_url("**arm=projection**")
    for _ in range(2):
        reach(page, UNPICKED)
        page.keyboard.press("Space")
    reach(page, "document.activeElement.textContent.startsWith('Compare the picked')")
    page.keyboard.press("Enter")
    page.wait_for_url("**/compare?**")
    assert "Paired effects" in page.content()
    page.goto(f"http://127.0.0.1:{site.port}/campaign/{one}")
    reach(page, "document.activeElement.closest('.plot') !== null")
    said = page.locator(".said").text_content()
    assert "startup 1" in said and "%" in said, "a focused mark is told in words"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    page.wait_for_url("**/case?**")


def reach(page: Any, condition: str) -> None:
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate(condition):
            return
    raise AssertionError(f"Tab never comes to {condition}")


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The address of `campaign serve` and the process of a `campaign run` that began in the same folder."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "NO_COLOR": "1"}
    subprocess.run(["campaign", "init", "mine"], cwd=tmp_path, env=environment, check=True, capture_output=True)
    (tmp_path / "mine" / "arm" / "hostile.yaml").write_text(f'name: \'{MARKUP}\'\nargs: ["--round-ms", "3"]\n')
    words = ["--config-dir", "mine", "campaign=mine", "campaign.pairs=20", "arm@campaign.candidate=hostile"]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    run = subprocess.Popen(
        ["campaign", "run", *words], cwd=tmp_path, env=environment, stdout=-1, stderr=-1, text=True, bufsize=1
    )
    assert run.stderr is not None
    for line in run.stderr:
        if "pair 1/" in line:
            break
    words = ["--port", str(port), "--store", "outputs/campaigns.sqlite"]
    serve = subprocess.Popen(["campaign", "serve", *words], cwd=tmp_path, env=environment, stdout=-1, text=True)
    assert serve.stdout is not None and "Ctrl-C ends it" in serve.stdout.readline()
    try:
        yield f"http://127.0.0.1:{port}", run
    finally:
        for process in (serve, run):
            process.terminate()
            process.communicate(timeout=60)


MARKUP = "<img src=x onerror=alert(1)><script>alert(2)</script>"


def test_a_real_campaign_moves_under_the_eyes_and_is_stopped_on_its_page(
    running: tuple[str, subprocess.Popen[str]], browser: Any
) -> None:
    """Counters, time left and the log come as events, not by loading; then the button, its question, and the end."""
    from playwright.sync_api import expect

    address, run = running
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    told: list[str] = []
    page.on("dialog", lambda dialog: (told.append(dialog.message), dialog.dismiss()))
    page.goto(f"{address}/")
    page.get_by_role("link", name=re.compile("mine")).first.click()
    page.wait_for_load_state()
    loads: list[str] = []
    page.on("load", lambda page: loads.append(page.url))
    pairs, rounds = (page.locator(".facts div", has_text=name).locator("dd") for name in ("pairs", "rounds"))
    seen, counted = pairs.inner_text(), rounds.inner_text()
    expect(pairs).not_to_have_text(seen, timeout=30_000)
    expect(pairs).to_contain_text("of 120")
    expect(rounds).not_to_have_text(counted)
    expect(page.locator(".facts")).to_contain_text("2 of 3", timeout=60_000)
    expect(page.locator(".facts")).to_contain_text(re.compile(r"(about|at least) \d+ s left"))
    expect(page.locator("#live pre")).to_contain_text("serving on port")
    expect(page.locator("#live")).to_contain_text("Not final")
    expect(page.locator("#live ul")).to_contain_text("load")
    assert loads == []
    page.get_by_role("link", name="Stop this campaign").click()
    assert "no finished pair is lost" in page.content() and page.locator("input[name=token]").input_value()
    page.get_by_label("Reason").fill(f"lunch {MARKUP}")
    page.get_by_role("button", name="Stop it").click()
    expect(page.locator("[data-events]")).to_have_count(0, timeout=60_000)  # it has loaded itself once more
    expect(page.locator(".facts")).to_contain_text("held")
    expect(page.locator(".weakened")).to_contain_text(f"it is held because: lunch {MARKUP}")
    expect(page.locator("h1")).to_contain_text(MARKUP)
    assert page.get_by_role("link", name="Stop this campaign").count() == 0
    assert page.locator("img, main script").count() == 0 and told == []
    assert run.wait(30) == 130
