"""The process that scores texts, one JSON line in, one out: `python -m campaigns.scorers.worker`.

LaTeX, patterns of a JSON schema and the search for matching tool calls can all be made to take for ever. There are no
timeouts here: whoever started the process ends it.
"""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import asdict

from campaigns.corpora.case import Case
from campaigns.scorers.equivalence import equivalent
from campaigns.scorers.scoring import score_text
from campaigns.scorers.verdict import Answer, Judged, Verdict

READY = "ready"


def main() -> None:
    from campaigns.scorers.schema import schema_complaint  # what whoever starts this process need not pay

    logging.disable(logging.CRITICAL)  # math-verify warns about the missing timeouts at every call
    equivalent("1", "2"), schema_complaint({}, 1)  # what they import and prepare is outside anybody's timeout
    print(READY, flush=True)
    for line in sys.stdin:
        told = json.loads(line)
        print(json.dumps(asdict(_verdict(Case.from_json(told["case"]), Answer(**told["answer"])))), flush=True)


def _verdict(case: Case, answer: Answer) -> Verdict:
    try:
        return score_text(case, answer)
    except Exception as error:  # of a library, on input that nobody thought of: no verdict, and the next answer goes on
        return Verdict(case.dataset, Judged.ERROR, {"reason": f"{type(error).__name__}: {error}"[:200]})


if __name__ == "__main__":
    main()
