"""Energy: what the leased devices drew during a request, and what told it.

Nullable columns, so that no hash changes. The index holds only requests whose energy is known.
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

COVERED = ["campaign_id", "startup", "fixture", "seed", "repeat", "block_attempt", "role"]
COVERED += ["energy_mj", "completion_tokens"]
WHERE = "phase = 'measure' AND energy_mj IS NOT NULL"


def upgrade() -> None:
    op.add_column("request", sa.Column("energy_mj", sa.Integer(), nullable=True))
    op.add_column("request", sa.Column("energy_source", sa.Text(), nullable=True))
    op.create_index("measured_energy", "request", COVERED, sqlite_where=sa.text(WHERE))
