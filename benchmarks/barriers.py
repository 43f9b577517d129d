"""Whether a named barrier stands between stores to shared memory and the loads behind it, in a kernel's machine code.

    python benchmarks/barriers.py build/kernels/sm_90a/attention_grouped.so --barrier 3 --threads 256

racecheck reports pairs that such a barrier separates (docs/examples/gate_h200.md). This walks the control flow that
`cuobjdump -sass` prints: from every store between two of the barriers, over every branch, is there a way to a load
between the second and the third, or from those loads back, that passes no such barrier? And from a store to global
memory to an atomic operation, by which a thread tells other blocks that all of its own have stored? Ends with 1 where
there is one.
It says nothing of addresses, so a pair that never meets may be listed; what it calls separated is. `cuobjdump` and
`nvdisasm` must be in the PATH (CUDA's toolkit and Triton's package have them).
"""

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

INSTRUCTION = re.compile(r"\s*/\*([0-9a-f]{4,5})\*/\s+(.*?) ;")
BRANCH = re.compile(r"BRA\S*\s+.*?(0x[0-9a-f]+)$")
Code = list[tuple[int, str]]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", type=Path, help="a library or cubin")
    parser.add_argument("--kernel", default="", help="only kernels whose names contain this")
    parser.add_argument("--barrier", type=int, default=3)
    parser.add_argument("--threads", type=int, default=256)
    return parser.parse_args()


def code_of(text: str) -> Code:
    """(address, instruction) in order."""
    found = (INSTRUCTION.match(line) for line in text.splitlines())
    return [(int(match[1], 16), match[2]) for match in found if match]


def kernels_of(library: Path) -> dict[str, Code]:
    """What `cuobjdump` prints of every kernel of a library."""
    if not (tool := shutil.which("cuobjdump")) or not library.is_file():
        raise SystemExit(f"{library} is no file" if tool else "no cuobjdump in the PATH")
    printed = subprocess.run([tool, "-sass", str(library)], capture_output=True, text=True, check=True).stdout
    parts = re.split(r"Function : (\S+)", printed)[1:]
    return {name: code_of(text) for name, text in zip(parts[::2], parts[1::2], strict=True)}


def barriers(code: Code, barrier: int, threads: int) -> tuple[list[int], set[int]]:
    """Places of the barrier, and all with its form for warps that diverged: its operands come in a register."""
    direct = [i for i, (_, text) in enumerate(code) if re.search(rf"BAR\.SYNC\S*\s+{barrier:#x}, {threads:#x}$", text)]
    return direct, {*direct, *(i for i in range(len(code)) if packed(code, i) == (barrier, threads))}


def packed(code: Code, i: int) -> tuple[int, int] | None:
    """Barrier and threads of `BAR.SYNC R4, R4` at `i`, whose register was made of two others before it."""
    if not re.search(r"BAR\.SYNC\S*\s+(R\d+), \1$", code[i][1]):
        return None
    before = [text for _, text in code[max(0, i - 40) : i]][::-1]
    made = next(filter(None, (re.match(r"LOP3\.LUT (R\d+), \1, 0xf, (R\d+)", text) for text in before)), None)
    if made is None:
        return None
    given = [rf"(?:IMAD\.)?MOV\S* {register}, (?:RZ, RZ, )?(0x[0-9a-f]+)" for register in (made[2], made[1])]
    last = [next(filter(None, (re.match(pattern, text) for text in before)), None) for pattern in given]
    return (int(last[0][1], 16), int(last[1][1], 16)) if all(last) else None


def followers(code: Code) -> Callable[[int], list[int]]:
    places = {address: i for i, (address, _) in enumerate(code)}

    def after(i: int) -> list[int]:
        text = code[i][1]
        perhaps, bare = text.startswith("@"), text.split(None, 1)[1] if text.startswith("@") else text
        onward = [i + 1] if i + 1 < len(code) else []
        if bare.startswith("EXIT"):
            return onward if perhaps else []
        if branch := BRANCH.match(bare):
            stays = perhaps or bare.startswith(("BRA.DIV", "BRA.CONV"))
            return [places[int(branch[1], 16)], *(onward if stays else [])]
        if call := re.match(r"CALL\S*\s+(0x[0-9a-f]+)$", bare):  # its return is the instruction behind it
            return [places[int(call[1], 16)], *onward]
        assert not bare.startswith(("BRX", "JMX", "CALL")), f"{text}: control flow that is not followed here"
        return [] if bare.startswith("RET") else onward

    return after


def reached(starts: Iterable[int], stops: set[int], after: Callable[[int], list[int]]) -> set[int]:
    """What may run after `starts` before any of `stops`."""
    seen: set[int] = set()
    todo = [follower for start in starts for follower in after(start)]
    while todo:
        place = todo.pop()
        if place not in seen and place not in stops:
            seen.add(place)
            todo += after(place)
    return seen


def main(options: argparse.Namespace) -> int:
    chosen = {name: code for name, code in kernels_of(options.library).items() if options.kernel in name}
    if not chosen:
        raise SystemExit(f"no kernel of {options.library} has {options.kernel!r} in its name")
    return max([judge(code, options.barrier, options.threads) for code in chosen.values()])


def judge(code: Code, barrier: int, threads: int) -> int:
    direct, every = barriers(code, barrier, threads)
    if not direct:
        print(f"no BAR.SYNC {barrier}, {threads} here")
        return 1
    after, wrong = followers(code), 0
    print(f"{len(code)} instructions, {len(direct)} barriers and {len(every) - len(direct)} for warps that diverged")
    for before, here, behind in zip([0, *direct], direct, [*direct[1:], len(code)], strict=False):
        stores = {i for i in range(before, here) if "STS" in code[i][1]}
        loads = {i for i in range(here, behind) if "LDS" in code[i][1]}
        ways = len(reached(stores, every, after) & loads), len(reached(loads, every, after) & stores)
        wrong += sum(ways)
        counts = f"{len(stores)} stores before, {len(loads)} loads behind"
        print(f"{code[here][0]:#x}: {counts}; past no barrier there {ways[0]}, back {ways[1]}")
    stores = {i for i, (_, text) in enumerate(code) if "STG" in text}
    told = reached(stores, every, after) & {i for i, (_, text) in enumerate(code) if "ATOM" in text or "RED.E" in text}
    print(f"{len(stores)} global stores; past no barrier to an atomic operation {len(told)}")
    return int(wrong + len(told) > 0)


if __name__ == "__main__":
    sys.exit(main(parse()))
