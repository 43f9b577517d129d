"""How long a browser waits for the pages of `campaign serve`: the first view of a fresh server, and the next.

    python benchmarks/page_views.py STORE...

Chromium loads each page from a server of its own, so that nothing is remembered; the time is from asking to the load
event. A store of ten million rounds is made by `benchmarks/store_scale.py --folder DIR`. Prints a Markdown table.
Wants Debian's `chromium` and `pip install playwright`.
"""

from __future__ import annotations

import argparse
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from results.store.reader import Reader

FIRST_VIEW_S = 1.0  # of the list and of one campaign; charts over time and whole reports have no limit


@contextmanager
def served(store: Path) -> Iterator[str]:
    """The address of a `campaign serve` of its own."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "orchestrator.cli", "serve", "--store", str(store), "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def views(browser: Any, store: Path, path: str) -> tuple[float, float]:
    """Seconds of the first and of the second view."""
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.goto("about:blank")  # the browser itself has begun
    with served(store) as address:
        took = []
        for _ in range(2):
            began = time.perf_counter()
            page.goto(address + path)
            took.append(time.perf_counter() - began)
    page.close()
    return took[0], took[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stores", nargs="+", type=Path)
    stores = parser.parse_args().stores
    from playwright.sync_api import sync_playwright  # asked for its words, this runs where it is not installed

    print(f"| store | page | first s (limit {FIRST_VIEW_S:g}) | next s |\n| --- | --- | --- | --- |")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for store in stores:
            with Reader.open(store) as reader:
                last = f"/campaign/{reader.resolve('last')}"
            for name, path, limited in (
                ("campaigns", "/", True),
                ("one campaign", last, True),
                ("history", "/history", False),
                ("whole report", f"{last}/report", False),
            ):
                first, again = views(browser, store, path)
                missed = " **missed**" if limited and first > FIRST_VIEW_S else ""
                print(f"| {store.name} | {name} | {first:.2f}{missed} | {again:.2f} |", flush=True)


if __name__ == "__main__":
    main()
