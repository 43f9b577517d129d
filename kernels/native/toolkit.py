"""The compilers of native schedules: where they are, what they are, and the flags every build gets.

The flags make a library a function of its sources alone: no build id, no symbol names of temporary files, no
contraction of a multiply and an add that the source did not write as one.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kernels.errors import KernelError

ANSWER_LIMIT_S = 60
CXX_FLAGS = (
    "-O3", "-std=c++20", "-ffp-contract=off", "-fno-math-errno", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared",
    "-fvisibility=hidden", "-Wl,--build-id=none,-s",
)  # fmt: skip
CUDA_FLAGS = (
    "-O3", "-std=c++17", "-shared", "--cudart", "static", "-Xcompiler", "-fPIC,-fvisibility=hidden,-Wall",
    "-Xlinker", "--build-id=none,-s",
)  # fmt: skip
CUDA_HOMES = ("/usr/local/cuda", "/usr/local/cuda-13.0", "/usr/local/cuda-12.8", "/usr/local/cuda-12.6")


class ToolkitError(KernelError):
    """A compiler that is there and does not work."""


@dataclass(frozen=True)
class Toolkit:
    """One compiler: `sha256` is the hash of its driver, `version` what it says about itself."""

    name: str
    path: str
    version: str
    sha256: str


def ask(path: str, flag: str) -> str:
    """What a compiler prints when it is asked about itself."""
    try:
        asked = subprocess.run([path, flag], capture_output=True, text=True, check=True, timeout=ANSWER_LIMIT_S)
    except (OSError, subprocess.SubprocessError) as error:
        raise ToolkitError(
            f"`{path} {flag}` fails: {str(error).rstrip('.')}; mend that compiler or take it off PATH"
        ) from None
    if not asked.stdout.strip():
        raise ToolkitError(f"`{path} {flag}` prints nothing; mend that compiler or take it off PATH")
    return asked.stdout


def describe(name: str, path: str) -> Toolkit:
    lines = [line for line in ask(path, "--version").splitlines() if line.strip()]
    version = lines[0] if name == "g++" else lines[-1]
    return Toolkit(name, path, version.strip(), hashlib.sha256(Path(path).resolve().read_bytes()).hexdigest())


def cxx_path() -> str | None:
    return shutil.which("g++")


@cache
def cxx() -> Toolkit | None:
    """The C++ compiler, or None where the machine has none."""
    path = cxx_path()
    return describe("g++", path) if path else None


def nvcc_paths() -> list[str]:
    candidates = [shutil.which("nvcc"), *(f"{home}/bin/nvcc" for home in CUDA_HOMES)]
    found = [str(Path(path).resolve()) for path in candidates if path and Path(path).is_file()]
    return list(dict.fromkeys(found))


@cache
def compiles(nvcc: str, arch: str) -> bool:
    return f"compute_{arch.removeprefix('sm_').rstrip('a')}" in ask(nvcc, "--list-gpu-arch").split()


@cache
def nvcc(arch: str) -> Toolkit | None:
    """The first nvcc that knows `arch`: CUDA 13 dropped sm_70, a 12.x installation beside it still has it."""
    for path in nvcc_paths():
        if compiles(path, arch):
            return describe("nvcc", path)
    return None


def toolkit_for(language: str, arch: str) -> Toolkit | None:
    return nvcc(arch) if language == "cuda" else cxx()


def arch_flags(language: str, arch: str) -> tuple[str, ...]:
    if language == "c++":
        return (f"-march={arch}",)
    return ("-gencode", f"arch={arch.replace('sm_', 'compute_')},code={arch}")


def base_flags(language: str) -> tuple[str, ...]:
    return CUDA_FLAGS if language == "cuda" else CXX_FLAGS
