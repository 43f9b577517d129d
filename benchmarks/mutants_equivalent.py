"""Mutants of benchmarks/mutants.py that change no result which a contract speaks of, and why."""

_ENTRY = "an entry's own guard: the schedule's guard, and problem_of before it, let nothing through that it would meet"
_CODE = "any code but 0 is the same exception"
_ROOM = "scratch on the stack grows by what nobody reads"
_EMPTY_TAIL = "one pass more, over no value: nothing is loaded, nothing is stored"
_LAST = "the last of equals: both sides give the same value where the comparison changes"
_UNUSED = "the distance between columns, where there is one column"
_AGAIN = "what is written too much is written again by the next eight, or cut off by the bound beside it"
_ENDLESS = "a tile of no rows: a loop without effect, which the compiler may drop and does"
_MASKED = "a lane that no row or column owns: computed and never stored"
_SMALL = "below the last place of FP32"

EQUIVALENT: dict[str, str] = {
    # selection/scan.cpp
    "0b633204": _ENTRY,
    "2f0ef548": _ENTRY,
    "3ebe1335": _CODE,
    # norm/rows.cpp
    "017b9cfc": _EMPTY_TAIL,
    "0d4e829e": _EMPTY_TAIL,
    "40694a5a": _LAST,
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
    "290447bf": _ENDLESS,
    "5549ad1d": _UNUSED,
    "808c32ec": _CODE,
    # gated/columns.cpp
    "173dca40": _UNUSED,
    "2ebbb6da": _UNUSED,
    "6796befa": _CODE,
    "79903647": _CODE,
    "81473cee": _ENDLESS,
    "822dbb95": _ROOM,
    "c5921856": _CODE,
    # attention/paged.cpp
    "1997e517": _LAST,
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
}
