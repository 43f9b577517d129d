"""`campaign run`: from Hydra's command line to finished campaigns and one exit code.

Hydra composes `conf/` and handles --cfg, --info and --multirun. It would exit 2 on an unknown flag, drop what a task
returns, and stop a multirun at the first failure; so every job ends here with a code of ours, and the highest-ranked
one is returned.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import hydra
from hydra import compose, initialize_config_dir
from hydra._internal.utils import get_args_parser
from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from campaigns.errors import CampaignError, Exit, UsageError, highest
from orchestrator.config import register_schema, typed
from orchestrator.identity import CONF
from orchestrator.prepare import Prepared, prepare


def run(overrides: Sequence[str]) -> Exit:
    """Run one campaign, or one per multirun job; the exit code is the highest-ranked of them."""
    codes: list[Exit] = []
    _check_flags(overrides)
    register_schema()
    task = hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")(lambda raw: _job(raw, codes))
    with _command_line(overrides):
        try:
            task()
        except (HydraException, OmegaConfBaseException) as error:
            raise UsageError(_sentence(error)) from error
    return highest(codes)


def composed(overrides: Sequence[str], store_path: Path) -> Prepared:
    """The campaign that `run` with these overrides would start; nothing is built, leased or recorded."""
    register_schema()
    try:
        with initialize_config_dir(str(CONF), version_base="1.3"):
            raw = compose("config", overrides=list(overrides))
        values = OmegaConf.to_container(raw, resolve=True)
        return replace(prepare(typed(values), values, build=False), store_path=store_path)
    except (HydraException, OmegaConfBaseException) as error:
        raise UsageError(_sentence(error)) from error


def _check_flags(overrides: Sequence[str]) -> None:
    """Hydra's own parser, made to raise: left to itself it prints its usage and exits 2."""
    parser = get_args_parser()
    _, unknown = parser.parse_known_args(list(overrides))
    if unknown:
        raise UsageError(f"unknown flag {unknown[0]}; see campaign run --help")


def _job(raw: DictConfig, codes: list[Exit]) -> None:
    from orchestrator.campaign import execute  # Ray is imported here, not for --cfg and --info

    if Exit.INTERRUPTED in codes:
        return  # a person ended this sweep
    try:
        values = OmegaConf.to_container(raw, resolve=True)
        codes.append(execute(prepare(typed(values), values)))
    except OmegaConfBaseException as error:
        codes.append(_say(UsageError(_sentence(error))))
    except CampaignError as error:
        codes.append(_say(error))


def _say(error: CampaignError) -> Exit:
    print(f"campaign: {error}", file=sys.stderr)
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


def _sentence(error: BaseException) -> str:
    """One sentence of a Hydra or OmegaConf error; the deepest cause names the key with its full path."""
    cause: BaseException = error
    while isinstance(cause.__cause__, HydraException | OmegaConfBaseException):
        cause = cause.__cause__
    if isinstance(cause, MissingConfigException) and cause.options:
        group = str(cause.missing_cfg_file).rpartition("/")[0]
        return f"there is no {cause.missing_cfg_file}; choose {group}= one of {', '.join(sorted(cause.options))}"
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
    key = next((line.removeprefix("full_key: ") for line in lines if line.startswith("full_key: ")), "")
    words = [line for line in lines if not line.startswith(("full_key:", "object_type", "reference_type", "See http"))]
    return f"{key}: {'; '.join(words)}" if key else "; ".join(words)
