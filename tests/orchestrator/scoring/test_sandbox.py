"""Generated code against the walls: the attack list of the scoring rules, one test each."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from campaigns.scorers.execution import Job, Limits, Outcome
from orchestrator.scoring import sandbox
from orchestrator.scoring.sandbox import Mode, Sandbox, SandboxRefused

SHORT = Limits(cpu_s=2, wall_s=90)  # a busy host stretches wall time


def steps(box: Sandbox, source: str, *asserts: str, limits: Limits = SHORT, **program: object) -> Outcome:
    bare = {"kind": "steps", "prelude": "", "setup": "", "bind": {"f": "f"}, "steps": list(asserts)}
    return box(Job({**bare, **program}, source, limits))


def stdin(box: Sandbox, source: str, *tests: tuple[str, str], limits: Limits = SHORT) -> Outcome:
    pairs = [{"input": given, "output": wanted} for given, wanted in tests]
    return box(Job({"kind": "stdin", "prelude": "", "tests": pairs}, source, limits))


def statuses(outcome: Outcome) -> list[str]:
    return [result.status for result in outcome.results]


def test_right_code_passes_and_wrong_code_fails(box: Sandbox) -> None:
    good = steps(box, "def f(x):\n    return x * x\n", "assert f(3) == 9", "assert f(0) == 0")
    assert good.passed and good.mode == "namespaces"
    bad = steps(box, "def f(x):\n    return None\n", "assert f(3) == 9", "assert f(0) == 0")
    assert not bad.passed and statuses(bad) == ["failed", "failed"]


def test_programs_read_input_and_are_compared_by_line(box: Sandbox) -> None:
    source = "a, b = map(int, input().split())\nprint(a + b)\n"
    assert stdin(box, source, ("1 2\n", "3\n"), ("4 5", "9")).passed
    assert statuses(stdin(box, source, ("1 2", "4"), ("4 5", "9"))) == ["failed", "passed"]


def test_no_tests_are_no_pass(box: Sandbox) -> None:
    assert not steps(box, "def f(x):\n    return x\n").passed


def test_code_that_does_not_load_is_an_error(box: Sandbox) -> None:
    assert statuses(steps(box, "def f(:\n", "assert f(1)", "assert f(2)")) == ["error", "not-run"]


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("import os\nos._exit(0)\n", id="at-load"),
        pytest.param("import os\ndef f(x):\n    os._exit(0)\n", id="in-a-call"),
    ],
)
def test_leaving_before_the_asserts_passes_nothing(box: Sandbox, source: str) -> None:
    outcome = steps(box, source, "assert f(1) == 1", "assert f(2) == 2")
    assert statuses(outcome) == ["crashed", "not-run"]


def test_exit_in_a_test_is_an_error(box: Sandbox) -> None:
    outcome = steps(box, "import sys\ndef f(x):\n    sys.exit(0)\n", "f(1)", "assert f(2) == 2")
    assert statuses(outcome) == ["error", "error"]
    outcome = steps(box, "def f(x):\n    return x\n", "import sys; sys.exit(0)", "assert f(2) == 2")
    assert statuses(outcome) == ["error", "passed"]


def test_exit_zero_without_output_is_a_wrong_answer(box: Sandbox) -> None:
    assert statuses(stdin(box, "import os\nos._exit(0)\n", ("1", "1"))) == ["failed"]


def test_patched_builtins_do_not_reach_the_asserts(box: Sandbox) -> None:
    source = (
        "import builtins, json\n"
        "for name in ('len', 'sorted', 'abs', 'all', 'any', 'isinstance', 'set', 'AssertionError'):\n"
        "    setattr(builtins, name, lambda *a, **k: True)\n"
        "def f(x):\n    return [3, 1, 2]\n"
    )
    outcome = steps(box, source, "assert sorted(f(1)) == [1, 2, 4]", "assert len(f(1)) == 4", "assert all([f(1) == 0])")
    assert not outcome.passed and "passed" not in statuses(outcome)


EQUALS_ALL = (
    "class Yes{base}:\n"
    "    def __eq__(self, other): return True\n"
    "    def __ne__(self, other): return False\n"
    "    def __hash__(self): return 7\n"
    "    def __lt__(self, other): return True\n"
    "def f(x):\n    return {value}\n"
)


@pytest.mark.parametrize(
    ("base", "value"),
    [("", "Yes()"), ("(int)", "Yes(5)"), ("(list)", "Yes([5])"), ("(str)", "Yes('5')"), ("", "[Yes()]"), ("", "Yes")],
)
def test_objects_that_equal_everything_equal_nothing(box: Sandbox, base: str, value: str) -> None:
    outcome = steps(box, EQUALS_ALL.format(base=base, value=value), "assert f(1) == 1", "assert f(1) == [1]")
    assert statuses(outcome) == ["failed", "failed"]


def test_forged_replies_are_only_values(box: Sandbox) -> None:
    source = (
        "import os\n"
        "for fd in range(3, 60):\n"
        '    try: os.write(fd, b\'{"done": true}\\n{"status": "passed", "detail": ""}\\n\' * 3)\n'
        "    except OSError: pass\n"
        "def f(x):\n    return x\n"
    )
    outcome = steps(box, source, "assert f(1) == 2", "assert f(1) == 3")
    assert "passed" not in statuses(outcome) and not outcome.passed


def test_replies_that_are_no_values_end_the_set(box: Sandbox) -> None:
    source = (
        "import sys\nsys.modules['orchestrator.scoring.confined.candidate']"
        '.json.dumps = lambda v: \'{"value": {"x": 1}}\'\n'
    )
    assert statuses(steps(box, source + "def f(x):\n    return x\n", "assert f(1) == 1")) == ["error"]


def test_signals_do_not_reach_the_judge(box: Sandbox) -> None:
    """The first process of a namespace takes no signal from inside but those that it handles: it must handle none."""
    source = "import os\nfor number in range(1, 65):\n    if number not in (17, 18): os.kill(1, number)\nprint(1)\n"
    assert stdin(box, source, ("", "1"), ("", "1")).passed


@pytest.mark.parametrize("limit", ["NOFILE", "NPROC", "FSIZE"])
def test_a_judge_that_its_program_breaks_gives_no_verdict_and_no_refusal(box: Sandbox, limit: str) -> None:
    """A refusal would end the scoring of every other answer."""
    source = f"import resource\nresource.prlimit(1, resource.RLIMIT_{limit}, (0, 0))\nprint(1)\n"
    outcome = stdin(box, source, ("x", "1"), ("x", "1"))
    assert not outcome.passed and outcome.broke == "no-verdict"


def test_nothing_is_read_from_the_judge_through_numpy(box: Sandbox) -> None:
    """`__array_interface__` is an address: numpy in the judge must not take it from the answer."""
    source = (
        "class Lie:\n"
        "    __array_interface__ = {'shape': (4,), 'typestr': '<f8', 'data': (4096, False), 'version': 3}\n"
        "def f():\n    return Lie()\n"
    )
    assert statuses(steps(box, source, "assert np.allclose(f(), 1.0)", setup="import numpy as np")) == ["error"]


def test_arrays_of_an_answer_are_compared_by_their_numbers(box: Sandbox) -> None:
    source = "import numpy\ndef f():\n    return numpy.array([1.0, 2.0])\n"
    asserts = ["assert np.allclose(f(), [1, 2])", "assert np.allclose(f(), [1, 3])"]
    assert statuses(steps(box, source, *asserts, setup="import numpy as np")) == ["passed", "failed"]


def test_an_answer_cannot_end_the_loop_of_its_test(box: Sandbox) -> None:
    outcome = steps(box, "def f(x):\n    raise StopIteration\n", "assert all(map(lambda x: f(x) == x, [1, 2]))")
    assert statuses(outcome) == ["error"]


def test_answers_are_compiled_as_modules_of_their_own(box: Sandbox) -> None:
    """A name that was never imported is an error in annotations, too; a future statement may begin a program."""
    assert statuses(steps(box, "def f(x: List[int]):\n    return x\n", "assert f(1) == 1")) == ["error"]
    source = "from __future__ import annotations\ndef f(x: List[int]):\n    return x\nprint(f(1))\n"
    program = {"kind": "stdin", "prelude": "import os\n", "tests": [{"input": "", "output": "1"}]}
    assert box(Job(program, source, SHORT)).passed


def test_any_system_exit_is_an_end_as_in_the_official_runner(box: Sandbox) -> None:
    assert stdin(box, "import sys\nprint(1)\nsys.exit(1)\n", ("", "1")).passed
    assert stdin(box, "print(1)\nexit()\n", ("", "1")).passed
    assert steps(box, "def f(x):\n    try: quit()\n    except SystemExit: return x\n", "assert f(1) == 1").passed
    assert statuses(stdin(box, "print(1)\nraise ValueError\n", ("", "1"))) == ["error"]


def test_fork_bomb(box: Sandbox) -> None:
    source = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass\n"
    assert statuses(stdin(box, source, ("", "x"), limits=Limits(cpu_s=1, wall_s=1)))[0] == "timeout"


def test_memory_hog_in_one_process(box: Sandbox) -> None:
    limits = Limits(cpu_s=5, wall_s=90, memory_bytes=256 << 20)
    assert statuses(steps(box, "def f(x):\n    return len(bytes(10**9))\n", "f(1)", limits=limits)) == ["memory"]
    hog = "x = []\nwhile True:\n    x.append(bytes(10**6))\n"
    assert statuses(stdin(box, hog, ("", "1"), limits=limits)) == ["memory"]


def test_memory_hog_in_many_processes(box: Sandbox) -> None:
    source = (
        "import os, time\n"
        "for _ in range(8):\n"
        "    if os.fork() == 0: break\n"
        "x = bytearray(b'x') * (100 << 20)\n"
        "time.sleep(80)\n"
    )
    outcome = stdin(box, source, ("", "1"), limits=Limits(cpu_s=10, wall_s=90, memory_bytes=300 << 20))
    assert outcome.broke == "memory" and not outcome.passed


def test_shared_memory_counts(box: Sandbox) -> None:
    source = (
        "import mmap, os, time\n"
        "for _ in range(6):\n"
        "    if os.fork() == 0: break\n"
        "x = mmap.mmap(-1, 100 << 20)\n"
        "for n in range(0, len(x), 4096): x[n] = 1\n"
        "time.sleep(30)\n"
    )
    outcome = stdin(box, source, ("", "1"), limits=Limits(cpu_s=10, wall_s=90, memory_bytes=300 << 20))
    assert outcome.broke == "memory"


def test_what_lies_in_sockets_counts(box: Sandbox) -> None:
    """It belongs to no process: twenty of them filled gigabytes in seconds."""
    source = (
        "import os, socket, time\n"
        "for _ in range(20):\n"
        "    if os.fork() == 0:\n"
        "        kept = []\n"
        "        while len(kept) < 50:\n"
        "            kept += socket.socketpair()\n"
        "            kept[-1].setblocking(False)\n"
        "            try:\n"
        "                while True: kept[-1].send(bytes(65536))\n"
        "            except BlockingIOError: pass\n"
        "        time.sleep(60)\n"
        "time.sleep(60)\n"
    )
    assert stdin(box, source, ("", ""), limits=Limits(cpu_s=20, wall_s=40, memory_bytes=200 << 20)).broke == "memory"


def test_programs_with_a_few_sockets_run(box: Sandbox) -> None:
    source = "import asyncio\nasync def main(): print(1)\nasyncio.run(main())\n"
    assert stdin(box, source, ("", "1")).passed


def test_values_that_keep_the_judge_busy_cost_their_own_verdict() -> None:
    """A forged set of numbers whose hashes collide: the judge would build it for minutes."""
    source = (
        "import sys\n"
        "items = ','.join(str(k * (2**61 - 1)) for k in range(60_000))\n"
        "sys.modules['orchestrator.scoring.confined.candidate'].json.dumps = "
        "lambda v: '{\"value\": {\"set\": [' + items + ']}}'\n"
        "def f(x):\n    return x\n"
    )
    outcome = steps(Sandbox(judge_s=1), source, "assert f(1) == 1", limits=Limits(cpu_s=1, wall_s=60))
    assert outcome.broke == "no-verdict" and 1 < outcome.wall_s < 45


def test_endless_output(box: Sandbox) -> None:
    outcome = stdin(box, "while True:\n    print('x' * 1000)\n", ("", "x"), ("", "y"))
    assert statuses(outcome) == ["output-limit", "not-run"]
    endless = "def f(x):\n    while True: print('x' * 1000)\n"
    assert statuses(steps(box, endless, "f(1)", limits=Limits(cpu_s=1, wall_s=30))) == ["timeout"]


def test_endless_threads(box: Sandbox) -> None:
    source = (
        "import threading, time\ndef f(x):\n    while True: threading.Thread(target=time.sleep, args=(60,)).start()\n"
    )
    assert statuses(steps(box, source, "f(1)", limits=Limits(cpu_s=2, wall_s=4))) in (["error"], ["timeout"])


def test_endless_loops_are_a_result_of_their_own(box: Sandbox) -> None:
    outcome = steps(box, "def f(x):\n    while True: pass\n", "f(1)", "f(2)", limits=Limits(cpu_s=1, wall_s=90))
    assert statuses(outcome) == ["timeout", "not-run"]
    outcome = steps(box, "import time\ndef f(x):\n    time.sleep(60)\n", "f(1)", limits=Limits(cpu_s=1, wall_s=1))
    assert statuses(outcome) == ["timeout"]


def test_a_test_that_hangs_the_judge_is_ended_from_outside(box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "_GRACE_S", 1.0)
    outcome = steps(box, "def f(x):\n    return x\n", "while True: pass", limits=Limits(cpu_s=1, wall_s=1))
    assert outcome.broke == "timeout" and not outcome.passed


def test_nothing_is_left_behind(box: Sandbox) -> None:
    """A daemon that ignores signals and left its session dies with the sandbox."""
    before = set(sandbox.descendants(os.getpid()))
    source = (
        "import os, signal, time\n"
        "def f(x):\n"
        "    if os.fork() == 0:\n"
        "        os.setsid()\n"
        "        for s in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT): signal.signal(s, signal.SIG_IGN)\n"
        "        if os.fork() == 0: time.sleep(3600)\n"
        "        time.sleep(3600)\n"
        "    return x\n"
    )
    assert steps(box, source, "assert f(1) == 1").passed
    assert set(sandbox.descendants(os.getpid())) == before
    commands = [p.read_bytes() for p in Path("/proc").glob("[0-9]*/cmdline") if p.exists()]
    assert not [c for c in commands if b"orchestrator.scoring.confined" in c and str(os.getpid()).encode() in c]


def test_a_test_meets_nothing_of_the_one_before(box: Sandbox) -> None:
    source = (
        "import os, time\n"
        "print(len(os.listdir('.')), len([p for p in os.listdir('/proc') if p.isdigit()]), flush=True)\n"
        "open('left', 'w').write('x')\n"
        "os.makedirs('closed/inner'); os.symlink('/proc', 'closed/link'); os.chmod('closed', 0)\n"
        "if os.fork() == 0:\n"
        "    os.closerange(0, 3)\n"
        "    time.sleep(99)\n"
    )
    assert stdin(box, source, ("", "0 2"), ("", "0 2")).passed


def test_a_sandbox_dies_with_its_owner(tmp_path: Path) -> None:
    """`kill -9` of the scorer must not leave answers running, beside the next campaign's timing."""
    script = (
        "from orchestrator.scoring.sandbox import Sandbox\n"
        "from campaigns.scorers.execution import Job, Limits\n"
        "program = {'kind': 'stdin', 'prelude': '', 'tests': [{'input': '', 'output': ''}]}\n"
        "Sandbox()(Job(program, 'import time; time.sleep(600)', Limits(cpu_s=200, wall_s=600)))\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], cwd=sandbox.ROOT) as owner:
        started = time.monotonic()
        while len(tree := sandbox.descendants(owner.pid)) < 3 and time.monotonic() < started + 60:
            time.sleep(0.05)
        owner.kill()
    if len(tree) < 3:
        pytest.skip("no sandbox on this machine")
    while (left := [pid for pid in tree if sandbox._is_alive(pid)]) and time.monotonic() < started + 90:
        time.sleep(0.05)
    assert not left


def test_nothing_can_be_written_outside_its_folder(box: Sandbox, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    source = (
        "import os\n"
        "def f(path):\n"
        "    try:\n"
        "        os.makedirs(os.path.dirname(path), exist_ok=True)\n"
        "        open(path, 'w').write('x')\n"
        "        return 'written'\n"
        "    except OSError as error:\n"
        "        return type(error).__name__\n"
    )
    outside = [str(tmp_path / "a"), "/a", "/usr/a", "/tmp/a", "/etc/a", "/dev/a", "/proc/sys/kernel/hostname"]
    asserts = [f"assert f({path!r}) != 'written', {path!r}" for path in outside]
    assert steps(box, source, *asserts, "assert f('inside/a') == 'written'").passed
    assert not list(tmp_path.iterdir())


def test_files_are_limited_in_size(box: Sandbox) -> None:
    source = "def f(n):\n    with open('a', 'wb') as file: return file.write(bytes(n))\n"
    limits = Limits(cpu_s=2, wall_s=90, file_bytes=1 << 20)
    outcome = steps(box, source, "assert f(1000) == 1000", "f(2 << 20)", limits=limits)
    assert statuses(outcome)[0] == "passed" and statuses(outcome)[1] in ("error", "crashed")


def test_the_store_cannot_be_read(box: Sandbox, tmp_path: Path) -> None:
    store = tmp_path / "campaigns.sqlite"
    store.write_text("facts")
    store.chmod(0o644)
    source = "import os\ndef f(path):\n    try: return open(path).read()\n    except OSError: return ''\n"
    paths = [str(store), f"/proc/1/root{store}", "/etc/passwd", f"/proc/1/cwd/{store}", *_of_usr()]
    assert steps(box, source, *[f"assert f({path!r}) == ''" for path in paths]).passed


def _of_usr() -> list[str]:
    """A file of each place below /usr where checkouts are put, and stores with them."""
    found = (next((p for p in Path(f).rglob("*") if p.is_file()), None) for f in ("/usr/src", "/usr/share", "/usr/etc"))
    return [str(path) for path in found if path]


def test_no_socket_can_be_reached(box: Sandbox, tmp_path: Path) -> None:
    source = (
        "import socket\n"
        "def f(family, address):\n"
        "    with socket.socket(family) as s:\n"
        "        s.settimeout(1)\n"
        "        try: s.connect(address)\n"
        "        except OSError: return 'refused'\n"
        "        return 'connected'\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind(f"\0sandbox-test-{os.getpid()}")
        abstract.listen()
        where = (f"f(2, ('127.0.0.1', {tcp.getsockname()[1]}))", f"f(1, '\\0sandbox-test-{os.getpid()}')")
        assert steps(box, source, *[f"assert {call} == 'refused'" for call in where]).passed


def test_only_sockets_that_a_network_namespace_confines_can_be_made(box: Sandbox) -> None:
    """AF_VSOCK (40) reaches the host of a virtual machine from every namespace, AF_ALG (38) drivers of the kernel."""
    source = (
        "import socket\n"
        "def f():\n"
        "    made = set()\n"
        "    for family in range(64):\n"
        "        for kind in (1, 2, 3, 5):\n"
        "            try: socket.socket(family, kind).close(); made.add(family)\n"
        "            except OSError: pass\n"
        "    return sorted(made)\n"
    )
    assert steps(box, source, "assert set(f()) <= {1, 2, 10} and 1 in f(), f()").passed


def test_code_runs_without_privileges(box: Sandbox) -> None:
    source = (
        "import os, ctypes\n"
        "def f(x):\n"
        "    status = dict(line.split(':\\t', 1) for line in open('/proc/self/status').read().splitlines())\n"
        "    unshare = ctypes.CDLL(None).unshare(0x10000000)\n"
        "    return [os.getuid(), int(status['CapEff'], 16), int(status['NoNewPrivs']), unshare]\n"
    )
    wanted = sandbox.UNPRIVILEGED_UID if os.getuid() == 0 else os.getuid()
    assert steps(box, source, f"assert f(1) == [{wanted}, 0, 1, -1], f(1)").passed


def test_memory_that_no_limit_counts_cannot_be_had(box: Sandbox) -> None:
    source = (
        "import os, ctypes\n"
        "def f(call):\n"
        "    libc = ctypes.CDLL(None, use_errno=True)\n"
        "    if call == 'memfd':\n"
        "        try: return os.memfd_create('x')\n"
        "        except OSError as error: return error.errno\n"
        "    calls = {\n"
        "        'shm': lambda: libc.shmget(0, 4096, 0o1666),\n"
        "        'msg': lambda: libc.msgget(0, 0o1666),\n"
        "        'sem': lambda: libc.semget(0, 100, 0o1666),\n"
        "        'mount': lambda: libc.mount(b't', b'/tmp', b'tmpfs', 0, b''),\n"
        "    }\n"
        "    return ctypes.get_errno() if calls[call]() < 0 else 0\n"
    )
    asserts = [f"assert f({call!r}) == 1, f({call!r})" for call in ("memfd", "shm", "msg", "sem", "mount")]
    assert steps(box, source, *asserts).passed


def test_the_judge_can_be_neither_killed_nor_traced(box: Sandbox) -> None:
    source = (
        "import os, signal, ctypes\n"
        "def f(x):\n"
        "    os.kill(1, signal.SIGKILL)\n"
        "    traced = ctypes.CDLL(None).ptrace(16, 1, 0, 0)\n"
        "    try: os.listdir('/proc/1/fd'); return 'readable'\n"
        "    except OSError: return traced\n"
    )
    assert steps(box, source, "assert f(1) == -1, f(1)").passed


def test_values_of_many_kinds_cross_unchanged(box: Sandbox) -> None:
    values = [
        "(1, [2, {3}], {'a': (None, True)})",
        "10**40",
        "-0.5",
        "float('inf')",
        "1+2j",
        "b'x'",
        "{1: {2: 3}, (4,): 'x'}",
        "frozenset({1})",
        "range(3)",
    ]
    assert steps(box, "def f(x):\n    return x\n", *[f"assert f({v}) == {v}" for v in values]).passed
    assert steps(box, "def f(x):\n    return (y for y in x)\n", "assert list(f([1, 2])) == [1, 2]").passed
    assert steps(
        box, "import collections\ndef f(x):\n    return collections.Counter(x)\n", "assert f('aa') == {'a': 2}"
    ).passed


def test_classes_of_the_answer_can_be_used_by_tests(box: Sandbox) -> None:
    source = "class Node:\n    def __init__(self, v): self.v = v; self.next = None\ndef f(n):\n    return n.next.v\n"
    bind = {"f": "f", "Node": "Node"}
    assert steps(box, source, "n = Node(1); n.next = Node(2); assert f(n) == 2", bind=bind).passed


def test_classes_of_the_prelude_cross_by_value(box: Sandbox) -> None:
    prelude = "class Node:\n    def __init__(self, v, next=None):\n        self.v = v; self.next = next\n"
    source = "def f(n):\n    return Node(n.v + 1, n.next)\n"
    step = "r = f(Node(1, Node(5))); assert type(r) is Node and (r.v, r.next.v) == (2, 5)"
    assert steps(box, source, step, prelude=prelude).passed


def _public_python() -> str:
    """An interpreter that every uid may run; root's own may lie in a closed folder."""
    return next((p for p in ("/usr/bin/python3.12", "/usr/bin/python3.11") if Path(p).exists()), sys.executable)


def test_packages_of_this_environment_can_be_imported_on_both_sides(box: Sandbox) -> None:
    source = "import numpy\ndef f(x):\n    return numpy.float64(x)\n"
    setup = "import numpy as np"
    assert steps(box, source, "assert np.allclose(f(0.5), 0.5 + 1e-9)", setup=setup).passed


def test_an_interpreter_that_runs_nothing_is_a_refusal_and_no_wrong_answer() -> None:
    assert "does not pass inside" in Sandbox(python="/bin/false").refusal()


def test_weak_mode_is_named_and_still_limited() -> None:
    weak = Sandbox(Mode.WEAK, python=_public_python())
    if weak.refusal():
        pytest.skip(weak.refusal())
    outcome = steps(weak, "def f(x):\n    return x\n", "assert f(1) == 1")
    assert outcome.passed and outcome.mode == "weak"
    assert statuses(steps(weak, "import os\nos._exit(0)\n", "assert f(1)")) == ["crashed"]
    loop = steps(weak, "def f(x):\n    while True: pass\n", "f(1)", limits=Limits(cpu_s=1, wall_s=90))
    assert statuses(loop) == ["timeout"]


_MURDER = (
    "import os, time\n"
    "def f(x):\n"
    "    for _ in range(80):\n"
    "        for pid in map(int, filter(str.isdigit, os.listdir('/proc'))):\n"
    "            try:\n"
    "                if pid not in (os.getpid(), os.getppid()) and os.stat(f'/proc/{pid}').st_uid == os.getuid():\n"
    "                    os.kill(pid, 9)\n"
    "            except OSError: pass\n"
    "        time.sleep(0.01)\n"
    "    return 1\n"
)


@pytest.mark.skipif(os.getuid() != 0, reason="others run one at a time as themselves, and may end what is theirs")
@pytest.mark.parametrize("own_uids", [True, False])
def test_in_weak_mode_answers_cannot_end_each_other(monkeypatch: pytest.MonkeyPatch, own_uids: bool) -> None:
    """Neither with a uid each, nor one at a time."""
    monkeypatch.setattr(sandbox, "_may_become", lambda uid: own_uids)
    weak = Sandbox(Mode.WEAK, python=_public_python(), uid=54321)  # whatever else runs on this host is another's
    if weak.refusal():
        pytest.skip(weak.refusal())
    with ThreadPoolExecutor(2) as pool:
        murderer = pool.submit(steps, weak, _MURDER, "assert f(1) == 1")
        innocent = pool.submit(
            steps, weak, "import time\ndef f(x):\n    time.sleep(0.3)\n    return 1\n", "assert f(1) == 1"
        )
        assert innocent.result().passed and murderer.result().passed


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else; others are an ordinary user anyway")
def test_an_ordinary_user_gets_the_same_walls(box: Sandbox) -> None:
    script = (
        f"import sys; sys.path.insert(0, {str(sandbox.ROOT)!r})\n"
        "from orchestrator.scoring.sandbox import Sandbox\n"
        "from campaigns.scorers.execution import Job\n"
        'source = \'import os\\ndef f(x): return [os.getuid(), os.path.exists("/etc/passwd"), os.listdir(".")]\'\n'
        "job = Job({'kind': 'steps', 'prelude': '', 'setup': '', 'bind': {'f': 'f'},\n"
        "           'steps': ['assert f(1) == [12345, False, []], f(1)']}, source)\n"
        "print(Sandbox()(job))\n"
    )
    command = [_public_python(), "-S", "-c", script]
    done = subprocess.run(command, user=12345, group=12345, extra_groups=[], capture_output=True, text=True, cwd="/")
    if "PermissionError" in done.stderr or "Permission denied" in done.stderr:
        pytest.skip("this checkout or the interpreter lies where only root may read")
    assert "passed" in done.stdout, done.stdout + done.stderr


def test_a_refusing_kernel_runs_no_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Inside a sandbox there are no user namespaces, so a sandbox in there is refused: by the real kernel."""
    monkeypatch.setattr(sandbox, "_START", "import sys; sys.path.insert(0, {root!r})\n" + _WITHOUT_NAMESPACES)
    mark = tmp_path / "ran"
    tmp_path.chmod(0o777)
    with pytest.raises(SandboxRefused, match=r"sandbox\.mode=weak"):
        steps(Sandbox(), f"open({str(mark)!r}, 'w')\ndef f(x):\n    return x\n", "assert f(1) == 1")
    assert not mark.exists()


_WITHOUT_NAMESPACES = """
import os
from orchestrator.scoring.confined import kernel, walls
if os.geteuid() == 0:
    walls._drop_uid(65534)
uid, gid = os.geteuid(), os.getegid()
kernel.unshare(kernel.CLONE_NEWUSER, "user")
walls._map_ids(uid, gid)
walls._write("/proc/sys/user/max_user_namespaces", "0")
kernel.drop_capabilities()
walls.main({fd})
"""
