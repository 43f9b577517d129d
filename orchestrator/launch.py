"""`campaign run`: from Hydra's command line to finished campaigns and one exit code.

Hydra composes `conf/`. Its own main, for --cfg, --info and --multirun, would exit 2 on an unknown flag, drop what a
task returns, and stop a multirun at the first failure; so every job ends here with a code of ours, and the
highest-ranked one is returned. The jobs of a multirun are all composed and prepared before the first runs
(orchestrator.studies.sweep).
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NoReturn

import hydra
from hydra import compose, initialize_config_dir
from hydra._internal.utils import get_args_parser
from hydra.core.default_element import ResultDefault
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from campaigns.errors import CampaignError, Exit, UsageError, highest
from orchestrator.checkouts.places import CONF
from orchestrator.output.progress import ANSWER, Output
from orchestrator.preparation.identity import file_sha256
from orchestrator.preparation.prepare import Prepared, prepare
from orchestrator.settings.conf_files import read_by_hydra, shown
from orchestrator.settings.config import register_schema, typed
from orchestrator.settings.folders import find, own_folders, with_folders
from orchestrator.settings.merged import merged_by_hydra
from orchestrator.settings.overrides import check, replacing, sentence
from orchestrator.settings.texts import check_texts
from results.store.place import DEFAULT, check_place, make_place


@dataclass(frozen=True)
class Composed:
    """One job of a command line."""

    words: Sequence[str]
    prepared: Prepared
    at_once: int  # how many such jobs may run side by side


def run(overrides: Sequence[str], output: Output = ANSWER) -> Exit:
    """Run one campaign, or one per multirun job; the exit code is the highest-ranked of them."""
    codes: list[Exit] = []
    swept: list[Composed] = []
    flags = _flags(overrides)
    check(flags.overrides, sweeps=flags.multirun)
    if list(flags.overrides) == list(overrides) and not any(word.startswith("hydra.") for word in overrides):
        _execute(_composed(overrides, build=True), codes, output)  # Hydra's own way composes twice, and copies
        return highest(codes)
    own = own_folders(flags.overrides)
    if flags.multirun:
        make_place(DEFAULT)  # Hydra keeps a sweep's words there
    register_schema()
    run_it = partial(_execute, codes=codes, output=output)
    keep = swept.append if flags.multirun else run_it
    words = [*replacing(with_folders(flags.overrides, ())), *_without(overrides, flags.overrides)]
    with _command_line(words):
        try:
            with read_by_hydra(own), merged_by_hydra() as merged:
                job = partial(_job, codes=codes, words=flags.overrides, keep=keep, merged=merged)
                hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")(job)()
        except (HydraException, OmegaConfBaseException) as error:
            raise UsageError(sentence(error, flags.overrides)) from error
    return highest([*codes, *(_sweep(swept, output) if swept else ())])


def composed(overrides: Sequence[str], *, build: bool = False) -> Prepared:
    """The campaign that `run` with these overrides would start; nothing is leased or recorded, built where asked."""
    return _composed(overrides, build).prepared


def sweep_width(overrides: Sequence[str]) -> int:
    """How many campaigns with these overrides may run at once."""
    return _composed(overrides, build=False).at_once


def _composed(overrides: Sequence[str], build: bool) -> Composed:
    check(overrides)
    register_schema()
    words = replacing(with_folders(overrides, ()))
    try:
        with read_by_hydra(own_folders(words)), initialize_config_dir(str(CONF), version_base="1.3"):
            with merged_by_hydra() as merged:
                raw = compose("config", overrides=words)
            files = _files(merged, words)
        values = OmegaConf.to_container(raw, resolve=True)
        config = typed(values)
        if build:
            check_place(Path(config.store.path))  # before anything is hashed or built
        return Composed(words, prepare(config, values, files, build=build), config.sweep.parallel)
    except (HydraException, OmegaConfBaseException) as error:
        raise UsageError(sentence(error, overrides)) from error


def _flags(words: Sequence[str]) -> argparse.Namespace:
    """Hydra's own parser, made to raise: left to itself it prints its usage and exits 2."""
    parser = get_args_parser()
    parser.error = _refuse  # type: ignore[method-assign]  # Hydra makes the parser, so it cannot be a class of ours
    found, unknown = parser.parse_known_intermixed_args(list(words))  # a setting may stand behind a flag
    if unknown:
        _refuse(f"unknown flag {unknown[0]}")
    return found


def _without(words: Sequence[str], settings: Sequence[str]) -> list[str]:
    """The flags with their values: Hydra's own parser wants all settings before them."""
    return [word for word in words if word not in settings]


def _refuse(message: str) -> NoReturn:
    raise UsageError(f"{message}; see campaign run --help")


def _job(
    raw: DictConfig,
    codes: list[Exit],
    words: Sequence[str],
    keep: Callable[[Composed], None],
    merged: Sequence[ResultDefault],
) -> None:
    """Prepare what Hydra has composed, and run it or keep it for a sweep; a refusal is said and leaves the others."""
    chosen = HydraConfig.get().overrides
    several = HydraConfig.get().mode is RunMode.MULTIRUN
    swept = " ".join(word for word in chosen.task if word not in words) if several else ""  # which job it is
    try:
        values = OmegaConf.to_container(raw, resolve=True)
        config = typed(values)
        check_place(Path(config.store.path))  # before anything is hashed or built
        prepared = prepare(config, values, _files(merged, [*chosen.hydra, *chosen.task]))
        keep(Composed(list(chosen.task), prepared, config.sweep.parallel))
    except OmegaConfBaseException as error:
        codes.append(_say(UsageError(sentence(error, words)), swept))
    except CampaignError as error:
        codes.append(_say(error, swept))


def _execute(composed: Composed, codes: list[Exit], output: Output) -> None:
    from orchestrator.campaign import execute  # Ray is imported here, not for --cfg and --info

    codes.append(execute(composed.prepared, output))


def _sweep(found: Sequence[Composed], output: Output) -> list[Exit]:
    """In a table a job is named by the words that not all jobs share."""
    from orchestrator.studies import sweep

    shared = set.intersection(*(set(each.words) for each in found)) if len(found) > 1 else set()
    own = [" ".join(word for word in each.words if word not in shared) for each in found]
    jobs = [sweep.Job(word, each.prepared, each.prepared.campaign()) for word, each in zip(own, found, strict=True)]
    at_once = min(each.at_once for each in found)
    for job in jobs:
        sweep.check_room(job.prepared, at_once)
    return sweep.run(jobs, at_once, output)


def _files(merged: Sequence[ResultDefault], words: Sequence[str]) -> dict[str, str]:
    """Path -> SHA-256 of every file that Hydra merged for these words, in its order."""
    own = own_folders(words)
    parts = [(find(str(p.config_path), own), p.package) for p in merged if p.config_path is not None]
    files = [(path, package or "") for path, package in parts if path.is_file()]
    for path, package in files:
        check_texts(path, package)
    return {shown(path): file_sha256(path) for path, _ in files}


def _say(error: CampaignError, job: str = "") -> Exit:
    print(f"campaign: {job + ': ' if job else ''}{error}", file=sys.stderr)
    return error.exit_code


@contextmanager
def _command_line(overrides: Sequence[str]) -> Iterator[None]:
    """Hydra reads sys.argv, and prints its own short trace unless this variable lets its errors through."""
    argv, full = sys.argv, os.environ.get("HYDRA_FULL_ERROR")
    sys.argv = ["campaign run", *overrides]
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        yield
    finally:
        sys.argv = argv
        if full is None:
            del os.environ["HYDRA_FULL_ERROR"]
        else:
            os.environ["HYDRA_FULL_ERROR"] = full
