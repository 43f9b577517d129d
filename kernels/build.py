"""Native libraries from their sources: `python -m kernels.build [--arch …] [--verify] [operator[/schedule] …]`.

A build copies its sources into a temporary folder, compiles them there under relative names, and renames the library
and its manifest into `build/kernels/<arch>/` while holding that library's lock. What the manifest hashes is therefore
what was compiled, building twice gives the same bytes, and two builds at once are two turns, not a race.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from kernels import toolkit
from kernels.command_line import Parser
from kernels.registry import KernelError

CSRC = Path(__file__).parent / "csrc"
ROOT = Path(__file__).parents[1] / "build" / "kernels"
COMPILE_LIMIT_S = 900
SKIPPED = "skipped: no compiler for it here"
# Architectures this project has executed on; a library for any other one is marked in its manifest.
RUN_ON = frozenset({"x86-64-v3", "sm_90", "sm_90a"})
# What CUDA sources without Hopper's own instructions compile for besides. CUDA 13 no longer knows sm_70.
PORTABLE = ("sm_70", "sm_75", "sm_80", "sm_89", "sm_100")


class BuildError(KernelError):
    """A library could not be built; the sentence holds the compiler's own words."""


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


def library_path(spec: BuildSpec, arch: str, root: Path = ROOT) -> Path:
    return root / arch / f"{spec.name}.so"


def manifest_path(spec: BuildSpec, arch: str, root: Path = ROOT) -> Path:
    return root / arch / f"{spec.name}.json"


@contextmanager
def locked(spec: BuildSpec, arch: str, root: Path = ROOT) -> Iterator[None]:
    """Hold one library's lock: builders and loaders take turns. The kernel gives it back if the holder dies.

    What the file system refuses meanwhile (a folder that is read-only or a file, a full disk) is a BuildError.
    """
    path = root / arch / f"{spec.name}.lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
    except OSError as error:
        place = error.filename2 or error.filename or path.parent
        raise BuildError(f"{spec.name}: {place}: {error.strerror}; {path.parent} must be writable") from error


def compiler_for(spec: BuildSpec, arch: str) -> toolkit.Toolkit:
    found = toolkit.toolkit_for(spec.language, arch)
    if found is None:
        wanted = "g++" if spec.language == "c++" else f"an nvcc that knows {arch}"
        raise BuildError(f"{spec.name} needs {wanted}, which this machine does not have; use a torch schedule instead")
    return found


def compile_into(spec: BuildSpec, arch: str, folder: Path) -> dict[str, Any]:
    """Compile a copy of the sources in `folder`; the manifest of `folder/library.so`."""
    for name in (*spec.sources, *spec.headers):
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(CSRC / name, target)
    tool, flags = compiler_for(spec, arch), spec.all_flags(arch)
    command = [tool.path, *flags, "-I", "include", "-o", "library.so", *spec.sources]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=COMPILE_LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        raise BuildError(f"{spec.name} for {arch} does not compile within {COMPILE_LIMIT_S} s") from None
    if done.returncode != 0 or not (folder / "library.so").is_file():
        said = done.stderr.strip() or f"exit status {done.returncode}, no library and no word"
        raise BuildError(f"{spec.name} for {arch} does not compile with {tool.version}:\n{said}")
    return {
        "name": spec.name, "operator": spec.operator, "schedule": spec.schedule, "revision": spec.revision,
        "arch": arch, "executed_by_this_project": arch in RUN_ON, **spec.hashes(folder), "flags": list(flags),
        "toolkit": asdict(tool), "build_sha256": spec.sha256(folder),
        "library_sha256": sha256_file(folder / "library.so"),
    }  # fmt: skip


def read_manifest(spec: BuildSpec, arch: str, root: Path = ROOT) -> dict[str, Any] | None:
    """The manifest, None where there is none or it is no JSON object."""
    path = manifest_path(spec, arch, root)
    if not path.is_file():
        return None
    try:
        found = json.loads(path.read_bytes())
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def is_current(spec: BuildSpec, arch: str, root: Path = ROOT) -> bool:
    """True where the library on disk is what these sources and this toolkit gave; without one, any toolkit will do."""
    manifest, path = read_manifest(spec, arch, root), library_path(spec, arch, root)
    if manifest is None or not path.is_file():
        return False
    same_sources = manifest.get("build_sha256") == spec.sha256()
    tool = toolkit.toolkit_for(spec.language, arch)
    same_toolkit = tool is None or manifest.get("toolkit") == asdict(tool)
    return same_sources and same_toolkit and manifest.get("library_sha256") == sha256_file(path)


def publish(spec: BuildSpec, arch: str, root: Path) -> None:
    """Build and put in place; the caller holds the lock."""
    place = root / arch
    with tempfile.TemporaryDirectory(prefix=f".{spec.name}-", dir=place) as name:
        folder = Path(name)
        manifest = compile_into(spec, arch, folder)
        (folder / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")
        (folder / "library.so").replace(library_path(spec, arch, root))
        (folder / "manifest.json").replace(manifest_path(spec, arch, root))


def ensure(spec: BuildSpec, arch: str, root: Path = ROOT) -> str:
    """Build unless the library is current: 'built' or 'current'."""
    with locked(spec, arch, root):
        if is_current(spec, arch, root):
            return "current"
        publish(spec, arch, root)
        return "built"


def verify(spec: BuildSpec, arch: str, root: Path = ROOT) -> str:
    """Build again elsewhere and compare hashes: 'reproduced', or what is wrong."""
    with locked(spec, arch, root):
        manifest = read_manifest(spec, arch, root)
        if manifest is None or not library_path(spec, arch, root).is_file():
            return f"missing: build it first, with python -m kernels.build {spec.operator}/{spec.schedule}"
        if sha256_file(library_path(spec, arch, root)) != manifest.get("library_sha256"):
            return "altered after it was built"
    with tempfile.TemporaryDirectory(prefix="kernels-verify-") as name:
        again = compile_into(spec, arch, Path(name))
    return "reproduced" if again["library_sha256"] == manifest["library_sha256"] else "differs when built again"


@cache
def specs() -> tuple[BuildSpec, ...]:
    """Every native schedule's spec."""
    from kernels.operators import OPERATORS  # the operators' modules import this one

    return tuple(schedule.build for op in OPERATORS for schedule in op.schedules if schedule.build)


def chosen_specs(names: list[str]) -> list[BuildSpec]:
    """The specs called `operator` or `operator/schedule`; all of them without names."""
    known = specs()
    for name in names:
        if not any(name in (spec.operator, f"{spec.operator}/{spec.schedule}") for spec in known):
            raise BuildError(f"no native schedule {name!r}; see `python -m kernels.list`")
    return [s for s in known if not names or s.operator in names or f"{s.operator}/{s.schedule}" in names]


def work_list(names: list[str], arch: str | None) -> list[tuple[BuildSpec, str]]:
    """Library by library: every architecture a schedule runs on, or the one that `--arch` names."""
    specs = chosen_specs(names)
    if arch is None:
        return [(spec, each) for spec in specs for each in spec.archs]
    work = [(spec, arch) for spec in specs if arch in (*spec.archs, *spec.also)]
    if not work:
        raise BuildError(f"no schedule named here is built for {arch}")
    return work


def outcome(spec: BuildSpec, arch: str, options: argparse.Namespace) -> str:
    """What became of one library, in words. Only what nobody named may be skipped for want of a compiler."""
    named = options.arch or f"{spec.operator}/{spec.schedule}" in options.names
    try:
        if not named and toolkit.toolkit_for(spec.language, arch) is None:
            return SKIPPED
        return verify(spec, arch, options.root) if options.verify else ensure(spec, arch, options.root)
    except KernelError as error:
        return str(error)


def main(arguments: list[str] | None = None) -> int:
    parser = Parser(prog="python -m kernels.build", description="Build native schedules.")
    parser.add_argument("names", nargs="*", help="operator or operator/schedule; all without names")
    parser.add_argument("--arch", help="only this architecture, e.g. x86-64-v3 or sm_90a")
    parser.add_argument("--verify", action="store_true", help="build again elsewhere and compare the hashes")
    parser.add_argument("--root", type=Path, default=ROOT, help="where the libraries live (default: %(default)s)")
    options = parser.parse_args(arguments)
    failed = False
    try:
        work = work_list(options.names, options.arch)
    except BuildError as error:
        sys.exit(str(error))
    for spec, arch in work:
        state = outcome(spec, arch, options)
        sound = state in ("built", "current", "reproduced", SKIPPED)
        failed |= not sound
        print(f"{spec.name:32} {arch:10} {state}", file=sys.stdout if sound else sys.stderr)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
