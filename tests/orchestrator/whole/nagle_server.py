"""The example server as most small servers are: Nagle's algorithm left on. It also says when it wrote each chunk.

    nagle_server.py PORT TRUTH [options of small_openai_server.py]

appends one JSON line per answer to TRUTH: CLOCK_MONOTONIC stamps of its content chunks, each taken before its write.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3] / "docs" / "examples"))

import small_openai_server  # type: ignore[import-not-found]

TRUTH = Path(sys.argv.pop(2))


class Handler(small_openai_server.Handler):  # type: ignore[misc]
    disable_nagle_algorithm = False

    def _stream(self, body: dict[str, Any], chat: bool) -> None:
        self.stamps: list[int] = []
        super()._stream(body, chat)
        with TRUTH.open("a") as file:
            file.write(json.dumps(self.stamps) + "\n")

    def _event(self, value: dict[str, Any]) -> None:
        if value["choices"]:
            self.stamps.append(time.monotonic_ns())
        super()._event(value)


small_openai_server.Handler = Handler

if __name__ == "__main__":
    small_openai_server.main()
