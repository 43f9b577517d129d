"""Profiles: what each operator took in the rounds of a request that ran under the server's profiler."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.create_table(
        "operator_time",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("campaign_id", sa.Text(), sa.ForeignKey("campaign.campaign_id"), nullable=False),
        sa.Column("startup", sa.Integer(), nullable=False),
        sa.Column("fixture", sa.Text(), nullable=False),
        sa.Column("seed", sa.Integer(), nullable=False),
        sa.Column("repeat", sa.Integer(), nullable=False),
        sa.Column("block_attempt", sa.Integer(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("rounds", sa.Integer(), nullable=False),
        sa.Column("clock", sa.Text(), nullable=False),
        sa.Column("round_ns", sa.Integer(), nullable=False),
        sa.Column("piece", sa.Text(), nullable=False),
        sa.Column("operator", sa.Text(), nullable=False),
        sa.Column("schedule", sa.Text(), nullable=False),
        sa.Column("calls", sa.Integer(), nullable=False),
        sa.Column("launches", sa.Integer(), nullable=True),
        sa.Column("total_ns", sa.Integer(), nullable=False),
        sa.Column("row_sha256", sa.Text(), nullable=False),
        sa.UniqueConstraint(
            "campaign_id",
            "startup",
            "fixture",
            "seed",
            "repeat",
            "block_attempt",
            "role",
            "piece",
            "operator",
            "schedule",
            name="one_operator_time",
        ),
    )
