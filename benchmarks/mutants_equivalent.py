"""Mutants of benchmarks/mutants.py that change no result which a contract speaks of, and why."""

_ENTRY = "an entry's own guard: the schedule's guard, and problem_of before it, let nothing through that it would meet"
_CODE = "any code but 0 is the same exception"
_ROOM = "scratch on the stack grows by what nobody reads"
_EMPTY_TAIL = "one pass more, over no value: nothing is loaded, nothing is stored"
_LAST = "the last of equals: both sides give the same value where the comparison changes"
_AGAIN = "what is written too much is written again by the next eight, or cut off by the bound beside it"
_MASKED = "a lane that no row or column owns: computed and never stored"
_SMALL = "below the last place of FP32"
_BOUNDS = "a promise to the compiler about a block's size: other registers, no other operations"
_HINT = "a prefetch of other lines: a hint, and what is asked for is read again where it lies"
_ALL_LANES = "after the exchanges every lane holds the sum, so another may hand it on"
_MASK = "the mask says which lanes must arrive, and all do"
_WIDER = "a block could take more than it is given"

EQUIVALENT: dict[str, str] = {
    # selection/scan.cpp
    "0b633204": _ENTRY,
    "2f0ef548": _ENTRY,
    "3ebe1335": _CODE,
    # norm/rows.cpp
    "017b9cfc": _EMPTY_TAIL,
    "0d4e829e": _EMPTY_TAIL,
    "560347c5": _ROOM,
    "63295af6": "an element beyond the eight would be read, which is undefined, so the compiler ends the loop at eight",
    # gated_norm/heads.cpp
    "2dcadd80": _ROOM,
    "455af12a": _CODE,
    "4c26fe88": _AGAIN,
    "93bd3300": _EMPTY_TAIL,
    "a83f547a": _AGAIN,
    # projection/columns.cpp
    "23fcd4a3": _CODE,
    "808c32ec": _CODE,
    # gated/columns.cpp
    "6796befa": _CODE,
    "79903647": _CODE,
    "c5921856": _CODE,
    "212a0ba3": "a weight with a scale a row is finished by that scale: the divisor beside it is not read",
    # gdn/recurrence.cpp
    "034f79ca": _ROOM,
    "1820ed14": _ROOM,
    "1608d24a": _LAST,
    "1d067c93": _MASKED,
    # include
    "00e91fa7": "the last whole eight go through the loader of tails, which gives the same values",
    "42b71083": "the last whole eight go through the loader of tails, which gives the same values",
    "07f9f6e8": "the lowest bit of FP32 in a value that is rounded to 16 bits again before it is stored",
    "33b63c6e": _SMALL,
    "355f0b08": _SMALL,
    # gated_norm/heads.cu, rotary/heads.cu
    "0cc706c7": "five heads a block instead of four, each as before",
    "5d52b15a": _BOUNDS,
    "476115f5": _BOUNDS,
    "27c55b9b": _BOUNDS,
    "2222c9d7": "the next launch begins when this one ends, which only costs time",
    # block_conv/pieces.cu
    "53030250": "one block more, whose channels are beyond the last",
    # norm/rows.cu
    "11c58e2e": _ALL_LANES,
    "12466cfc": "four values behind the scale are read in vain: memcheck's to find, not the contract's",
    # projection/nvfp4_rows.cu, projection/nvfp4_stream.cu
    "0551a426": "lanes 17, 8, 4, 2 and 1 apart reach each other too: another order of an FP32 sum, within the bound",
    "066b9c26": _MASKED,
    "12faab41": "one word of a share is not waited for, but the other three come in the same store of 16 bytes",
    # selection/cluster.cu, selection/threshold.cu
    "008e346e": "the first logit is taken whatever this is",
    "0100c597": _WIDER,
    "07f52101": _WIDER,
    "079563d7": "no run has fewer than k + 1 logits at or above its bound, so there is nothing to clear",
    "0a6209ce": "every quad goes through the loader of tails, which gives the same values",
    "00f6f9f0": _ENTRY,
    "083f89e2": _ENTRY,
    "0bb46a8f": "many threads write the same value instead of one",
    "0cb56dab": _MASK,
    # block_attention/cluster.cu
    "03c11b36": _ALL_LANES,
    "06da012f": _ENTRY,
    "072fc6e3": _MASK,
    "07d771aa": "after the first exchange both lanes of a pair hold its sum",
    "07e3a97a": "every value of a column finds the same maximum and sum, so any may write them",
    # attention/grouped.cu
    "0040063f": _MASK,
    # gdn/shared.cu, gdn/joint.cu
    "00f5855b": "one row more than there are, stored where nothing is read before it is written again",
    "043caa06": _HINT,
    "066a438a": _HINT,
    "06713867": _HINT,
    # walk/path.h
    "360e5841": "some race is above 0 or is no number, so the first choice is always replaced",
    "8e1fcce0": _WIDER,
    "974b8829": _WIDER,
    # commit/rows.h, commit/rows.cpp
    "160bb1b7": "addresses beyond the last ring are copied in vain and overwritten by the slots, or never read",
    "5a5a17cf": "without a window a block more finds nothing to copy",
    "6b5eed60": _WIDER,
    "a2dfdde5": "another code for what the guard refuses",
}
