"""Native libraries of every operator: `python -m kernels.build [--arch …] [--verify] [operator[/schedule] …]`."""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from kernels.command_line import Parser
from kernels.errors import KernelError
from kernels.native import toolkit
from kernels.native.building import ROOT, BuildError, ensure, inspect, is_built, verify
from kernels.native.specification import BuildSpec
from kernels.operators import OPERATORS

SKIPPED = "skipped: no compiler for it here"
UNBUILT = "skipped: not built here"


@cache
def specs() -> tuple[BuildSpec, ...]:
    """Every native schedule's spec."""
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
    """What became of one library, in words. Only what nobody named may be skipped, for want of a compiler or a build.

    Without a compiler a library that lies there is still held against its manifest and the sources.
    """
    named = options.arch or f"{spec.operator}/{spec.schedule}" in options.names
    try:
        if not named and options.verify and not is_built(spec, arch, options.root):
            return UNBUILT
        if not named and toolkit.toolkit_for(spec.language, arch) is None:
            return (options.verify and inspect(spec, arch, options.root)) or SKIPPED
        return verify(spec, arch, options.root) if options.verify else ensure(spec, arch, options.root)
    except KernelError as error:
        return str(error)


def main(arguments: list[str] | None = None) -> int:
    parser = Parser(prog="python -m kernels.build", description="Build native schedules.")
    parser.add_argument("names", nargs="*", help="operator or operator/schedule; all without names")
    parser.add_argument("--arch", help="only this architecture, e.g. x86-64-v3 or sm_90a")
    parser.add_argument("--verify", action="store_true", help="build again elsewhere and compare the hashes")
    parser.add_argument("--jobs", type=int, default=1, help="compilers at once (default: %(default)s)")
    parser.add_argument("--root", type=Path, default=ROOT, help="where the libraries live (default: %(default)s)")
    options = parser.parse_args(arguments)
    failed = False
    try:
        work = work_list(options.names, options.arch)
    except BuildError as error:
        sys.exit(str(error))
    states = []
    with ThreadPoolExecutor(max(1, options.jobs)) as pool:
        for (spec, arch), state in zip(work, pool.map(lambda each: outcome(*each, options), work), strict=True):
            states.append(state)
            sound = state in ("built", "current", "reproduced", SKIPPED, UNBUILT)
            failed |= not sound
            print(f"{spec.name:32} {arch:10} {state}", file=sys.stdout if sound else sys.stderr)
    if set(states) == {UNBUILT}:
        sys.exit(f"nothing is built under {options.root}, so nothing was verified; python -m kernels.build builds it")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
