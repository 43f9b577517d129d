"""A native library that is what its manifest says, or none at all.

    LibraryError
      MissingLibrary     there is no file, and nothing here can build it
      TamperedLibrary    the bytes are not those the manifest hashed (truncated, patched, replaced)
      ForeignLibrary     a manifest or symbols of another schedule or architecture
      StaleLibrary       built from other sources, or an older revision than required
      DuplicateLibrary   another file of the same name is already mapped into this process
    NativeError          an entry returned something other than 0

Knows ctypes and files; knows no operator. Nothing is repaired silently: a build that was meant to be measured and is
not there stops the process.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from kernels.errors import KernelError
from kernels.native import building
from kernels.native.machine import cpu_arch, cuda_arch
from kernels.native.specification import BuildSpec, sha256_file


class LibraryError(KernelError):
    pass


class MissingLibrary(LibraryError):
    pass


class TamperedLibrary(LibraryError):
    pass


class ForeignLibrary(LibraryError):
    pass


class StaleLibrary(LibraryError):
    pass


class DuplicateLibrary(LibraryError):
    pass


class NativeError(KernelError):
    pass


@dataclass(frozen=True, eq=False)
class NativeLibrary:
    """A mapped library; `sha256` is that of the file the process maps."""

    name: str
    path: Path
    sha256: str
    revision: int
    arch: str
    handle: Any
    entries: dict[str, Any] = field(default_factory=dict, repr=False)

    def entry(self, suffix: str, argtypes: Sequence[Any]) -> Any:
        """The exported `<operator>_<schedule>_<suffix>`, returning an int."""
        function = self.entries.get(suffix)
        if function is None:
            try:
                function = getattr(self.handle, f"{self.name}_{suffix}")
            except AttributeError:
                raise ForeignLibrary(f"{self.path} exports no {self.name}_{suffix}") from None
            function.argtypes, function.restype = list(argtypes), ctypes.c_int
            self.entries[suffix] = function
        return function


def call(entry: Any, *arguments: Any) -> None:
    """Call an entry; anything but 0 raises."""
    code = entry(*arguments)
    if code != 0:
        raise NativeError(f"{entry.__name__} returned {code}")


def mapped_files(name: str) -> set[tuple[str, int]]:
    """(path, inode) of every file called `name` that this process maps."""
    found = set()
    for line in Path("/proc/self/maps").read_text().splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and Path(fields[5].removesuffix(" (deleted)")).name == name:
            found.add((fields[5], int(fields[4])))
    return found


def check_manifest(spec: BuildSpec, arch: str, root: Path) -> dict[str, Any]:
    """The manifest beside the library, once its bytes, name, architecture and sources are the expected ones."""
    path, remedy = building.library_path(spec, arch, root), "run `python -m kernels.build`"
    manifest = building.read_manifest(spec, arch, root)
    if manifest is None or not path.is_file():
        raise MissingLibrary(f"{path} has no {'manifest' if path.is_file() else 'file'}: {remedy}")
    if (manifest.get("name"), manifest.get("arch")) != (spec.name, arch):
        told = f"{manifest.get('name')} for {manifest.get('arch')}"
        raise ForeignLibrary(f"the manifest beside {path} is of {told}, not of {spec.name} for {arch}: {remedy}")
    found = sha256_file(path)
    if found != manifest.get("library_sha256"):
        raise TamperedLibrary(
            f"{path} has sha256 {found[:12]}…, its manifest {manifest.get('library_sha256')}: {remedy}"
        )
    if manifest.get("build_sha256") != spec.sha256():
        raise StaleLibrary(f"{path} was built from other sources or flags than {spec.name} has now: {remedy}")
    return manifest


def check_mapping(path: Path) -> None:
    """Refuse where the loader took, or already had, another file of this name."""
    status, own = path.stat(), str(path.resolve())
    strangers = {name for name, inode in mapped_files(path.name) if (name, inode) != (own, status.st_ino)}
    if strangers:
        raise DuplicateLibrary(f"this process already maps {', '.join(sorted(strangers))}, so {own} is refused")


def check_revision(spec: BuildSpec, library: NativeLibrary) -> None:
    if library.revision < spec.revision:
        raise StaleLibrary(
            f"{library.path} is revision {library.revision} of {spec.name}, revision {spec.revision} is required: "
            "run `python -m kernels.build`"
        )


def load(spec: BuildSpec, arch: str, root: Path = building.ROOT) -> NativeLibrary:
    """Map a built library after every check; never builds."""
    path = building.library_path(spec, arch, root)
    with building.locked(spec, arch, root):
        manifest = check_manifest(spec, arch, root)
        check_mapping(path)
        try:
            handle = ctypes.CDLL(str(path.resolve()), mode=os.RTLD_NOW | os.RTLD_LOCAL)
            revision = int(getattr(handle, f"{spec.name}_revision")())
        except (OSError, AttributeError) as error:
            raise ForeignLibrary(f"{path} is no library of {spec.name}: {error}") from None
        check_mapping(path)
    library = NativeLibrary(spec.name, path, manifest["library_sha256"], revision, arch, handle)
    check_revision(spec, library)
    return library


@cache
def native(spec: BuildSpec, device_arch: str) -> NativeLibrary:
    """The library of `spec` for a device, loaded once per process; built first only where there is none at all."""
    arch = spec.arch_for(device_arch)
    if arch is None:
        raise MissingLibrary(f"{spec.name} is not built for {device_arch}, only for {', '.join(spec.archs)}")
    if not building.library_path(spec, arch).exists():
        building.ensure(spec, arch)
    return load(spec, arch)


def prepare(spec: BuildSpec | None) -> NativeLibrary | None:
    """Load what a schedule is built from before anything is measured; None where it needs nothing on this machine."""
    if spec is None:
        return None
    if spec.language == "c++":
        return native(spec, cpu_arch())
    import torch  # only for a CUDA schedule, and then torch is loaded already

    return native(spec, cuda_arch(torch.cuda.current_device())) if torch.cuda.is_available() else None
