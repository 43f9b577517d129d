"""The end of a startup loses a column that nothing filled: what the server said last is a row of `identity`.

A row whose hash held gets the hash of what is left of it; one that did not keeps its own, so that it is still found.
"""

from alembic import op
from sqlalchemy import text

from results.store.hashing import row_sha256

revision = "0003"
down_revision = "0002"

_DROPPED = "identity_after"


def upgrade() -> None:
    connection = op.get_bind()
    for row in map(dict, connection.execute(text("SELECT * FROM startup_end")).mappings().all()):
        if row_sha256(row) == row["row_sha256"]:
            left = row_sha256({name: value for name, value in row.items() if name != _DROPPED})
            connection.execute(
                text("UPDATE startup_end SET row_sha256 = :left WHERE id = :id"), {"left": left, "id": row["id"]}
            )
    op.execute(f"ALTER TABLE startup_end DROP COLUMN {_DROPPED}")
