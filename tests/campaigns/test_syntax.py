"""Source that several threads read at once: startups side by side do."""

from __future__ import annotations

import gc
import threading
from pathlib import Path

from campaigns.syntax import syntax_tree

SOURCE = Path(__file__).read_text()


def test_a_thread_that_comes_in_between_spoils_no_tree() -> None:
    """Garbage is collected while the first tree is half made, and another thread begins one."""
    asked, over, failed = threading.Event(), threading.Event(), []

    def other() -> None:
        asked.wait(10)
        try:
            syntax_tree(SOURCE)
        except SystemError as error:
            failed.append(error)
        over.set()

    def let_in(phase: str, info: dict[str, int]) -> None:
        if threading.current_thread() is threading.main_thread() and not asked.is_set():
            asked.set()
            over.wait(0.2)

    thread = threading.Thread(target=other)
    thread.start()
    gc.collect()
    threshold = gc.get_threshold()
    gc.callbacks.append(let_in)
    gc.set_threshold(100)
    try:
        tree = syntax_tree(SOURCE)
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(let_in)
        asked.set()
        thread.join()
    assert not failed and over.is_set() and len(tree.body) > 4
