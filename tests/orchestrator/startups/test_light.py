"""What every process of Ray loads: each actor is one of its own, and a campaign over many devices starts hundreds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
HEAVY = {"torch", "pandas", "sqlalchemy", "alembic", "hydra", "omegaconf", "matplotlib", "scipy", "sympy", "jsonschema"}
OWN = {"results", "runtime", "kernels", "orchestrator.web", "orchestrator.settings", "orchestrator.scoring"}


def test_an_actor_loads_nothing_that_it_does_not_use() -> None:
    script = "import sys, orchestrator.startups.startup, orchestrator.startups.nodes; print(*sys.modules)"
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=True)
    loaded = set(told.stdout.split())
    assert "orchestrator.startups.claims" in loaded
    assert not loaded & (HEAVY | OWN)


def test_nothing_is_asked_for_that_ray_would_load_for_a_second() -> None:
    """Ray imports jsonschema, and that rfc3987-syntax where it is there, which builds grammars for a second."""
    wanted = (ROOT / "pyproject.toml").read_text().split("[project.scripts]")[0]
    pinned = (ROOT / "constraints.txt").read_text()
    assert "rfc3986-validator" in wanted and "rfc3986-validator==" in pinned
    assert "jsonschema[" not in wanted and "rfc3987-syntax==" not in pinned and "lark==" not in pinned
