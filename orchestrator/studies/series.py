"""Several campaigns that are one question (a race, a bisection): what was asked, and which campaign answers which part.

Kept in a file beside the campaigns' folders, so that whoever was killed goes on: a part that has ended is read from the
store, one that has not is resumed. Knows parts by name, nothing of what they mean.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from campaigns.errors import Exit, StoreUnreadable, UsageError
from orchestrator.output.journal import keeping

_FILE = "series.json"


class Series:
    """One at a time may go on with it. `asked` is what its command needs to ask again."""

    def __init__(self, folder: Path, kind: str, asked: Mapping[str, Any]) -> None:
        self.folder, self._kind, self.asked = folder, kind, asked
        self._parts: dict[str, dict[str, Any]] = {}
        self._lock: int | None = None

    @classmethod
    def begin(cls, store: Path, kind: str, asked: Mapping[str, Any]) -> Self:
        made = cls(store.parent.absolute() / f"{kind}-{secrets.token_hex(4)}", kind, asked)
        with keeping(made.folder):
            made.folder.mkdir(parents=True)
        made._hold()
        made._keep()
        return made

    @classmethod
    def find(cls, store: Path, kind: str, name: str) -> Self:
        """By its name or a beginning of it; `last` is the newest."""
        every = sorted(store.parent.absolute().glob(f"{kind}-*/{_FILE}"), key=lambda path: path.stat().st_mtime)
        found = every[-1:] if name == "last" else [path for path in every if path.parent.name.startswith(name)]
        if len(found) != 1:
            there = ", ".join(path.parent.name for path in every) or "none"
            raise UsageError(
                f"{name}: {'several' if found else 'no'} {kind} of that name beside {store}; there: {there}"
            )
        told = _read(found[0])
        made = cls(found[0].parent, kind, told["asked"])
        made._hold()
        made._parts = told["parts"]
        return made

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def remedy(self) -> str:
        return f"go on with: campaign {self._kind} --resume {self.name}"

    def campaign(self, part: str) -> str | None:
        """Of a part that has begun."""
        return self._parts.get(part, {}).get("campaign")

    def code(self, part: str) -> Exit | None:
        """Of a part that has ended."""
        code = self._parts.get(part, {}).get("code")
        return None if code is None else Exit(code)

    def note(self, part: str) -> str:
        return str(self._parts.get(part, {}).get("note", ""))

    def began(self, part: str, campaign_id: str) -> None:
        self._parts[part] = {"campaign": campaign_id}
        self._keep()

    def ended(self, part: str, code: Exit | None = None, note: str = "") -> None:
        """With a campaign's code, or without one where none was needed."""
        self._parts.setdefault(part, {}).update({"note": note} | ({} if code is None else {"code": int(code)}))
        self._keep()

    def _keep(self) -> None:
        """There whole or as it was before."""
        path = self.folder / _FILE
        with keeping(path):
            written = path.with_suffix(".new")
            text = json.dumps(
                {"kind": self._kind, "asked": self.asked, "parts": self._parts}, ensure_ascii=False, indent=1
            )
            with written.open("w", encoding="utf-8") as file:
                file.write(text + "\n")
                file.flush()
                os.fsync(file.fileno())
            written.replace(path)

    def _hold(self) -> None:
        with keeping(self.folder):
            self._lock = os.open(self.folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"{self.name} is at work in another process: wait for its end, or interrupt that"
            ) from None

    def close(self) -> None:
        if self._lock is not None:
            with suppress(OSError):
                os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _read(path: Path) -> dict[str, Any]:
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        return {"asked": dict(told["asked"]), "parts": dict(told["parts"])}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreUnreadable(
            f"{path} cannot be read ({error}): its campaigns stand in the store, ask again"
        ) from error
