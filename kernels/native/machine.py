"""Which architecture a device has (`x86-64-v3`, `x86-64-v4`, `sm_90`, …), and on which ones a schedule runs.

Read once per device, never set by hand.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass
from functools import cache
from pathlib import Path

# The psABI levels' additions over x86-64-v2, in the kernel's spelling.
LEVEL_3 = frozenset({"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"})
LEVEL_4 = frozenset({"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"})


@dataclass(frozen=True)
class Machine:
    """What a schedule runs on: a torch device type, and the architectures of it that will do; all if none is named."""

    device: str
    archs: tuple[str, ...] = ()

    def refusal(self, device: str, arch: str) -> str | None:
        """Why nothing that needs this machine runs on a device of that type and architecture; None where it does."""
        if device != self.device:
            return f"device {device!r}; only {self.device!r}"
        if self.archs and arch not in self.archs:
            return f"architecture {arch!r}; only {', '.join(self.archs)}"
        return None


CPU = Machine("cpu")
X86_64_V3 = Machine("cpu", ("x86-64-v3", "x86-64-v4"))  # AVX2 and FMA
HOPPER = Machine("cuda", ("sm_90",))


def cpu_flags(cpuinfo: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """The feature flags of the first processor, empty where the file does not exist or names none."""
    if not cpuinfo.is_file():
        return frozenset()
    for line in cpuinfo.read_text().splitlines():
        if line.startswith("flags"):
            return frozenset(line.partition(":")[2].split())
    return frozenset()


@cache
def cpu_arch() -> str:
    """`x86-64-v4`, `x86-64-v3`, or the machine's own name where it reaches neither."""
    flags = cpu_flags()
    if flags >= LEVEL_3 | LEVEL_4:
        return "x86-64-v4"
    return "x86-64-v3" if flags >= LEVEL_3 else platform.machine()


@cache
def cuda_arch(index: int | None) -> str:
    import torch  # only where a CUDA device is in use

    major, minor = torch.cuda.get_device_capability(index)
    return f"sm_{major}{minor}"


def arch_of(device: str, index: int | None = None) -> str:
    """The architecture of a torch device type."""
    return cuda_arch(index) if device == "cuda" else cpu_arch()
