"""Faults planted in the native sources, one at a time, and whether the contract gate finds each.

    python benchmarks/mutants.py [GROUP …] [--device cpu|cuda] [--count 36] [--jobs N] [--list] [--only ID …]
    python benchmarks/mutants.py --device cuda --folder DIR --build          # needs nvcc and no GPU
    python benchmarks/mutants.py --device cuda --folder DIR --minutes 4      # judges what was built, goes on later
    python benchmarks/mutants.py --device cuda --only ID --plant DIR         # kernels/ with it, for any other gate

Every source line offers small changes (a bound, a sign, a constant, a rounding, a dropped statement); `--count` of them
are drawn per operator by the hash of the change, so that a draw stays as the sources grow. `include` stands for the
headers, whose mutants every operator that reads them may kill. A mutant is built from a copy and run against every
contract case of the schedules that compile it; the first failed check, a crash or a hang kills it. One that does not
compile, or compiles to the same bytes, is replaced by the next. Those that change no result are in
planted/equivalent.py, with the reason; those that another gate finds in planted/beyond.py. Prints a line a mutant and
the counts of each group; exits with 1 where any other survives, or one was not judged to its end.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from planted import building, court, judging
from planted.beyond import BEYOND
from planted.equivalent import EQUIVALENT
from planted.sources import Mutant, drawn, groups

JUDGED = ("killed", "equivalent", "beyond", "survived", "cut", "foul")


def libraries(device: str) -> None:
    """The unchanged ones, and what the checks themselves compile."""
    from kernels.checking import before
    from kernels.native.building import ensure, inspect

    for spec in (*building.specs_of(device), *([before.BUILD] if device == "cuda" else [])):
        for arch in spec.archs:
            if inspect(spec, arch) is not None:  # one that travelled serves, whatever compiler is here
                ensure(spec, arch)


def jobs_of(plan: dict[str, building.Planned], chosen: dict[str, tuple[str, ...]], options: argparse.Namespace,
            known: dict[str, judging.Verdict]) -> Iterator[judging.Job]:  # fmt: skip
    """What is named first, then the groups in turn, what is called equivalent last; nothing that was decided."""
    waiting: list[tuple[tuple[bool, int], judging.Job]] = []
    for group in chosen:
        built = [p for p in plan.values() if p.group == group and p.outcome == building.BUILT]
        for turn, found in enumerate(built[: None if options.only else options.count]):
            last = known.get(found.id)
            if (options.only and found.id not in options.only) or (last and last.outcome in ("killed", "survived")):
                continue
            start, spent = (last.seen, last.seconds) if last and last.outcome == "cut" else (0, 0.0)
            job = judging.Job(group, found.id, found.file, start, spent)
            waiting.append(((found.id in EQUIVALENT, -1 if found.id in options.first else turn), job))
    yield from (job for _, job in sorted(waiting, key=lambda pair: pair[0]))


def as_they_are(
    chosen: dict[str, tuple[str, ...]], device: str, known: dict[str, judging.Verdict]
) -> list[judging.Job]:
    """The schedules of the chosen groups' sources, without any mutant."""
    specs = {spec.name for files in chosen.values() for file in files for spec in building.specs_with(file, device)}
    found = []
    for spec in building.specs_of(device):
        name = f"{spec.operator}/{spec.schedule}"
        if building.body_of(spec).name in specs and name not in known:
            found.append(judging.Job(spec.operator, judging.AS_IS, "", schedule=name))
    return found


def outcome_of(planned: building.Planned, verdict: judging.Verdict | None) -> str:
    """What a mutant counts as: one called equivalent that is killed has survived its reason."""
    if verdict is None:
        return planned.outcome
    if planned.id in BEYOND and verdict.outcome == "survived":
        return "beyond"
    if planned.id not in EQUIVALENT:
        return verdict.outcome
    return {"survived": "equivalent", "killed": "survived"}.get(verdict.outcome, verdict.outcome)


def told(planned: building.Planned, verdict: judging.Verdict) -> str:
    outcome = outcome_of(planned, verdict)
    said = EQUIVALENT[planned.id] if outcome == "equivalent" else verdict.said
    if outcome == "beyond":
        said = f"{BEYOND[planned.id].check} of {BEYOND[planned.id].schedule} finds it: {BEYOND[planned.id].reason}"
    if outcome == "survived" and verdict.outcome == "killed":
        said = f"called equivalent ({EQUIVALENT[planned.id]}), but killed: {said}"
    part = f", {verdict.seen} of {verdict.problems} problems" if outcome != "killed" else ""
    return f"{outcome:10} {planned.told}  [{verdict.seconds:.1f} s{part}] {said.strip()[:160]}"


def totals(
    plan: dict[str, building.Planned], verdicts: dict[str, judging.Verdict], device: str
) -> list[dict[str, object]]:
    found = []
    for group in dict.fromkeys(planned.group for planned in plan.values()):
        here = [planned for planned in plan.values() if planned.group == group]
        counts = Counter(outcome_of(planned, verdicts.get(planned.id)) for planned in here)
        judged = sum(counts[outcome] for outcome in JUDGED)
        names = (*JUDGED, building.BUILT, building.STILLBORN, building.IDENTICAL)
        found.append({"group": group, "device": device, "planted": judged} | {name: counts[name] for name in names})
    return found


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("groups", nargs="*", help="operators, or include (default: all)")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--count", type=int, default=36, help="mutants per operator (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="judges at once (default: %(default)s)")
    parser.add_argument("--gpus", type=int, default=1, help="the judges share so many (default: %(default)s)")
    parser.add_argument("--compilers", type=int, default=2, help="beside the judges (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop after so many (default: never)")
    parser.add_argument("--folder", type=Path, help="keep libraries and verdicts here (default: nowhere)")
    parser.add_argument("--out", type=Path, help="verdicts' file (default: FOLDER/verdicts.jsonl)")
    parser.add_argument("--only", nargs="+", default=(), metavar="ID", help="only these, judged again")
    parser.add_argument("--first", nargs="+", default=(), metavar="ID", help="these before the others")
    parser.add_argument("--plant", type=Path, metavar="DIR", help="kernels/ with the one --only, into DIR")
    parser.add_argument("--list", action="store_true", help="print what would be drawn first, and judge none")
    parser.add_argument("--build", action="store_true", help="build and judge none")
    parser.add_argument("--judge", action="store_true", help="judge what was built and build no more")
    parser.add_argument("--follow", action="store_true", help="with --judge: another process builds into FOLDER")
    options = parser.parse_args()
    options.until = time.monotonic() + 60 * options.minutes
    if options.plant and len(options.only) != 1:
        parser.error("--plant takes one --only ID")
    if unknown := sorted(set(options.groups) - set(groups(options.device))):
        known = ", ".join(groups(options.device))
        parser.error(f"{unknown[0]} has no native source for {options.device}; there are {known}")
    return options


def judge(folder: Path, chosen: dict[str, tuple[str, ...]], options: argparse.Namespace) -> int:
    """Every built mutant that has no verdict yet; prints what is known at the end."""
    path = options.out or folder / "verdicts.jsonl"
    known = {verdict.id: verdict for verdict in court.verdicts_of([path])} if not options.only else {}
    base = [] if options.only else as_they_are(chosen, options.device, known)
    seen: set[str] = set()

    def more() -> list[judging.Job] | None:
        """Jobs of what was built since the last look; None at the end of the building."""
        whole = not options.follow or (folder / building.WHOLE).exists()
        jobs = [job for job in jobs_of(building.plan_of(folder), chosen, options, known) if job.id not in seen]
        seen.update(job.id for job in jobs)
        return None if whole and not jobs else jobs

    queue = deque([*base, *(more() or ())])
    with path.open("a") as out:
        judges = court.Court(folder, options.device, out, queue, options.jobs, options.compilers, options.until, more)
        judges.gpus = options.gpus
        judges.run()
    plan = building.plan_of(folder)
    verdicts = {verdict.id: verdict for verdict in court.verdicts_of([path])}
    bad = [v for job in base if (v := verdicts.get(job.name)) and v.outcome != "survived"]
    for verdict in bad:
        print(f"without any mutant, {verdict.id} is {verdict.outcome}: {verdict.said}")
    shown = {k: p for k, p in plan.items() if p.group in chosen and (not options.only or k in options.only)}
    for planned in shown.values():
        if planned.id in verdicts:
            print(told(planned, verdicts[planned.id]))
    counts = totals(shown, verdicts, options.device)
    for total in counts:
        print(json.dumps(total))
    undecided = ("survived", "cut", "foul", building.BUILT)
    return int(bool(bad) or any(total[name] for total in counts for name in undecided))


def plant(mutant: Mutant, to: Path) -> None:
    """The package with one line changed, for gates that know nothing of mutants."""
    shutil.copytree(HERE.parent / "kernels", to / "kernels", ignore=shutil.ignore_patterns("__pycache__"))
    (to / "kernels/csrc" / mutant.file).write_text(mutant.source())


def main() -> int:
    options = parse()
    if options.plant:
        every = (mutant for files in groups(options.device).values() for mutant in drawn(files))
        plant(next(mutant for mutant in every if mutant.id in options.only), options.plant)
        return 0
    chosen = {name: files for name, files in groups(options.device).items() if name in (options.groups or [name])}
    if options.list:
        for files in chosen.values():
            print("\n".join(mutant.told() for mutant in drawn(files)[: options.count]))
        return 0
    with tempfile.TemporaryDirectory(prefix="mutants-") as made:
        folder = options.folder or Path(made)
        if not options.judge:
            libraries(options.device)
            choice = building.Choice(options.count, options.jobs, options.until, tuple(options.only))
            building.build_all(folder, options.device, chosen, choice)
        return 0 if options.build else judge(folder, chosen, options)


if __name__ == "__main__":
    sys.exit(main())
