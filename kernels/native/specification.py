"""What one native schedule is built from, and the hash that names it. Compiles nothing and loads nothing."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from kernels.native import toolkit

CSRC = Path(__file__).parents[1] / "csrc"
# What CUDA sources without Hopper's own instructions compile for besides. CUDA 13 no longer knows sm_70.
PORTABLE = ("sm_70", "sm_75", "sm_80", "sm_89", "sm_100")


@dataclass(frozen=True)
class BuildSpec:
    """What one native schedule is built from.

    `sources` and `headers` are relative to `kernels/csrc`; every included file is listed, for the hash covers only
    what is listed. `revision` is the least that the library must export. `archs` holds one library each; those in
    `also` are compiled only when `--arch` names them.
    """

    operator: str
    schedule: str
    revision: int
    language: str
    sources: tuple[str, ...]
    headers: tuple[str, ...] = ("include/abi.h",)
    flags: tuple[str, ...] = ()
    archs: tuple[str, ...] = ()
    also: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        assert self.language in ("c++", "cuda"), f"{self.name}: language {self.language!r} is neither 'c++' nor 'cuda'"
        if not self.archs:
            object.__setattr__(self, "archs", ("sm_90a",) if self.language == "cuda" else ("x86-64-v3",))

    @property
    def name(self) -> str:
        """The library's name and the prefix of every symbol it exports."""
        return f"{self.operator}_{self.schedule}".replace("-", "_")

    def hashes(self, csrc: Path | None = None) -> dict[str, dict[str, str]]:
        """sha256 of every source and header, by relative name."""
        csrc = csrc or CSRC
        groups = {"sources": self.sources, "headers": self.headers}
        return {group: {name: sha256_file(csrc / name) for name in names} for group, names in groups.items()}

    def all_flags(self, arch: str) -> tuple[str, ...]:
        define = f"-DSCHEDULE={self.name}"
        return (*toolkit.base_flags(self.language), *toolkit.arch_flags(self.language, arch), define, *self.flags)

    def sha256(self, csrc: Path | None = None) -> str:
        """Identity of everything but the toolkit: sources, headers, flags, architectures, revision."""
        flags = {arch: self.all_flags(arch) for arch in (*self.archs, *self.also)}
        facts = {"name": self.name, "revision": self.revision, "flags": flags, **self.hashes(csrc)}
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    def arch_for(self, device_arch: str) -> str | None:
        """The library architecture that runs on a device, None if there is none: sm_90a on sm_90, v3 on v4."""
        levels = {"x86-64-v4": ("x86-64-v4", "x86-64-v3")}
        wanted = levels.get(device_arch, (f"{device_arch}a", device_arch))
        return next((arch for arch in wanted if arch in self.archs), None)


def sha256_file(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
