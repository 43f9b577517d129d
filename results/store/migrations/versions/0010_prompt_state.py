"""Restored prompts: v_request tells no TTFT and no prefill time of a request whose prompt's state was copied back.

A view alone, so that no hash changes.
"""

from alembic import op
from sqlalchemy import text

revision = "0010"
down_revision = "0009"

TIMES = {
    "ttft_ms": "(r.first_content_ns - r.send_ns) * 1e-6",
    "prefill_ms": "r.engine_prefill_ns * 1e-6",
}


def upgrade() -> None:
    view = op.get_bind().scalar(text("SELECT sql FROM sqlite_master WHERE name = 'v_request'"))
    for name, time in TIMES.items():
        told = f"{time} AS {name}"
        assert view.count(told) == 1, f"v_request does not tell {name} as {time}"
        view = view.replace(told, f"CASE WHEN instr(r.reasons, 'prompt-restored') = 0 THEN {time} END AS {name}")
    op.execute("DROP VIEW v_request")
    op.execute(view)
