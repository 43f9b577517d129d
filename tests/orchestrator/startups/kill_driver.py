"""Drives one startup as the campaign does, says so, and waits for a request that never ends.

kill_driver.py WORKDIR SERVER_OPTION…
"""

import signal
import sys
from pathlib import Path

from campaigns.errors import WorldError
from campaigns.order import blocks
from campaigns.plan import Arm, CampaignPlan, Fixture, LeasePlan, ServerPlan
from orchestrator.startups.cluster import connect
from orchestrator.startups.startup import StartupHandle


def main(workdir: Path, *options: str) -> None:
    server = Path(__file__).parents[1] / "small_server.py"
    plan = CampaignPlan(
        name="test",
        control=Arm("one"),
        candidate=Arm("two"),
        fixtures=(Fixture("f", '{"prompt": "abc"}', (1,), chat=False),),
        server=ServerPlan("command", command=(sys.executable, str(server), "{port}", *options), stop_grace_s=0.5),
        lease=LeasePlan(inventory="simulated:one", lock_dir=str(workdir / "locks")),
        calibrate_s=0.0,
        sample_hz=0.0,
    )
    with (
        connect(plan.lease) as cluster,
        StartupHandle.lease(cluster, plan, "c0ffee", 0, 1, workdir) as handle,
    ):
        record = handle.start()
        print(record.processes[0].pid, flush=True)
        try:
            handle.run(blocks(plan, 0)[0].steps[:2], 6, 1)
        except WorldError as error:
            print(error)
            print(handle.stop().reason)


if __name__ == "__main__":
    # A shell that starts the tests in the background makes its children ignore ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    main(Path(sys.argv[1]), *sys.argv[2:])
