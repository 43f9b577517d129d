"""The seed that a request was sent with, where it may be another than its fixture names.

A nullable column, so that no hash changes.
"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.add_column("request", sa.Column("sent_seed", sa.Integer(), nullable=True))
