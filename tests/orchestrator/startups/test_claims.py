"""What all hosts of one campaign must share, and what is said where they do not."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy
import pytest

from campaigns.errors import IdentityMismatch
from campaigns.plan import Arm, CampaignPlan, Fixture, LeasePlan, ServerPlan
from orchestrator.checkouts.places import ROOT
from orchestrator.checkouts.trees import CONTROL_PLANE, DATA_PLANE, tree_sha256
from orchestrator.hosts.devices.inventory import open_inventory
from orchestrator.hosts.lease import name_holder
from orchestrator.hosts.locks import Kind, LockFolder
from orchestrator.startups.claims import Claims
from orchestrator.startups.cluster import Cluster
from orchestrator.startups.ground import Ground

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


def test_startups_that_began_to_wait_together_take_turns_on_the_one_place_that_comes_free(tmp_path: Path) -> None:
    """Neither had another to wait for when it began; when one has a claim, the other waits for that."""
    lease = LeasePlan(inventory="simulated:one", lock_dir=str(tmp_path), parallel=2, per_host=2)
    cluster = Cluster(private=True, address="", environment={})
    claims = Claims(cluster, replace(PLAN, lease=lease), "c0ffee")
    uuid = open_inventory(lease.inventory).devices()[0].uuid
    another = LockFolder(lease.lock_dir).try_lock(uuid, name_holder("another"), Kind.CLAIM)
    assert another is not None
    waits = threading.Semaphore(0)

    def startup() -> None:
        claims.give_back(claims.take(time.monotonic() + 3600, lambda why: waits.release()))

    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(startup) for _ in range(2)]
        for _ in both:
            waits.acquire()
        os.close(another)
        try:
            for one in both:
                one.result(60)
        finally:
            cluster.halted.set()  # who waits for an hour ends
    claims.release()
