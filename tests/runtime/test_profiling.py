"""Where rounds go: a trace's work finds its operator, and a profiled request is the same request."""

import ctypes
import json
import re
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernels.routes import Routes
from runtime.engine import profiling, trace
from runtime.engine.profiling import RoundProfiler
from runtime.engine.sequence import GenerateRequest, Prefill
from runtime.http.service import trace_file
from runtime.operators import Operators


def host(name: str, start: float, duration: float, cat: str = "user_annotation", **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 9, "tid": 9, "ts": start, "dur": duration, "args": args}


def launched(
    correlation: int, at: float, device_at: float, duration: float, api: str = "cudaLaunchKernel"
) -> list[Any]:
    """A call on the host and its kernel, which may run long after its range has closed."""
    cat = "cuda_driver" if api.startswith("cu") and not api.startswith("cuda") else "cuda_runtime"
    kernel = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": device_at, "dur": duration}
    return [host(api, at, 0.5, cat, correlation=correlation), kernel | {"args": {"correlation": correlation}}]


def test_kernels_belong_to_the_range_that_launched_them() -> None:
    """The format of Kineto's traces: names of launching calls of runtime and driver, one correlation a call."""
    events = [
        host("round", 0, 100),
        host("piece:verify", 10, 50),
        host("op:projection/stream", 12, 8),
        *launched(1, 13, 200, 4.0),
        *launched(2, 15, 210, 1.5, "cuLaunchKernelEx"),  # a library of ours, through the driver
        host("op:gdn/bv32", 25, 5),
        *launched(3, 26, 220, 2.0),
        *launched(4, 40, 230, 0.25),  # torch's own, in the piece
        host("aten::mul", 39, 3, "cpu_op"),
        *launched(5, 80, 240, 1.0, "cudaGraphLaunch"),
        {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 241, "dur": 1, "args": {"correlation": 5}},
        {"ph": "X", "cat": "gpu_user_annotation", "name": "op:gdn/bv32", "pid": 0, "tid": 7, "ts": 220, "dur": 2},
        *launched(6, 300, 310, 7.0),  # behind the rounds
        {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 9, "args": {"correlation": 77}},
    ]
    found = trace.attribute(events)
    assert found is not None and (found.rounds, found.clock, found.round_ns) == (1, "device", 100_000)
    assert [tuple(time) for time in found.times] == [
        ("", "", "", 0, 2, 2_000),  # a replayed graph: its kernels have one call, of no operator
        ("verify", "", "", 0, 1, 250),
        ("verify", "gdn", "bv32", 1, 1, 2_000),
        ("verify", "projection", "stream", 1, 2, 5_500),
    ]


def test_without_a_device_a_range_has_its_own_time() -> None:
    events = [host("round", 0, 5), host("op:gdn/a", 1, 4)]  # skipped
    events += [host("round", 10, 100), host("piece:draft", 20, 40), host("op:norm/x", 30, 10), host("op:norm/x", 45, 5)]
    found = trace.attribute(events, skip=1)
    assert found is not None and (found.rounds, found.clock) == (1, "host")
    assert [tuple(time) for time in found.times] == [
        ("", "", "", 0, None, 60_000),
        ("draft", "", "", 0, None, 25_000),
        ("draft", "norm", "x", 2, None, 15_000),
    ]
    assert sum(time.total_ns for time in found.times) == found.round_ns
    assert trace.attribute(events, skip=2) is None


def test_what_a_native_call_takes_is_its_operators() -> None:
    """A call through ctypes leaves no event of its own: the range round it has its time."""
    operators = Operators(Routes())
    sleep_us = 20_000
    schedule = SimpleNamespace(name="native", run=lambda: ctypes.CDLL(None).usleep(sleep_us))
    chosen = SimpleNamespace(schedule=schedule, refusals=())
    op = SimpleNamespace(name="asleep")
    operators.routes.selection = lambda op, problem: chosen  # type: ignore[method-assign]
    with RoundProfiler(operators, torch.device("cpu")) as profiler:
        profiler.begin()
        for _ in range(2):
            operators.within("round", operators.within, "verify", operators.run, "site", op, None)
            profiler.round_ended()
        found = profiler.result()
    assert found is not None and found.rounds == 1
    [time] = [time for time in found.times if time.operator]
    assert time[:5] == ("verify", "asleep", "native", 1, None) and time.total_ns >= sleep_us * 1000


@pytest.fixture(scope="module")
def built(make: Any) -> Any:
    return make.engine(make.target_json(), make.draft_json())


def profiled(built: Any, profiler: RoundProfiler, prompt: list[int], num_tokens: int) -> list[int]:
    tokens: list[int] = []
    for event in built.generate(GenerateRequest(prompt, max_tokens=num_tokens, eos_ids=())):
        tokens += getattr(event, "token_ids", ())
        if isinstance(event, Prefill):
            profiler.begin()
        elif hasattr(event, "rows"):
            profiler.round_ended()
    return tokens


def test_a_profiled_request_says_the_same_and_names_every_run(make: Any, built: Any, tmp_path: Any) -> None:
    prompt, operators = make.prompt_of(40), built.decoder.operators
    plain = make.answer(built, prompt, max_tokens=8)
    keep = tmp_path / "trace.json"
    with RoundProfiler(operators, built.device, keep) as profiler:
        tokens = profiled(built, profiler, prompt, 8)
        found = profiler.result()
    assert tokens == plain.tokens and operators.observer is None
    assert found is not None and found.rounds == len(plain.rounds) - 1
    ran = {(operator, schedule): runs for operator, schedule, runs in plain.rounds[-1].routes}
    told: dict[tuple[str, str], int] = {}
    for time in found.times:
        if time.operator:
            told[time.operator, time.schedule] = told.get((time.operator, time.schedule), 0) + time.calls
    assert told == {route: runs * found.rounds for route, runs in ran.items()}
    assert {time.piece for time in found.times} == {"", "draft", "verify", "sample", "commit"}
    if built.device.type == "cpu":
        assert sum(time.total_ns for time in found.times) == pytest.approx(found.round_ns, abs=len(found.times))
    assert any(event["name"] == "piece:verify" for event in json.loads(keep.read_text())["traceEvents"])


def test_a_trace_that_cannot_be_kept_ends_no_request(make: Any, built: Any, tmp_path: Any, capfd: Any) -> None:
    with RoundProfiler(built.decoder.operators, built.device, tmp_path / "gone" / "trace.json") as profiler:
        profiled(built, profiler, make.prompt_of(40), 8)
        assert profiler.result() is not None
    assert "no Chrome trace is kept: " in capfd.readouterr().err


def test_every_arm_has_a_trace_of_its_own_whatever_it_is_called() -> None:
    names = ["torch-plain", "a b", "a/b", "a_b", "../../etc", "é" * 300, "é" * 301, "\ud83d", ".", ""]
    files = [trace_file(name) for name in names]
    assert files[0] == "trace-torch-plain.json" and len(set(files)) == len(names)
    assert all(re.fullmatch(r"trace-[\w.-]{,80}\.json", file, re.ASCII) for file in files)


def test_a_long_request_is_profiled_in_part(make: Any, built: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiling, "MOST_ROUNDS", 3)
    with RoundProfiler(built.decoder.operators, built.device) as profiler:
        profiled(built, profiler, make.prompt_of(9), 48)
        found = profiler.result()
    assert found is not None and found.rounds == 2 and built.decoder.operators.observer is None


def test_a_request_that_breaks_leaves_no_observer(make: Any, built: Any) -> None:
    with pytest.raises(KeyError), RoundProfiler(built.decoder.operators, built.device) as profiler:
        profiler.begin()
        raise KeyError
    assert built.decoder.operators.observer is None
