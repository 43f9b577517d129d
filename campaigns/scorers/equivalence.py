"""The worker that asks math-verify, one JSON line in, one out: `python -m campaigns.scorers.equivalence`.

It has no timeouts of its own: whoever started it ends it.
"""

from __future__ import annotations

import json
import logging
import re
import sys

from campaigns.scorers.answer import Equal

_PERCENT = re.compile(r"\s*\\?%")
_BASE = re.compile(r"^[0-9a-zA-Z]+_\{?(\d+)\}?$")


def equivalent(wanted: str, given: str) -> Equal:
    """Whether two answers, LaTeX without its box or plain numbers, mean the same.

    Two rules of MATH's own grader that math-verify lacks: the percent sign is a unit, which an answer may have or not,
    and a number in another base is another number.
    """
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

    wanted, given = (_PERCENT.sub("", text) for text in (wanted, given))
    bases = {match[1] for text in (wanted, given) if (match := _BASE.match(text.replace(" ", "")))}
    if len(bases) > 1:
        return Equal.NO
    forms = [LatexExtractionConfig(), ExprExtractionConfig()]
    try:
        gold, answer = (parse(f"\\boxed{{{text}}}", forms, parsing_timeout=None) for text in (wanted, given))
        return Equal.YES if verify(gold, answer, timeout_seconds=None) else Equal.NO
    except Exception:  # whatever sympy raises on odd LaTeX: no verdict
        return Equal.ERROR


def main() -> None:
    logging.disable(logging.CRITICAL)  # math-verify warns about the missing timeouts at every call
    for line in sys.stdin:
        print(equivalent(**json.loads(line)), flush=True)


if __name__ == "__main__":
    main()
