"""`python -m runtime.training`: make a checkpoint, or measure one.

`train --preset nano|trial --output DIR` writes the vocabulary, trains target and drafter and writes the checkpoint.
It keeps its state under `--work` and continues there when it is started again. `evaluate --model DIR --preset …`
prints natural ends, solved exercises and accepted drafts per kind of held-out template.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from runtime.training.presets import PRESETS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m runtime.training", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    _add_train(commands.add_parser("train", help="make a checkpoint"))
    measure = commands.add_parser("evaluate", help="measure a checkpoint on held-out templates")
    measure.add_argument("--model", type=Path, required=True)
    measure.add_argument("--preset", choices=sorted(PRESETS), required=True)
    measure.add_argument("--kinds", nargs="+", help="default: the preset's")
    measure.add_argument("--per-kind", type=int, default=30)
    measure.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    return _train(options) if options.command == "train" else _evaluate(options)


def _add_train(train: argparse.ArgumentParser) -> None:
    train.add_argument("--preset", choices=sorted(PRESETS), required=True)
    train.add_argument("--output", type=Path, required=True, help="folder of the finished checkpoint")
    train.add_argument("--work", type=Path, required=True, help="folder of the state to resume from")
    train.add_argument("--device", default="cpu")
    train.add_argument("--threads", type=int, default=2)
    train.add_argument("--workers", type=int, default=0, help="processes that generate text; 0: in this process")
    train.add_argument("--seed", type=int, default=0)
    train.add_argument("--steps-scale", type=float, default=1.0, help="shortens every schedule, for a trial")


def _train(options: argparse.Namespace) -> int:
    from runtime.training.run import Job, train_checkpoint

    values = {name: value for name, value in vars(options).items() if name not in ("command", "preset")}
    train_checkpoint(Job(preset=PRESETS[options.preset], **values))
    return 0


def _evaluate(options: argparse.Namespace) -> int:
    from runtime.training.evaluate import held_out_outcomes, print_table, table

    preset = PRESETS[options.preset]
    kinds = tuple(options.kinds or preset.kinds)
    outcomes = list(held_out_outcomes(options.model, kinds, options.per_kind, options.seed, preset.edition))
    print_table(table(outcomes))
    return 0


if __name__ == "__main__":
    sys.exit(main())
