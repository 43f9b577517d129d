"""What all hosts of one campaign must share, and what is said where they do not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from campaigns.errors import IdentityMismatch
from orchestrator.places import ROOT
from orchestrator.startups.claims import Ground
from orchestrator.trees import CONTROL_PLANE, tree_sha256

ONE = Ground("one", ("GPU A", "GPU A"), "c0de" * 16)


def test_hosts_that_are_alike() -> None:
    replace(ONE, host="two").require_like(ONE)
    here = Ground.here(("GPU A",))
    assert here.code_sha256 == tree_sha256(ROOT, CONTROL_PLANE) and here.host


def test_other_code_and_other_devices_are_refused_naming_both_hosts() -> None:
    with pytest.raises(IdentityMismatch, match=r"^two has other code in .* \(ffff.*\) than one \(c0de"):
        replace(ONE, host="two", code_sha256="f" * 64).require_like(ONE)
    with pytest.raises(IdentityMismatch, match=r"^two has GPU B and one has GPU A, GPU A: a campaign is of one kind"):
        replace(ONE, host="two", device_names=("GPU B",)).require_like(ONE)
