"""Where the checkout that runs lies, and its configuration. Knows nothing of what is in them."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CONF = ROOT / "conf"
DISTRIBUTION = "dflash2-campaigns"
MARK = "travelled"  # a file beside the code that a driver has sent to this host (orchestrator.startups.travelling)
