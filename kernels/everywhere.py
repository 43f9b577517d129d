"""Small steps written once for both machines: a C++ library on the CPU, one launch on CUDA, the same body in a header.

Of `csrc/<operator>/<name>.h` there are `<name>.cpp` and `<name>.cu`, whose entries differ by a stream at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_void_p
from functools import partial
from typing import TYPE_CHECKING, Any

from kernels.native.device import stream_of
from kernels.native.library import call, native
from kernels.native.machine import HOPPER, X86_64_V3, cpu_arch, cuda_arch
from kernels.native.specification import BuildSpec
from kernels.registry import Bitwise, Bound, Refusal, Schedule

if TYPE_CHECKING:
    import torch


def spec(operator: str, name: str, language: str, headers: tuple[str, ...]) -> BuildSpec:
    return BuildSpec(
        operator=operator,
        schedule=name if language == "cuda" else f"cpu-{name}",
        revision=1,
        language=language,
        sources=(f"{operator}/{name}.{'cu' if language == 'cuda' else 'cpp'}",),
        headers=("include/abi.h", "include/team.h", *headers, f"{operator}/{name}.h"),
    )


def launch(spec: BuildSpec, entry: tuple[Any, ...], like: torch.Tensor, *arguments: Any) -> None:
    """Call `run` of a library on the device of `like`, with its stream where it has one."""
    if spec.language == "c++":
        call(native(spec, cpu_arch()).entry("run", entry), *arguments)
    else:
        library = native(spec, cuda_arch(like.device.index))
        call(library.entry("run", (*entry, c_void_p)), *arguments, stream_of(like))


def everywhere(
    operator: str,
    name: str,
    headers: tuple[str, ...],
    guard: Callable[[Any], Refusal | None],
    run: Callable[..., Any],
    contract: Bound | Bitwise,
    what: str,
) -> tuple[Schedule, Schedule]:
    """`cpu-<name>` and `<name>`; `run` takes the build first, `what` says what one call does."""
    made = []
    for language, machine, where in (("c++", X86_64_V3, "C++, one thread"), ("cuda", HOPPER, "CUDA, one launch")):
        build = spec(operator, name, language, headers)
        does = f"{where}: {what}"
        made.append(Schedule(build.schedule, 1, contract, guard, partial(run, build), machine, build, does))
    return made[0], made[1]
