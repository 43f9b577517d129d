"""Where the checkout that runs lies, and its configuration. Knows nothing of what is in them."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONF = ROOT / "conf"
