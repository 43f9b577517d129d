"""The code as it travels to the nodes of a joined Ray: packed on the driver's host, unpacked there by Ray, and first on
the path of its workers. What arrives is hashed by every claim (orchestrator.startups.claims).

A node needs the same Python, Ray and libraries, and neither this checkout nor its installation.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

from campaigns.errors import WorldError
from orchestrator.checkouts.places import DISTRIBUTION, MARK, ROOT
from orchestrator.checkouts.trees import CONTROL_PLANE, DATA_PLANE, files_below

_MOST_BYTES = 256 * 2**20  # Ray keeps packages in its control store and refuses 512 MiB


@contextmanager
def packed() -> Iterator[Path]:
    """A folder with the code of both planes, their configuration, and what an installation would say of itself. Equal
    code is an equal folder, so Ray sends it once.
    """
    with tempfile.TemporaryDirectory(prefix="dflash2-code-") as name:
        folder = Path(name)
        _copy(folder)
        _write_installation(folder)
        (folder / MARK).touch()
        yield folder


def _copy(folder: Path) -> None:
    files = [file for name in (*CONTROL_PLANE, *DATA_PLANE, "conf") for file in files_below(ROOT / name)]
    size = sum(file.stat().st_size for file in files)
    if size > _MOST_BYTES:
        big = max(files, key=lambda file: file.stat().st_size)
        raise WorldError(
            f"the code has {size / 2**20:.0f} MiB and at most {_MOST_BYTES >> 20} MiB travel to other hosts: {big} is "
            "no code; keep weights elsewhere, as server.model and server.model_root"
        )
    for file in files:
        target = folder / file.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)


def _write_installation(folder: Path) -> None:
    """The server tells its version, which only an installation knows."""
    version = metadata.version(DISTRIBUTION)
    info = folder / f"{DISTRIBUTION.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {DISTRIBUTION}\nVersion: {version}\n")
