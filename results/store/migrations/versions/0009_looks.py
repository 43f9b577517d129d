"""Looks: which verdicts were asked for, after how many startups."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.create_table(
        "look",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("campaign_id", sa.Text(), sa.ForeignKey("campaign.campaign_id"), nullable=False),
        sa.Column("n_seen", sa.Integer(), nullable=False),
        sa.Column("utc", sa.Text(), nullable=False),
        sa.Column("verdict", sa.Text(), nullable=False),
        sa.Column("decided", sa.Boolean(), nullable=False),
        sa.Column("row_sha256", sa.Text(), nullable=False),
        sa.UniqueConstraint("campaign_id", "n_seen", name="one_look"),
    )
