"""EvalPlus's enhanced tests: the file that carries results, and the one comparison that has to be mended.

Its scripts compare numbers with `np.allclose`, which broadcasts: an empty list is close to every number, so that
`return []` passes whole sets of tests. EvalPlus's own runner compares lengths first; here shapes have to be equal.
"""

from __future__ import annotations

from campaigns.corpora.source import Source
from campaigns.errors import UsageError

_CLOSE = """def _close(out, exp, **near):
    import numpy
    out, exp = numpy.asarray(out), numpy.asarray(exp)
    return out.shape == exp.shape and numpy.allclose(out, exp, **near)

"""


def check_form(source: Source) -> None:
    """Of EvalPlus's two files only the one in the dataset's original form has expected results."""
    if "plus_input" in source.records[0]:
        raise UsageError(
            f"{source.name}: this file of EvalPlus has inputs without expected results; "
            "give the file whose name ends in -OriginFmt.jsonl.gz"
        )


def mended(script: str) -> str:
    return _CLOSE + script.replace("np.allclose(", "_close(") if "np.allclose(" in script else script
