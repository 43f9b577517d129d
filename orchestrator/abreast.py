"""Startups side by side, with the outcome of one after the other.

At most `width` run at once, begun in their order. What ends the campaign is what would have ended it in a row: the
failure of the first startup that fails. Those before it run to their end, those behind it stop after their block. Knows
numbers and threads, nothing of what a startup is.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor

from orchestrator.stopping import Stopping


def abreast(
    startups: Sequence[int], width: int, run: Callable[[int], None], stopping: Stopping
) -> Generator[int, None, None]:
    """Yields each startup once it and all before it are done; who stops asking ends those behind it after their block.

    One at a time runs in this thread. Raises what the first failing startup raised, after the others have ended.
    """
    if width == 1:
        for startup in startups:
            run(startup)
            yield startup
    elif startups:
        yield from _abreast(startups, width, run, stopping)


def _abreast(
    startups: Sequence[int], width: int, run: Callable[[int], None], stopping: Stopping
) -> Generator[int, None, None]:
    def one(startup: int) -> None:
        try:
            stopping.check(startup, True)
            run(startup)
        except BaseException:
            stopping.none_after(startup)
            raise

    startup = startups[0]
    with ThreadPoolExecutor(min(width, len(startups)), "startup") as pool:
        running = [pool.submit(one, startup) for startup in startups]
        try:
            for startup, outcome in zip(startups, running, strict=True):
                outcome.result()
                yield startup
        except KeyboardInterrupt:
            stopping.halt()
            raise
        finally:
            stopping.none_after(startup)
