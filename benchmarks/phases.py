"""Whether a store to shared memory and a read of it can lie in one phase of attention's kernels, by their machine code.

    python -m benchmarks.phases attention/grouped-cluster

racecheck reports pairs in `grouped` that named barriers of a part of the block separate (docs/kernels.md). Threads that
pass the same barriers in the same order meet at each of them, so a store and a read by other threads are apart unless
both can be reached from one barrier, or from the kernel's beginning, past no other. The sources are compiled with line
numbers (by which no instruction changes: compared with the library, where one is built), every access gets the array
that its line names (ARRAYS), and the control flow that `cuobjdump -sass` prints is walked. Counted is what must not be:

  meet      stores to an array, or to what lies in its place, and reads of it in one phase; of arrays that a warpgroup
            has for itself (OWN) a phase ends at its own barrier too
  open      a load that is not used, or a product not waited for, before the next barrier: barriers wait for neither
  others    ways to the consumers' barrier that do not pass the one branch by which 256 threads go there
  forks     barriers behind which more than one can be next: threads might pass different ones. A block without tiles
            skips the phases of tiles (one branch, the same for all its threads), which is not counted

Ends with 1 where there is one, or where a line is not known. Arrays are told by the source, which also says what of OWN
is a warpgroup's own; whether copies have arrived is not looked at (`benchmarks/stages.py` does so for another kernel).
`--csrc` takes sources with a fault planted.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.barriers import Code, barriers, followers, kernels_of, reached
from benchmarks.stages import places, registers, uses
from kernels.build import chosen_specs
from kernels.native import building, specification
from kernels.native.specification import BuildSpec

ARCH, ENTRY = "sm_90a", -1
# The array that a source line names. Stages of K hold results and weights, those of V shares, once tiles are done.
ARRAYS = (
    (r"s\.limit\[", "limit"),
    (r"s\.q\[chunk\]", "q"),
    (r"stmatrix|store_transposed\(to", "p"),
    (r"s\.maximum\[|of\[0\]\[column\]", "maximum"),
    (r"s\.sum\[|m\.sum\[", "sum"),
    (r"final_maximum\[", "final_maximum"),
    (r"upper = sm90::load_16|given\[|taken\[|weights\[\w+ \* active|totals\[", "k"),
    (r"\bto\[[01]\] = make_float4|from\[0\], b = from", "k"),
    (r"token\[0\] = sm90::load_8|\bshares\[threadIdx", "v"),
    (r"s\.shares\[", "its shares"),
    (r"s\.weights\[", "its weights"),
)
OWN = {"p", "maximum"}
LINE, PLACE = re.compile(r'//## File "([^"]+)", line (\d+)'), re.compile(r"\s*/\*([0-9a-f]{4,5})\*/\s+\S")


@dataclass(frozen=True)
class Kernel:
    """`arrays`: of each instruction that touches shared memory, what its source line says of the place."""

    code: Code
    arrays: dict[int, set[str]]
    lines: list[list[tuple[str, int]]]  # of each instruction its file and line, and those that it was inlined at


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("schedule", help="operator/schedule")
    parser.add_argument("--csrc", type=Path, help="sources instead of kernels/csrc")
    return parser.parse_args()


def tool(name: str, *arguments: str, folder: Path) -> str:
    if not (path := shutil.which(name)):
        raise SystemExit(f"no {name} in the PATH")
    return subprocess.run([path, *arguments], cwd=folder, capture_output=True, text=True, check=True).stdout


def compiled(spec: BuildSpec, csrc: Path, folder: Path) -> dict[str, Kernel]:
    """The kernels of a schedule, compiled in `folder` from `csrc` with line numbers."""
    specification.CSRC = csrc
    building.compile_into(replace(spec, flags=(*spec.flags, "-lineinfo")), ARCH, folder)
    tool("cuobjdump", "-xelf", "all", "library.so", folder=folder)
    parts = [""]
    for cubin in folder.glob("*.cubin"):
        parts += re.split(r"\.section\s+\.text\.(\w+),", tool("nvdisasm", "-gi", "-c", cubin.name, folder=folder))[1:]
    lines = {name: chains(text) for name, text in zip(parts[1::2], parts[2::2], strict=True)}
    codes = kernels_of(folder / "library.so")
    return {name: Kernel(code, arrays_of(code, lines[name], folder), [lines[name][at] for at, _ in code])
            for name, code in codes.items()}  # fmt: skip


def chains(text: str) -> dict[int, list[tuple[str, int]]]:
    """Of each instruction by address its file and line, and those that it was inlined at."""
    found, chain, fresh = {}, [], False
    for line in text.splitlines():
        if match := LINE.search(line):
            chain, fresh = [*(chain if fresh else []), (match[1], int(match[2]))], True
        elif match := PLACE.match(line):
            fresh, found[int(match[1], 16)] = False, chain
    return found


def arrays_of(code: Code, lines: dict[int, list[tuple[str, int]]], folder: Path) -> dict[int, set[str]]:
    """The array of the innermost line that names one. A product reads Q or P: which is not told from its line."""
    sources = {str(path): path.read_text().splitlines() for path in folder.rglob("*.cu*") if "cubin" not in path.name}
    found = {}
    for i, (address, text) in enumerate(code):
        if not re.search(r"\b(LDS|STS|STSM|ST|HGMMA)\b", text) or text.startswith("@!PT"):
            continue
        said = [sources[file][line - 1] for file, line in lines[address] if file in sources]
        names = [array for line in said for pattern, array in ARRAYS if re.search(pattern, line)]
        if "HGMMA" in text:
            found[i] = {"q", "p"}
            continue
        if not names:
            raise SystemExit(f"{address:#x} {text}: of no array that is known here:\n" + "\n".join(said))
        found[i] = {names[0]}
    return found


def entered(code: Code) -> Callable[[int], list[int]]:
    """`followers`, with the first instruction behind ENTRY."""
    after = followers(code)
    return lambda i: [0] if i == ENTRY else after(i)


def phases(code: Code, sites: set[int]) -> list[set[int]]:
    """What can run behind the kernel's entry, and behind each barrier, before the next one."""
    return [reached({site}, sites, entered(code)) for site in (ENTRY, *sites)]


def meetings(kernel: Kernel, wide: set[int], narrow: set[int]) -> set[tuple[str, int, int]]:
    """(array, store, read) of what lies in one phase."""
    touching = kernel.arrays
    stores = places(kernel.code, r"\b(STS|STSM|ST)\b") & touching.keys()
    return {
        (array, store, read)
        for sites in (wide, narrow)
        for phase in phases(kernel.code, sites)
        for store in phase & stores
        for read in (phase & touching.keys()) - stores
        for array in touching[store] & touching[read]
        if sites is narrow or array not in OWN
    }


def others(code: Code, consumers: set[int]) -> int:
    """Barriers of the consumers to which a way leads that does not pass the branch of threads below 256."""
    after, branches = entered(code), set()
    for i, (_, text) in enumerate(code):
        if compare := re.match(r"ISETP\.GT\.U32\.AND (P\d), PT, R\d+, 0xff, PT", text):
            branches |= {j for j in range(i, i + 8) if code[j][1].startswith(f"@{compare[1]} BRA")}
    past = reached({ENTRY}, branches, after)
    taken = {place for branch in branches for place in after(branch) if place != branch + 1}
    return len((past | taken | reached(taken, set(), after)) & consumers)


def following(code: Code, starts: set[int], sites: set[int]) -> set[int]:
    """The barriers that can be next behind `starts`."""
    after = entered(code)
    return {place for i in starts | reached(starts, sites, after) for place in after(i)} & sites


def whole(kernel: Kernel) -> set[int]:
    """Barriers of the block and of its cluster; not the second half of one that shared memory is touched within."""
    code, after = kernel.code, followers(kernel.code)
    found = places(code, r"BAR\.SYNC\S* 0x0$|UCGABAR_WAIT")
    split = {i for i in places(code, r"UCGABAR_ARV") if reached({i}, found, after) & kernel.arrays.keys()}
    return found - following(code, split, found)


def forks(kernel: Kernel, sites: set[int]) -> int:
    """Barriers behind which more than one can be next, told by their source lines.

    The form of a barrier for a warp that diverged has no line of its own: it is the one behind the branch to it.
    """
    code, form = kernel.code, {}
    for i in sites - {0}:
        if branch := re.match(r"BRA\.DIV\S* \S+, (0x[0-9a-f]+)", code[i - 1][1]):
            there = next(j for j, (address, _) in enumerate(code) if address == int(branch[1], 16))
            form |= dict.fromkeys(following(code, {there}, sites), i)
    roles = following(code, {ENTRY}, sites)  # behind the first barrier threads take their roles
    nexts = {
        site: {tuple(kernel.lines[form.get(i, i)]) for i in following(code, {site}, sites)} for site in sites - roles
    }
    return sum(len(lines) > 1 for lines in nexts.values())


def faults(kernel: Kernel) -> tuple[dict[str, int], set[tuple[str, int, int]]]:
    code, after = kernel.code, followers(kernel.code)
    consumers = barriers(code, 3, 256)[1]
    perhaps = places(code, r"^@.*BAR")  # behind a condition, hence none to rely on
    block = (consumers | barriers(code, 4, 384)[1] | whole(kernel)) - perhaps
    narrow = block | places(code, r"^BAR\.\S+ R\d+, 0x80\b")
    products, waited = places(code, r"\bHGMMA"), places(code, r"WARPGROUP\.DEPBAR\.LE gsb0, 0x0")
    loads = places(code, r"\bLDS\b") & kernel.arrays.keys()
    if not (consumers and narrow - block and products and loads):
        raise SystemExit("no attention here: barriers of 256 and of 128 threads, products and loads are looked for")
    found = meetings(kernel, block, narrow)
    used = {load: uses(code, registers(code[load][1])) for load in loads}
    return {
        "meet": len(found),
        "open": sum(len(reached({load}, used[load], after) & block) > 0 for load in loads)
        + len(reached(products, waited, after) & narrow),
        "others": others(code, consumers),
        "forks": forks(kernel, block),
    }, found


def main(options: argparse.Namespace) -> int:
    (spec,), wrong = chosen_specs([options.schedule]), 0
    built = building.library_path(spec, ARCH)
    library = kernels_of(built) if built.is_file() and not options.csrc else {}
    with tempfile.TemporaryDirectory() as folder:
        kernels = compiled(spec, options.csrc or specification.CSRC, Path(folder))
    for name, kernel in kernels.items():
        counts, found = faults(kernel)
        wrong += sum(counts.values())
        same = f"{'the same as' if library[name] == kernel.code else 'NOT'} the library's" if library else "no library"
        print(
            f"{name}: {len(kernel.code)} instructions, {same}; {', '.join(f'{n} {what}' for what, n in counts.items())}"
        )
        for array, store, read in sorted(found)[:5]:
            print(f"  {array}: {kernel.code[store][0]:#x} and {kernel.code[read][0]:#x} in one phase")
        wrong += library.get(name, kernel.code) != kernel.code
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(parse()))
