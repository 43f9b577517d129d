"""What is installed on this host of what takes part in a measurement."""

from __future__ import annotations

import platform
from importlib import metadata

_NAMES = ("torch", "ray", "hydra-core", "omegaconf", "sqlalchemy", "pandas", "numpy", "scipy", "tokenizers")


def versions() -> dict[str, str]:
    """Read from the installed distributions."""
    return {
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in _NAMES if _installed(name)},
    }


def _installed(name: str) -> bool:
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True
