"""The example server with a memory: what it has answered before (prompt and seed) takes FACTOR of the
time of a round.

remembering_server.py [--memory FACTOR] [options of small_openai_server.py]
"""

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3] / "docs" / "examples"))

import small_openai_server  # type: ignore[import-not-found]

ROUND_MS = 8.0


class Handler(small_openai_server.Handler):  # type: ignore[misc]
    factor = 1.0
    met: set[str] = set()  # noqa: RUF012  # of the whole process, as a cache of drafts is

    def _stream(self, body: dict[str, Any], chat: bool) -> None:
        asked = json.dumps([body.get("prompt") or body.get("messages"), body.get("seed")])
        self.options.round_ms = ROUND_MS * (self.factor if asked in self.met else 1.0)
        self.met.add(asked)
        super()._stream(body, chat)


small_openai_server.Handler = Handler

if __name__ == "__main__":
    while "--memory" in sys.argv:
        at = sys.argv.index("--memory")
        Handler.factor = float(sys.argv[at + 1])
        del sys.argv[at : at + 2]
    small_openai_server.main()
