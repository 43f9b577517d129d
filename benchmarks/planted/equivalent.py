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
_LATER = "the next launch begins when this one ends, which only costs time"
_BLOCKS = "blocks more, whose pieces are beyond the last"
_SIZE = "another size of block: every piece is some thread's as before"
_TEMPLATE = "a template for more pieces than there are: those beyond the last are left out"
_SHARED = "a byte of shared memory more than is used"
_EXACT = "the product of two 16-bit numbers has at most 22 bits: above FP32's smallest there is nothing to round"
_PAUSE = "how often, and how long apart, is looked for a rank that is late, which only costs time"
_VAIN = "read in vain and used by nobody: memcheck's to find, not the contract's"

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
    # publication/shared.cpp
    "02dc229f": _PAUSE,
    "04c16152": _PAUSE,
    "125e2e39": _PAUSE,
    "267e0bdc": _PAUSE,
    "544db13f": "flags are a byte further apart, and all still have room",
    "56e2cde8": _PAUSE,
    "68c60cf9": _CODE,
    "6bab1e0f": "who is lost is asked of the host's memory; of this word only whether it is 0",
    "6fbf28eb": _CODE,
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
    "22184a8e": "five thousandths of the last of 53 bits, which rounding takes back but for the smallest draws",
    "07f9f6e8": "the lowest bit of FP32 in a value that is rounded to 16 bits again before it is stored",
    "33b63c6e": _SMALL,
    "355f0b08": _SMALL,
    # gated_norm/heads.cu, rotary/heads.cu
    "0cc706c7": "five heads a block instead of four, each as before",
    "5d52b15a": _BOUNDS,
    "476115f5": _BOUNDS,
    "27c55b9b": _BOUNDS,
    "2222c9d7": _LATER,
    "2eae1dfb": _BOUNDS,
    "3882295a": _LATER,
    # output_gate/pieces.cu
    "40459184": _LATER,
    "76fb99eb": _BLOCKS,
    "95161a39": _SIZE,
    "e7abdd28": _EXACT,
    # block_conv/pieces.cu
    "01cd628f": _BLOCKS,
    "47ab84b6": _LATER,
    "53030250": _BLOCKS,
    "9c7e7755": _BLOCKS,
    "9fd3f049": _SIZE,
    # prefill_projection/decoded.cu, prefill_gated/product.cu
    "0734a605": _BLOCKS,
    "39f0bd64": _EXACT,
    "3abf794c": _SIZE,
    "3f9c21ab": _BLOCKS,
    "684e6bc2": _SHARED,
    "8d5516eb": "a row has an even number of pieces, so a block more never begins with its first",
    "a6e49a75": _SIZE,
    "b0c939c8": _BLOCKS,
    # norm/rows.cu
    "02a2134b": _TEMPLATE,
    "0deb7d06": _ALL_LANES,
    "11c58e2e": _ALL_LANES,
    "12466cfc": _VAIN,
    "14828fb5": _TEMPLATE,
    "2dcd2786": _TEMPLATE,
    "2e34c49a": _TEMPLATE,
    "3bdc95b6": _TEMPLATE,
    "57cdc1e1": _ROOM,
    # publication/peers.cu
    "0509b656": _TEMPLATE,
    "14e969b6": "the clock is looked at a turn earlier",
    "20719f3b": "who is lost is asked of the host's memory; of this word only whether it is 0",
    "229eb38d": _TEMPLATE,
    "24883d82": _VAIN,
    # projection/nvfp4_rows.cu, projection/nvfp4_stream.cu
    "0551a426": "lanes 17, 8, 4, 2 and 1 apart reach each other too: another order of an FP32 sum, within the bound",
    "05ccf60e": _ROOM,
    "05f24cc1": _SHARED,
    "06606adf": _ROOM,
    "066b9c26": _MASKED,
    "12faab41": "one word of a share is not waited for, but the other three come in the same store of 16 bytes",
    # selection/cluster.cu, selection/threshold.cu
    "008e346e": "the first logit is taken whatever this is",
    "0100c597": _WIDER,
    "07f52101": _WIDER,
    "079563d7": "no run has fewer than k + 1 logits at or above its bound, so there is nothing to clear",
    "0a6209ce": "every quad goes through the loader of tails, which gives the same values",
    "00f6f9f0": _ENTRY,
    "06a2d878": "the lanes of a group share the key and its rank, so any of them may say it",
    "083f89e2": _ENTRY,
    "0bb46a8f": "many threads write the same value instead of one",
    "0cb56dab": _MASK,
    # block_attention/cluster.cu
    "03c11b36": _ALL_LANES,
    "0528fca5": _LATER + "; what it writes lies behind the array, on the host's stack",
    "06da012f": _ENTRY,
    "072fc6e3": _MASK,
    "07d771aa": "after the first exchange both lanes of a pair hold its sum",
    "0818021f": "after the first exchange both lanes of a pair hold its maximum",
    "07e3a97a": "every value of a column finds the same maximum and sum, so any may write them",
    # attention/tiles.cuh, attention/grouped.cu
    "00332272": "queries of columns that no row owns: computed and never stored",
    "013e51d8": "a barrier that nobody has used yet lets its first waiter through, and later rounds wait as before",
    "0209017f": "undefined, so the compiler ends the loop before it: machine code as before but for the order of an or",
    "82b815a1": _MASK,
    "845a8874": "the columns behind the last row: " + _VAIN,
    "062b92c5": "an element beyond the four would be written, which is undefined, so the compiler ends the loop at two",
    # gdn/shared.cu, gdn/joint.cu
    "0369ce0c": _MASK,
    "00f5855b": "one row more than there are, stored where nothing is read before it is written again",
    "043caa06": _HINT,
    "066a438a": _HINT,
    "06713867": _HINT,
    # shortlist/codes.cu
    "03245158": "the same threads meet at a barrier of another number, which nobody else uses",
    "0c34084e": _MASKED,
    "0ca8861c": _MASK,
    "0ec96718": "another thread sets it before all meet",
    "0f5643f7": "another block counts the call; a device has more than one",
    "113305f8": "a lane 32 away is the lane itself, whose own is the largest already",
    "116d25aa": _ROOM,
    "116e5a85": "many threads make the barriers alike before all meet",
    # walk/path.h, walk/path.cu
    "481842af": "two blocks write the same values",
    "360e5841": "some race is above 0 or is no number, so the first choice is always replaced",
    "8e1fcce0": _WIDER,
    "974b8829": _WIDER,
    # accept/verdict.cu, commit/rows.cu
    "13e374c8": _SIZE,
    "2f2fe8c0": _SHARED,
    "5c44754f": _SIZE,
    # commit/rows.h, commit/rows.cpp
    "160bb1b7": "addresses beyond the last ring are copied in vain and overwritten by the slots, or never read",
    "5a5a17cf": "without a window a block more finds nothing to copy",
    "6b5eed60": _WIDER,
    "a2dfdde5": "another code for what the guard refuses",
}
