"""python -m campaigns.simulate [--campaigns N] [--seed N] prints the tables of docs/statistics.md."""

from __future__ import annotations

import argparse

from campaigns.simulate.tables import tables


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m campaigns.simulate", description="prints docs/statistics.md's tables"
    )
    parser.add_argument("--campaigns", type=int, default=2000, help="per row (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for part in tables(options.campaigns, options.seed):
        print(part, flush=True)


if __name__ == "__main__":
    main()
