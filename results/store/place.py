"""Where a store may lie. Knows folders, no database, so that every command can name the default at no cost."""

from __future__ import annotations

from pathlib import Path

from campaigns.errors import StoreUnwritable, UsageError

DEFAULT = Path("outputs/campaigns.sqlite")


def check_place(path: Path) -> None:
    """A store's folder must be there, all but the default one: a typo would begin a new history."""
    if path.is_dir():
        raise UsageError(f"the store {path} is a folder: name a file in it with --store")
    if not path.parent.is_dir() and path.parent != DEFAULT.parent:
        raise UsageError(f"there is no folder {path.parent} for the store {path.name}: make it, or correct --store")


def make_place(path: Path) -> None:
    """`check_place`, and the default folder where it is missing."""
    check_place(path)
    try:
        path.parent.mkdir(exist_ok=True)
    except OSError as error:
        raise StoreUnwritable(
            f"the folder {path.parent} cannot be made ({error.strerror}): name another store with --store"
        ) from error
