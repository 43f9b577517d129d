"""What `benchmarks/stages.py` finds in machine code written down here: a consumer and, from 0x80 on, a producer."""

import pytest

from benchmarks.barriers import code_of
from benchmarks.stages import faults

SOUND = """
        /*0000*/              @P3 BRA 0x0080 ;
        /*0010*/                   SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [R1+URZ], R2 ;
        /*0020*/              @!P0 BRA 0x0010 ;
        /*0030*/                   LDS.128 R8, [R3] ;
        /*0040*/                   HMMA.16816.F32 R20, R8, R12, R20 ;
        /*0050*/              @!P1 BAR.ARV R4, 0x220 ;
        /*0060*/              @P2 BRA 0x0010 ;
        /*0070*/                   EXIT ;
        /*0080*/                   UBLKCP.S.G [UR6], [UR8], UR5 ;
        /*0090*/                   BAR.SYNC.DEFER_BLOCKING R4, 0x220 ;
        /*00a0*/                   UBLKCP.S.G [UR6], [UR8], UR5 ;
        /*00b0*/              @P5 BRA.U.ANY 0x00a0 ;
        /*00c0*/              @P4 BRA 0x0090 ;
        /*00d0*/                   EXIT ;
"""
NONE = {"unchecked": 0, "kept": 0, "unused": 0, "refilled": 0}


def test_stages_read_behind_their_check_and_given_back_behind_their_use_are_sound() -> None:
    assert faults(code_of(SOUND), 544) == NONE


@pytest.mark.parametrize(
    ("fault", "before", "after"),
    (
        ("unchecked", "@!P0 BRA 0x0010", "@!P0 BRA 0x0030"),
        ("unchecked", "@P3 BRA 0x0080", "@P3 BRA 0x0030"),
        ("unchecked", "@P2 BRA 0x0010", "@P2 BRA 0x0030"),
        ("kept", "R20, R8, R12, R20 ;", "R20, R8, R12, R20 ;\n /*0048*/ @P6 BRA 0x0060 ;"),
        ("unused", "HMMA.16816.F32 R20, R8, R12, R20", "NOP"),
        ("refilled", "@P4 BRA 0x0090", "@P4 BRA 0x00a0"),
        ("refilled", "/*0090*/     ", "/*0088*/ @P6 BRA 0x00a0 ;\n /*0090*/     "),
    ),
)  # fmt: skip
def test_each_fault_is_found(fault: str, before: str, after: str) -> None:
    found = faults(code_of(SOUND.replace(before, after)), 544)
    assert {name for name, ways in found.items() if ways} == {fault}


def test_a_barrier_of_other_threads_gives_nothing_back() -> None:
    with pytest.raises(SystemExit, match="no stages here"):
        faults(code_of(SOUND), 512)
