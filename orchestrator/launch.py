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

import hydra
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from campaigns.errors import CampaignError, Exit, UsageError, highest
from orchestrator.config import Config, register_schema
from orchestrator.identity import CONF
from orchestrator.prepare import prepare


def run(overrides: Sequence[str]) -> Exit:
    """Run one campaign, or one per multirun job; the exit code is the highest-ranked of them."""
    codes: list[Exit] = []
    register_schema()
    task = hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")(lambda raw: _job(raw, codes))
    with _command_line(overrides):
        try:
            task()
        except SystemExit as stop:  # argparse inside Hydra: an unknown flag, or --help
            return Exit.USAGE if stop.code else highest(codes)
        except (HydraException, OmegaConfBaseException) as error:
            raise UsageError(_sentence(error)) from error
    return highest(codes)


def _job(raw: DictConfig, codes: list[Exit]) -> None:
    from orchestrator.campaign import execute  # Ray is imported here, not for --cfg and --info

    try:
        config = OmegaConf.to_object(raw)
        assert isinstance(config, Config), type(config)
        codes.append(execute(prepare(config, OmegaConf.to_container(raw))))
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
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
    key = next((line.removeprefix("full_key: ") for line in lines if line.startswith("full_key: ")), "")
    text = "; ".join(line for line in lines if not line.startswith(("full_key:", "object_type", "reference_type")))
    return f"{key}: {text}" if key else text
