"""Makes stores/REVISION.sqlite: what the present code writes, kept so that later revisions must open it.

    python tests/results/store/make_store.py

Run once, with the commit that adds a revision; a store that was released is never made again.
"""

import sqlite3
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from campaigns.order import blocks
from campaigns.plan import Arm, CampaignPlan, Fixture, Role, ServerPlan
from campaigns.reasons import Reason
from campaigns.records import CampaignStatus, Failure, Look, OperatorTime, Profile, StartupEnd, StartupStatus
from campaigns.remarks import Annotation, Decision, Mark, Probe, Score
from results.store.schema import REVISION
from results.store.writer import Store
from results.transfer.scripts import Script, Trajectory
from results.transfer.synthetic import CREATED, Driver

PLAN = CampaignPlan(
    name="released",
    control=Arm("control", (("projection", "columns-128"),)),
    candidate=Arm("candidate", (("projection", "columns-32"),)),
    fixtures=(Fixture("alpha", "{}", (0,)), Fixture("beta", "{}", (7,))),
    server=ServerPlan("null"),
    startups=3,
    pairs=2,
    warmups=1,
)


def script(step, attempt):
    ms = 16.0 if step.role is Role.CONTROL else 15.5 + step.key.repeat / 100
    times = (OperatorTime("verify", "projection", "columns-128", 12, 12, 9_000), OperatorTime("", "", "", 0, 3, 500))
    profile = Profile(4, "device", 64_000_000, times) if step.key.fixture == "beta" else None
    made = Script(Trajectory(12, 4, 6), ms + step.key.startup / 10, token_seed=len(step.key.fixture), watts=350.0)
    return replace(made, profile=profile)


def write(store):
    """Every kind of fact: a startup that died in a block and was repeated, a score, a probe, a decision, a prompt."""
    driver = Driver(store, PLAN, script, samples=True)
    campaign = driver.campaign()
    name = campaign.campaign_id
    store.begin(campaign)
    store.status(name, CampaignStatus.RUNNING)
    first, second = blocks(PLAN, 0)
    driver.start(name, 0, 1)
    store.identity(name, 0, 1, "warm", {"server": "scripted"})
    driver.block(name, first, 1)
    driver.block(name, second, 1, stop_after=4)
    died = "the server died during a request"
    store.failure(Failure(name, CREATED, Reason.SERVER_DIED, died, 0, 1, second.keys[0]))
    store.startup_end(name, 0, 1, StartupEnd(StartupStatus.FAILED, CREATED, Reason.SERVER_DIED, "exit code -9"))
    driver.life(name, 0, 2, (second,))
    for startup in (1, 2):
        driver.life(name, startup, 1, blocks(PLAN, startup))
    store.status(name, CampaignStatus.COMPLETE)
    store.look(Look(name, 3, CREATED, "faster", decided=False))
    store.scores([Score(name, first.keys[0], Role.CONTROL, CREATED, "gsm8k", "1", "{}", "passed", "[1]")])
    store.probes([Probe(CREATED, "contract", "projection/columns-32", "passed", "ab" * 32, '{"checks": 65}')])
    store.decision(Decision(CREATED, "projection/columns-32", "hold", "a person", "one startup is missing", "[]"))
    store.annotations([Annotation(name, CREATED, mark, "odd", "a person") for mark in Mark])
    store.prompt_hashes("c", "t", "x", {"alpha": "00"})


def main():
    path = Path(__file__).with_name("stores") / f"{REVISION}.sqlite"
    if path.exists():
        raise SystemExit(f"{path} exists: a released store is never made again")
    with Store.open(path) as store:
        write(store)
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = DELETE")
    connection.execute("VACUUM")
    connection.close()
    print(f"{path.name}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
