"""What `benchmarks/barriers.py` calls separated by a barrier, on machine code written down here."""

from benchmarks.barriers import code_of, judge

SEPARATED = """
        /*0000*/                   STS [R2], R4 ;
        /*0010*/              @!P0 BRA 0x0020 ;
        /*0020*/                   BRA.DIV UR5, 0x60 ;
        /*0030*/                   BAR.SYNC.DEFER_BLOCKING 0x3, 0x100 ;
        /*0040*/                   LDS R4, [R4] ;
        /*0050*/                   EXIT ;
        /*0060*/                   MOV R17, 0x3 ;
        /*0070*/                   IMAD.MOV.U32 R21, RZ, RZ, 0x100 ;
        /*0080*/                   SHF.L.U32 R21, R21, 0x10, RZ ;
        /*0090*/                   LOP3.LUT R21, R21, 0xf, R17, 0xf8, !PT ;
        /*00a0*/                   BAR.SYNC.DEFER_BLOCKING R21, R21 ;
        /*00b0*/                   BRA 0x40 ;
"""


def test_a_barrier_on_every_way_separates() -> None:
    assert judge(code_of(SEPARATED), 3, 256) == 0


def test_a_way_round_the_barrier_is_found() -> None:
    assert judge(code_of(SEPARATED.replace("@!P0 BRA 0x0020", "@!P0 BRA 0x0040")), 3, 256) == 1


def test_a_warp_that_diverged_needs_the_barrier_too() -> None:
    assert judge(code_of(SEPARATED.replace("MOV R17, 0x3", "MOV R17, 0x4")), 3, 256) == 1


def test_a_loop_back_to_the_stores_is_found() -> None:
    assert judge(code_of(SEPARATED.replace("EXIT", "BRA 0x0000")), 3, 256) == 1


def test_another_barrier_is_no_barrier() -> None:
    assert judge(code_of(SEPARATED), 2, 256) == 1


TOLD = """
        /*0000*/                   STG.E.64 desc[UR4][R2.64], R4 ;
        /*0010*/                   BAR.SYNC.DEFER_BLOCKING 0x3, 0x100 ;
        /*0020*/               @P0 EXIT ;
        /*0030*/                   ATOMG.E.ADD.STRONG.GPU PT, R2, desc[UR4][R2.64], R5 ;
        /*0040*/                   BAR.SYNC.DEFER_BLOCKING 0x3, 0x100 ;
        /*0050*/                   EXIT ;
"""


def test_other_blocks_are_told_only_when_all_threads_have_stored() -> None:
    assert judge(code_of(TOLD), 3, 256) == 0
    early = TOLD.replace("BAR.SYNC.DEFER_BLOCKING 0x3, 0x100", "MEMBAR.SC.GPU", 1)
    assert judge(code_of(early), 3, 256) == 1
