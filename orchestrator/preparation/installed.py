"""Whether this checkout was installed: its own server tells its version, which only an installation knows.

Knows the distribution's name and no more; the doctor and `campaign run` say the same words.
"""

from __future__ import annotations

from importlib import metadata

from campaigns.errors import WorldError
from orchestrator.checkouts.places import DISTRIBUTION, ROOT

MISSING = f"this tree was never installed: there is no distribution {DISTRIBUTION}"
REMEDY = f"make setup, or pip install -e {ROOT}"


def is_installed() -> bool:
    try:
        metadata.distribution(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return False
    return True


def check_installed() -> None:
    """WorldError in the doctor's words."""
    if not is_installed():
        raise WorldError(f"{MISSING}; {REMEDY}")
