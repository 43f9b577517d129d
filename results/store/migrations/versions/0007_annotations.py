"""Annotations: tags, notes, and what was put aside, by whom. Only appended to, as everything here."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.create_table(
        "annotation",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("campaign_id", sa.Text(), sa.ForeignKey("campaign.campaign_id"), nullable=False),
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("utc", "mark", "text", "by", "row_sha256")),
    )
    op.create_index("annotation_of", "annotation", ["campaign_id"])
