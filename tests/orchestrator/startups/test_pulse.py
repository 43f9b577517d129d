"""A head that has gone is given up, one that hiccups is not; an actor that nobody asks any more ends itself."""

from __future__ import annotations

import socket
import subprocess
import sys

from orchestrator.startups import pulse
from orchestrator.startups.pulse import Beats, Pulse


def test_a_head_is_lost_when_it_has_been_silent_for_long() -> None:
    now = [0.0]
    with socket.create_server(("127.0.0.1", 0)) as head:
        port = head.getsockname()[1]
        asked = Pulse(f"127.0.0.1:{port}", lambda: now[0])
        for now[0] in (0.0, 10.0, 500.0):
            assert not asked.lost()
    now[0] = 510.0
    assert not asked.lost()  # a hiccup
    with socket.create_server(("127.0.0.1", port)):
        now[0] = 528.0
        assert not asked.lost()
    for now[0] in (535.0, 545.0):
        assert not asked.lost()
    now[0] = 560.0
    assert "nobody answers there for 32 s: " in asked.lost()
    assert not asked.answers() and Pulse().answers()
    assert not Pulse().lost()  # a private Ray, whose processes are looked at


def test_an_actor_that_hears_nobody_ends_its_process_and_one_that_does_lives() -> None:
    script = (
        "import time, types; from orchestrator.startups import pulse\n"
        "now = [0.0]\n"
        "pulse.time = types.SimpleNamespace(monotonic=lambda: now[0], sleep=lambda s: time.sleep(0.01))\n"
        "heard = pulse.Heard()\n"
        "for _ in range(10):\n"
        "    now[0] += 0.9 * pulse.SILENCE_S; time.sleep(0.05); heard.beat()\n"
        "print('alive', flush=True)\n"
        "now[0] += 1.1 * pulse.SILENCE_S; time.sleep(60)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=50)
    assert (done.returncode, done.stdout) == (1, "alive\n")


def test_every_actor_is_told_again_and_again_until_it_is_dropped_or_all_ends(monkeypatch) -> None:
    monkeypatch.setattr(pulse, "BEAT_S", 0.01)
    told: list[str] = []

    class Beat:
        def __init__(self, name: str) -> None:
            self.name, self.beat = name, self

        def remote(self) -> None:
            told.append(self.name)
            if self.name == "lost":
                raise ConnectionError

    beats, one, lost = Beats(), Beat("one"), Beat("lost")
    beats.add(lost)
    beats.add(one)
    while told.count("one") < 3:
        pass
    beats.drop(lost)
    beats.end()
    assert told.count("lost") >= 2
    count = len(told)
    assert not beats._thread.is_alive() and len(told) == count
