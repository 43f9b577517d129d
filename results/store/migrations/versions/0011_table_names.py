"""Views also tell by their tables' names what they tell by the names of reports and exports: one question fits both.

Views alone, so that no hash changes; the new columns come last.
"""

from alembic import op
from sqlalchemy import text

revision = "0011"
down_revision = "0010"

# view: (the end of its columns, what follows them)
ADDED = {
    "v_request": (" r.token_sha256\nFROM", ", r.startup, r.fixture, r.repeat"),
    "v_round": (" d.emitted\nFROM", ", r.startup, r.fixture, r.repeat"),
    "v_pair": (" AS control_first\nFROM", ", p.startup, p.fixture, p.repeat, p.exactness, p.divergence_index"),
    "v_startup": (" e.message\nFROM", ", s.startup, s.device_uuids, s.processes, e.reason"),
    "v_effect": (" AS effect_pct\nFROM", ", startup_index AS startup, fixture_id AS fixture"),
}


def upgrade() -> None:
    for name, (end, names) in ADDED.items():
        view = op.get_bind().scalar(text("SELECT sql FROM sqlite_master WHERE name = :name"), {"name": name})
        assert view.count(end) == 1, f"{name} does not end its columns as expected"
        op.execute(f"DROP VIEW {name}")
        op.execute(view.replace(end, end.replace("\nFROM", f"{names}\nFROM")))
