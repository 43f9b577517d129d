"""What all hosts of one campaign must share, and what is said where they do not."""

from __future__ import annotations

from dataclasses import replace

import numpy
import pytest

from campaigns.errors import IdentityMismatch
from campaigns.plan import Arm, CampaignPlan, Fixture, ServerPlan
from orchestrator.places import ROOT
from orchestrator.startups.claims import Ground
from orchestrator.trees import CONTROL_PLANE, DATA_PLANE, tree_sha256

ONE = Ground("one", ("GPU A", "GPU A"), "c0de" * 16, {"numpy": "2.0"}, {"server.file.serve.py": "ab" * 32})
PLAN = CampaignPlan("t", Arm("a"), Arm("b"), (Fixture("f", "{}", (1,)),), ServerPlan("null"))


def test_hosts_that_are_alike() -> None:
    replace(ONE, host="two").require_like(ONE)
    here = Ground.here(("GPU A",), PLAN, None)
    assert here.code_sha256 == tree_sha256(ROOT, (*CONTROL_PLANE, *DATA_PLANE)) and here.host
    assert here.versions["numpy"] == numpy.__version__


def test_other_code_libraries_files_and_devices_are_refused_naming_both_hosts() -> None:
    with pytest.raises(IdentityMismatch, match=r"^two has other code \(ffff.*\) than one \(c0de"):
        replace(ONE, host="two", code_sha256="f" * 64).require_like(ONE)
    with pytest.raises(IdentityMismatch, match=r"^two has GPU B and one has GPU A, GPU A: a campaign is of one kind"):
        replace(ONE, host="two", device_names=("GPU B",)).require_like(ONE)
    with pytest.raises(IdentityMismatch, match=r"^two has numpy 1\.9 and one has 2\.0: bring both to the same"):
        replace(ONE, host="two", versions={"numpy": "1.9"}).require_like(ONE)
    with pytest.raises(IdentityMismatch, match=r"^two has sha256 of serve\.py none and one has abab"):
        replace(ONE, host="two", files={}).require_like(ONE)
