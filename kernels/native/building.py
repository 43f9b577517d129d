"""One native library from its sources: compiled aside, renamed into place, described by a manifest.

A build copies its sources into a temporary folder, compiles them there under relative names, and renames the library
and its manifest into `build/kernels/<arch>/` while holding that library's lock. What the manifest hashes is therefore
what was compiled, building twice gives the same bytes, and two builds at once are two turns, not a race.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kernels.errors import KernelError
from kernels.native import specification, toolkit
from kernels.native.specification import BuildSpec, sha256_file

ROOT = Path(__file__).parents[2] / "build" / "kernels"
COMPILE_LIMIT_S = 900
# Architectures this project has executed on; a library for any other one is marked in its manifest.
RUN_ON = frozenset({"x86-64-v3", "sm_90", "sm_90a"})


class BuildError(KernelError):
    """A library could not be built; the sentence holds the compiler's own words."""


def library_path(spec: BuildSpec, arch: str, root: Path = ROOT) -> Path:
    return root / arch / f"{spec.name}.so"


def manifest_path(spec: BuildSpec, arch: str, root: Path = ROOT) -> Path:
    return root / arch / f"{spec.name}.json"


def lacking(spec: BuildSpec) -> str | None:
    """Why this machine cannot have the library, None where it has one or a compiler for one."""
    if any(library_path(spec, arch).is_file() for arch in spec.archs):
        return None
    compilers = toolkit.nvcc_paths() if spec.language == "cuda" else [toolkit.cxx_path()]
    return None if any(compilers) else f"{spec.name} is not built and this machine has no compiler for {spec.language}"


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
        shutil.copyfile(specification.CSRC / name, target)
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


def is_built(spec: BuildSpec, arch: str, root: Path = ROOT) -> bool:
    return read_manifest(spec, arch, root) is not None and library_path(spec, arch, root).is_file()


def inspect(spec: BuildSpec, arch: str, root: Path = ROOT) -> str | None:
    """What is wrong with a library as it lies there, which no compiler is needed to see; None where nothing is."""
    again = f"python -m kernels.build {spec.operator}/{spec.schedule}"
    manifest, path = read_manifest(spec, arch, root), library_path(spec, arch, root)
    if manifest is None or not path.is_file():
        return f"missing: build it first, with {again}"
    if sha256_file(path) != manifest.get("library_sha256"):
        return "altered after it was built"
    if manifest.get("build_sha256") != spec.sha256():
        return f"stale: {path} was built from other sources or flags; build it again, with {again}"
    return None


def verify(spec: BuildSpec, arch: str, root: Path = ROOT) -> str:
    """Build again elsewhere and compare hashes: 'reproduced', or what is wrong."""
    with locked(spec, arch, root):
        wrong, manifest = inspect(spec, arch, root), read_manifest(spec, arch, root)
    if wrong is not None or manifest is None:
        return wrong or "missing"
    with tempfile.TemporaryDirectory(prefix="kernels-verify-") as name:
        again = compile_into(spec, arch, Path(name))
    return "reproduced" if again["library_sha256"] == manifest["library_sha256"] else "differs when built again"
