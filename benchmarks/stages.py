"""Whether stages of bulk copies are read behind their arrival and given back behind their use, in machine code.

    python -m benchmarks.stages build/kernels/sm_90a/projection_nvfp4_stream_alone.so [--threads 544]

racecheck reports a race between the bulk copy into a stage and the reads of it (docs/examples/gate_h200.md), since it
does not follow the transaction barrier that says a copy has landed. This walks the control flow of every kernel of the
library, as `benchmarks/barriers.py` does, and counts what is on ways that must not be:

  unchecked   a stage is read, and no phase of its barrier was found complete since the kernel began, since the stage
              before was given back, or since a check failed
  kept        the next stage is waited for, and the last one was not given back
  unused      a stage is given back before a load from it was used: a barrier does not wait for loads
  refilled    a copy into a stage in use follows another past no barrier that says it was given back

Ends with 1 where there is one. It says nothing of addresses and parities. Giving back is behind a condition, since
nobody waits for the last stages, that must be that of the copies: in csrc/projection/nvfp4_stream.cu
`unit + kStages < end`, against copies of units from begin + kStages on.
"""

import argparse
import re
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.barriers import Code, followers, kernels_of, reached


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", type=Path, help="a library or cubin")
    parser.add_argument("--threads", type=int, default=544, help="that meet at a stage's return (default: %(default)s)")
    return parser.parse_args()


def places(code: Code, pattern: str) -> set[int]:
    return {i for i, (_, text) in enumerate(code) if re.search(pattern, text)}


def registers(text: str) -> set[int]:
    """What a load from shared memory writes."""
    wide, first = re.match(r"(?:@\S+ )?LDS(\S*) R(\d+)", text).groups()
    count = 4 if ".128" in wide else 2 if ".64" in wide else 1
    return set(range(int(first), int(first) + count))


def uses(code: Code, written: set[int]) -> set[int]:
    """Instructions that read one of the registers: a load's registers come together."""
    found = set()
    for i, (_, text) in enumerate(code):
        sources = text.partition(",")[2]
        read = {int(number) for number in re.findall(r"\bR(\d+)", sources)}
        if re.search(r"\bHMMA", text):  # an operand A is four registers, B two
            a, b = (int(number) for number in re.findall(r"\bR(\d+)", sources)[:2])
            read |= {*range(a, a + 4), *range(b, b + 2)}
        if read & written:
            found.add(i)
    return found


def one_lane(code: Code, after: Callable[[int], list[int]]) -> Callable[[int], list[int]]:
    """Without the way back of `BRA.U.ANY`, which repeats a copy for further lanes: one lane issues them."""
    return lambda i: [i + 1] if "BRA.U.ANY" in code[i][1] else after(i)


def faults(code: Code, threads: int) -> dict[str, int]:
    """The ways that must not be, by the names above."""
    after, count = followers(code), f"{threads:#x}"
    checks, every = places(code, r"SYNCS\.PHASECHK"), places(code, r"\bBAR\.")
    gives = places(code, rf"BAR\.ARV R\d+, {count}$")
    loads = reached(checks, every | checks, after) & places(code, r"\bLDS")
    failed = {i for check in checks for i in after(check) if re.match(r"@!P\d BRA", code[i][1])}
    retried = {after(i)[0] for i in failed}
    diverged = places(code, r"BAR\.SYNC\S* R(\d+), R\1$")  # with its operands packed into a register
    awaited = places(code, rf"BAR\.SYNC\S* R\d+, {count}$")
    awaited |= {i for i in diverged if any(text.endswith(f" {count}") for _, text in code[i - 7 : i])}
    copies = places(code, r"\bUBLKCP")
    again = reached(awaited, awaited, after) & copies
    unchecked = reached({-1, *gives, *(retried - checks)}, checks, lambda i: after(i) if i >= 0 else [0])
    if not (checks and gives and loads and awaited and again):
        raise SystemExit(
            "no stages here: a check of a phase, a read, a giving back and a copy behind it are looked for"
        )
    return {
        "unchecked": len((unchecked | retried) & loads),
        "kept": len(reached(loads, gives, after) & checks),
        "unused": sum(len(reached({load}, uses(code, registers(code[load][1])), after) & gives) for load in loads),
        "refilled": len(reached(copies, awaited, one_lane(code, after)) & again),
    }


def main(options: argparse.Namespace) -> int:
    wrong = 0
    for name, code in kernels_of(options.library).items():
        found = faults(code, options.threads)
        wrong += sum(found.values())
        print(f"{name}: {len(code)} instructions; {', '.join(f'{ways} {what}' for what, ways in found.items())}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(parse()))
