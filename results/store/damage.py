"""Campaigns that cannot be read are set aside, so that they hide no other: each command goes on without them.

Setting aside is a view of the connection's own, `temp.campaign`, which SQLite prefers to the table of the same name:
every query over campaigns sees the good ones alone. The table itself is `main.campaign`. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, text

from results.store.soundness import campaign_faults

# What reading rows that somebody changed may raise; errors of the file itself and ours are others.
UNREADABLE = (ValueError, TypeError, KeyError, AttributeError, IndexError, ArithmeticError, RecursionError)
_HIDE = """
CREATE TEMP TABLE IF NOT EXISTS set_aside (campaign_id PRIMARY KEY);
CREATE TEMP VIEW IF NOT EXISTS campaign AS
    SELECT rowid, * FROM main.campaign WHERE campaign_id NOT IN (SELECT campaign_id FROM set_aside);
"""


class Damaged(dict[str, str]):
    """Id of a campaign to why it cannot be read; looks at every campaign's own row when it is made."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self._connection = connection
        for row in connection.execute(text("SELECT * FROM main.campaign")).mappings().all():
            if found := next(campaign_faults(row), ""):
                self.add(str(row["campaign_id"]), found)

    def add(self, campaign_id: str, why: str) -> None:
        self[campaign_id] = why
        driver = self._connection.connection.driver_connection
        assert driver is not None
        driver.executescript(_HIDE)
        driver.execute("INSERT OR IGNORE INTO temp.set_aside VALUES (?)", (campaign_id,))
        driver.commit()  # an open transaction would hold a reader's snapshot

    @contextmanager
    def sparing(self, campaign_id: str) -> Iterator[None]:
        """Set the campaign aside where its rows cannot be read; what follows goes on without it."""
        try:
            yield
        except UNREADABLE as error:
            self.add(campaign_id, f"its rows cannot be read ({type(error).__name__}: {str(error)[:80]})")

    def lines(self) -> list[str]:
        return [f"{name}  damaged: {why}; see campaign verify {name}" for name, why in self.items()]
