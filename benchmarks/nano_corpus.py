"""How the embedded checkpoint answers the embedded corpus: natural ends and accepted drafts, dataset by dataset.

    python benchmarks/nano_corpus.py http://127.0.0.1:8000 [--seed N]

Speaks to a running server, as a campaign does, and prints a Markdown table. Answers are not scored here: `campaign`
does that.
"""

from __future__ import annotations

import argparse
import json
import urllib.request
from collections import defaultdict
from typing import Any

from campaigns.corpora.embedded import embedded

SAMPLING = {"temperature": 1.0, "top_k": 20, "top_p": 0.95, "return_round_details": True}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base_url", metavar="http://HOST:PORT", help="a server that serves the embedded checkpoint")
    parser.add_argument("--seed", type=int, default=0, help="of every answer (default: %(default)s)")
    options = parser.parse_args()
    answers: dict[str, list[Any]] = defaultdict(list)
    for case in embedded().cases:
        body = json.loads(case.body()) | SAMPLING | {"seed": options.seed}
        answers[case.dataset].append(ask(options.base_url + "/v1/chat/completions", body))
    print("| dataset | answers | natural end | tokens | rounds | accepted per round |\n|---|---:|---:|---:|---:|---:|")
    for dataset, replies in answers.items():
        print_row(dataset, replies)
    print_row("all", [reply for replies in answers.values() for reply in replies])


def ask(url: str, body: dict[str, Any]) -> Any:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode())) as response:
            return json.load(response)
    except (OSError, ValueError) as error:
        raise SystemExit(f"{url} does not answer ({error}): start a server and name its address") from error


def print_row(name: str, replies: list[Any]) -> None:
    rounds = [r for reply in replies for r in reply["metrics"]["rounds"] if r["kind"] == "spec"]
    ended = sum(reply["choices"][0]["finish_reason"] != "length" for reply in replies)
    tokens = sum(reply["usage"]["completion_tokens"] for reply in replies) / len(replies)
    accepted = sum(r["accepted"] for r in rounds) / max(1, len(rounds))
    print(f"| {name} | {len(replies)} | {ended} | {tokens:.0f} | {len(rounds)} | {accepted:.2f} |", flush=True)


if __name__ == "__main__":
    main()
