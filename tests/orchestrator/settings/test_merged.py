"""What Hydra merged, noted while it did, is what it lists when it is asked."""

from __future__ import annotations

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode

from orchestrator.checkouts.places import CONF
from orchestrator.settings.config import register_schema
from orchestrator.settings.merged import merged_by_hydra


@pytest.mark.parametrize(
    "words", [["campaign=smoke"], ["campaign=speculation", "server=vllm", "lease=two", "corpus=embedded"]]
)
def test_the_files_are_those_that_hydra_lists(words: list[str]) -> None:
    register_schema()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        with merged_by_hydra() as merged:
            compose("config", overrides=["campaign=cuda"])
            compose("config", overrides=words)  # as the jobs of a multirun, one after the other
        listed = GlobalHydra.instance().config_loader().compute_defaults_list("config", words, RunMode.RUN).defaults
    assert merged == listed and len(merged) > 8
