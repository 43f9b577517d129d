"""Arrivals: whose stamps tell a request's chunks, how much later the client had them, and how long the first chunk is.

Nullable columns, so that no hash changes.
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.add_column("request", sa.Column("first_characters", sa.Integer(), nullable=True))
    op.add_column("request", sa.Column("stamp", sa.Text(), nullable=True))
    op.add_column("request", sa.Column("first_wake_ns", sa.Integer(), nullable=True))
    op.add_column("request", sa.Column("last_wake_ns", sa.Integer(), nullable=True))
    op.add_column("round", sa.Column("wake_ns", sa.Integer(), nullable=True))
