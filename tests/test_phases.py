"""What `benchmarks/phases.py` finds in machine code written down here, and in attention's with faults planted."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.barriers import code_of
from benchmarks.phases import Kernel, faults

ROOT = Path(__file__).parents[1]
# 256 threads store, meet and read; the others, from 0x00d0 on, arrive at barrier 4.
SOUND = """
        /*0000*/                   BAR.SYNC.DEFER_BLOCKING 0x0 ;
        /*0010*/                   ISETP.GT.U32.AND P0, PT, R0, 0xff, PT ;
        /*0020*/              @P0 BRA 0x00d0 ;
        /*0030*/                   STS [R2], R4 ;
        /*0040*/                   BAR.SYNC.DEFER_BLOCKING R9, 0x80 ;
        /*0050*/                   HGMMA.64x48x16.F32 R24, R160, gdesc[UR24], R24 ;
        /*0060*/                   WARPGROUP.DEPBAR.LE gsb0, 0x0 ;
        /*0070*/                   BAR.SYNC.DEFER_BLOCKING 0x4, 0x180 ;
        /*0080*/                   STS [R5], R6 ;
        /*0090*/                   BAR.SYNC.DEFER_BLOCKING 0x3, 0x100 ;
        /*00a0*/                   LDS R7, [R8] ;
        /*00b0*/                   FADD R9, R7, R7 ;
        /*00c0*/                   EXIT ;
        /*00d0*/                   BAR.ARV 0x4, 0x180 ;
        /*00e0*/                   EXIT ;
        /*00f0*/                   BAR.SYNC.DEFER_BLOCKING 0x4, 0x180 ;
        /*0100*/                   BRA 0x0090 ;
"""
ARRAYS = {0x30: {"p"}, 0x50: {"q", "p"}, 0x80: {"k"}, 0xA0: {"k"}}


def found(text: str) -> dict[str, int]:
    code = code_of(text)
    arrays = {i: ARRAYS[address] for i, (address, _) in enumerate(code) if address in ARRAYS}
    return faults(Kernel(code, arrays, [[("", address)] for address, _ in code]))[0]


def test_stores_and_reads_on_two_sides_of_a_barrier_are_apart() -> None:
    assert found(SOUND) == {"meet": 0, "open": 0, "others": 0, "forks": 0}


@pytest.mark.parametrize(
    ("fault", "before", "after"),
    (
        ("meet", "BAR.SYNC.DEFER_BLOCKING R9", "@P1 BRA 0x0050 ;\n /*0048*/ BAR.SYNC.DEFER_BLOCKING R9"),
        ("meet", "BAR.SYNC.DEFER_BLOCKING 0x3", "@P1 BAR.SYNC.DEFER_BLOCKING 0x3"),
        ("meet", "/*00c0*/                   EXIT", "/*00c0*/               @P1 BRA 0x0080"),
        ("open", "FADD R9, R7, R7 ;\n", "BAR.SYNC.DEFER_BLOCKING 0x3, 0x100 ;\n /*00b8*/ FADD R9, R7, R7 ;\n"),
        ("open", "gsb0, 0x0", "gsb0, 0x1"),
        ("others", "BAR.ARV 0x4, 0x180", "BRA 0x0090"),
        ("others", "R0, 0xff, PT", "R0, 0x1ff, PT"),
        ("forks", "STS [R5], R6 ;", "STS [R5], R6 ;\n /*0088*/ @P1 BRA 0x00f0 ;\n"),
    ),
)  # fmt: skip
def test_each_fault_is_found(fault: str, before: str, after: str) -> None:
    text = SOUND.replace(before, after)
    assert text != SOUND and found(text)[fault] > 0


def test_half_a_barrier_of_the_cluster_separates_only_what_lies_before_its_other_half() -> None:
    """Stores, then both halves, then reads; then the first half before the stores."""
    both = SOUND.replace("/*00a0*/", "/*0098*/ UCGABAR_ARV ;\n /*009c*/ UCGABAR_WAIT ;\n /*00a0*/")
    both = both.replace("BAR.SYNC.DEFER_BLOCKING 0x3", "@P1 BAR.SYNC.DEFER_BLOCKING 0x3")
    early = both.replace("UCGABAR_ARV", "NOP").replace("/*0030*/", "/*0028*/ UCGABAR_ARV ;\n /*0030*/")
    assert found(both)["meet"] == 0 and found(early)["meet"] > 0


def planted(csrc: Path, file: str, *changes: tuple[str, str]) -> subprocess.CompletedProcess[str]:
    shutil.copytree(ROOT / "kernels" / "csrc", csrc)
    text = (csrc / "attention" / file).read_text()
    for before, after in changes:
        assert text.count(before) == 1, before
        text = text.replace(before, after)
    (csrc / "attention" / file).write_text(text)
    command = [sys.executable, "-m", "benchmarks.phases", "attention/grouped-cluster", "--csrc", str(csrc)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


BARRIER = "  sm90::named_barrier(3, kConsumers);\n"
MOVED = {
    "as they are": ("grouped.cu", ()),
    "results of the warpgroups": (
        "grouped.cu",
        ((BARRIER + "  const float* taken", "  const float* taken"), ("  float* given", BARRIER + "  float* given")),
    ),
    "weights of the merge": (
        "grouped.cu",
        ((BARRIER + "  const int wide", "  const int wide"), ("  // A warp per", BARRIER + "  // A warp per")),
    ),
    "results of a block of the cluster": (
        "cluster.cu",
        ((BARRIER + "}", "}"), ("  float* results", BARRIER + "  float* results")),
    ),
}


@pytest.mark.acceptance
@pytest.mark.parametrize("what", MOVED)
def test_a_barrier_of_attention_moved_before_the_stores_is_found(what: str, tmp_path: Path) -> None:
    if missing := [name for name in ("nvcc", "cuobjdump", "nvdisasm") if not shutil.which(name)]:
        pytest.skip(f"{missing} not in the PATH")
    file, changes = MOVED[what]
    done = planted(tmp_path / "csrc", file, *changes)
    said = re.findall(r"(\d+) meet", done.stdout)
    assert len(said) == 2 and (done.returncode, any(int(n) for n in said)) == (int(bool(changes)), bool(changes)), done
