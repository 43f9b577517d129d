"""What this machine can do for a campaign, row by row: ok, warning or fault, with the remedy.

A fault is what makes `campaign run` fail here, a warning what may spoil or limit a measurement. Every check looks at
the thing itself (starts Ray, runs confined code, takes a lock) rather than at a version number. A check that breaks is
a fault of its own row and does not stop the others. Knows no campaign.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from campaigns.errors import CampaignError, UsageError
from campaigns.plan import LeasePlan
from orchestrator.checkouts.places import ROOT
from orchestrator.diagnosis.row import Level, Row
from orchestrator.hosts.devices.cpu import CpuInventory
from orchestrator.hosts.devices.inventory import open_inventory
from orchestrator.hosts.lease import obstacle
from orchestrator.hosts.locks import LockFolder
from orchestrator.preparation import installed
from orchestrator.scoring.sandbox import Mode, Sandbox

_SLOW_S = 120.0
_GIB = 1 << 30
_TORCH = (
    "import json, torch; print(json.dumps({'version': torch.__version__, 'cuda': torch.version.cuda, "
    "'available': torch.cuda.is_available(), 'threads': torch.get_num_threads()}))"
)


@dataclass(frozen=True)
class Scope:
    """What to look at. `with_ray` starts a private Ray, which takes some ten seconds."""

    outputs: Path
    lock_dir: str = ""
    inventory: str = "auto"
    model: Path | None = None  # a checkpoint; None: those that ship with the project
    with_ray: bool = True


Check = Callable[[Scope], Iterator[Row]]


def examine(scope: Scope) -> Iterator[Row]:
    """Rows in order, each as soon as it is known."""
    for subject, check in CHECKS:
        try:
            yield from check(scope)
        except UsageError:
            raise  # the scope makes no sense: that says nothing about the machine
        except CampaignError as error:
            yield Row(subject, Level.FAULT, str(error))
        except Exception as error:
            yield Row(subject, Level.FAULT, f"the check failed: {error!r}", "report this as a bug")


def _python(scope: Scope) -> Iterator[Row]:
    found = f"{platform.python_version()} in {sys.prefix}"
    if sys.prefix == sys.base_prefix:
        yield Row("Python", Level.WARNING, found, "use an environment of its own: make setup")
    else:
        yield Row("Python", Level.OK, found)
    names = {name.lower() for d in metadata.distributions() if (name := d.metadata["Name"])}
    if not installed.is_installed():
        yield Row("packages", Level.FAULT, installed.MISSING, installed.REMEDY)
    if "kernels" in names:
        yield Row("packages", Level.FAULT, "the distribution `kernels` shadows ours", "pip uninstall kernels")
    if "pynvml" in names:
        yield Row("packages", Level.WARNING, "the deprecated distribution `pynvml`", "pip uninstall pynvml")


def _torch(scope: Scope) -> Iterator[Row]:
    """In a process of its own: the control plane does not import torch."""
    command = [sys.executable, "-c", _TORCH]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=_SLOW_S, cwd="/")
    if answer.returncode != 0:
        last = (answer.stderr.strip().splitlines() or ["no message"])[-1]
        yield Row("torch", Level.FAULT, f"cannot be imported: {last}", "make setup")
        return
    torch = json.loads(answer.stdout)
    found = f"{torch['version']}, {torch['threads']} threads"
    yield Row("torch", Level.OK, found)
    with open_inventory(scope.inventory) as inventory:
        has_gpus = not isinstance(inventory, CpuInventory)
    if torch["available"]:
        yield Row("CUDA", Level.OK, f"torch reaches it, built for {torch['cuda']}")
    elif has_gpus:
        remedy = "install a CUDA build of torch that the driver supports"
        yield Row("CUDA", Level.WARNING, f"there are GPUs, but torch (CUDA {torch['cuda']}) reaches none", remedy)
    else:
        yield Row("CUDA", Level.OK, "not here; the runtime uses the CPU")


def _compilers(scope: Scope) -> Iterator[Row]:
    homes = [os.environ.get("CUDA_HOME", ""), "/usr/local/cuda"]
    nvcc = shutil.which("nvcc") or next((p for home in homes if home and Path(p := f"{home}/bin/nvcc").is_file()), None)
    for name, path, need in (("C++", shutil.which("g++"), "g++"), ("nvcc", nvcc, "the CUDA toolkit")):
        if path:
            said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=_SLOW_S).stdout
            wanted = next((line for line in said.splitlines() if "release" in line), said.splitlines()[0])
            yield Row(name, Level.OK, f"{wanted.strip()} ({path})")
        else:
            remedy = f"install {need} for native schedules; torch schedules need none"
            yield Row(name, Level.WARNING, "not found", remedy)


def _devices(scope: Scope) -> Iterator[Row]:
    from orchestrator.diagnosis.gpu import gpu_rows

    with open_inventory(scope.inventory) as inventory:
        on_cpu = isinstance(inventory, CpuInventory)
        if on_cpu:
            yield Row("NVML", Level.OK, "no visible GPU; the device is the CPU")
        else:
            yield Row("NVML", Level.OK, f"driver {inventory.driver}")
        for note in getattr(inventory, "notes", ()):
            yield Row("NVML", Level.WARNING, note)
        for device in inventory.devices():
            subject = f"device {device.index}"
            size = f"{device.memory_bytes / _GIB:.0f} GiB, " if device.memory_bytes else ""
            yield Row(subject, Level.OK, f"{device.name}, {size}{device.uuid}")
            fault = obstacle(LockFolder(scope.lock_dir), inventory, device)
            if fault:
                yield Row(subject, Level.WARNING, fault, "end that, or lease another with lease.indices")
            yield from gpu_rows(inventory, device)
    if on_cpu:
        yield from _cpu()


def _cpu() -> Iterator[Row]:
    load, cpus = os.getloadavg()[0], len(os.sched_getaffinity(0))
    found = f"load {load:.1f} on {cpus} CPUs"
    if load > cpus / 2:
        yield Row("load", Level.WARNING, found, "wait until nothing else runs: times on a busy CPU mean little")
    else:
        yield Row("load", Level.OK, found)


def _ray(scope: Scope) -> Iterator[Row]:
    from orchestrator.diagnosis.net import listening
    from orchestrator.hosts.reaper import descendants
    from orchestrator.startups.cluster import connect

    version = metadata.version("ray")
    if not scope.with_ray:
        yield Row("Ray", Level.OK, f"{version}, not started")
        return
    with connect(LeasePlan(inventory=scope.inventory)):
        sockets = listening([os.getpid(), *descendants(os.getpid())])
    yield Row("Ray", Level.OK, f"{version} starts")
    exposed = sorted({s for s in sockets if not s.is_local})
    if exposed:
        found = f"listens on {', '.join(map(str, exposed))} while a campaign runs"
        remedy = "Ray asks for a token (RAY_AUTH_MODE); shut these ports to other hosts all the same"
        yield Row("Ray", Level.WARNING, found, remedy)


def _disk(scope: Scope) -> Iterator[Row]:
    folder = scope.outputs.absolute()
    while not folder.exists():
        folder = folder.parent
    free_bytes = shutil.disk_usage(folder).free
    found = f"{free_bytes / _GIB:.1f} GiB free for {scope.outputs}"
    if not os.access(folder, os.W_OK):
        yield Row("disk", Level.FAULT, f"{folder} cannot be written", "choose another place with --store")
    elif free_bytes < _GIB // 2:
        yield Row("disk", Level.FAULT, found, "free some space, or choose another place with --store")
    elif free_bytes < 5 * _GIB:
        yield Row("disk", Level.WARNING, found, "a corpus campaign and its logs may fill it")
    else:
        yield Row("disk", Level.OK, found)


def _locks(scope: Scope) -> Iterator[Row]:
    folder = LockFolder(scope.lock_dir)
    held = [uuid for uuid in folder.uuids() if folder.is_held(uuid)]
    yield Row("locks", Level.OK, f"{folder.path}: {len(held)} held of {len(folder.uuids())} known")
    for uuid in held:
        yield Row("locks", Level.WARNING, f"{uuid} is held by {folder.holder(uuid)}", "wait, or lease another device")
    for uuid in folder.uuids():
        if mark := folder.mark(uuid):
            yield Row("locks", Level.WARNING, f"{uuid} is marked: {mark.reason}", "campaign lease list")


def _sandbox(scope: Scope) -> Iterator[Row]:
    refusal = Sandbox(Mode.NAMESPACES).refusal()
    if not refusal:
        yield Row("sandbox", Level.OK, "namespaces confine generated code")
        return
    weak = Sandbox(Mode.WEAK).refusal()
    level = Level.FAULT if weak else Level.WARNING
    remedy = "allow unprivileged user namespaces, or score elsewhere; sandbox.mode=weak only for code that you trust"
    yield Row("sandbox", level, f"{refusal}{'; nor in mode weak: ' + weak if weak else ''}", remedy)


def _tokenizer(scope: Scope) -> Iterator[Row]:
    folders = [scope.model] if scope.model else sorted((ROOT / "runtime" / "checkpoints").iterdir())
    yield from (_tokenizer_of(folder) for folder in folders)


def _tokenizer_of(folder: Path) -> Row:
    """Whether a text survives the way to token ids and back."""
    from tokenizers import Tokenizer

    path = folder / "tokenizer.json"
    if not path.is_file():
        remedy = "name a checkpoint folder with --model; a server's own /tokenize can stand in for the files"
        return Row("tokenizer", Level.WARNING, f"no {path}", remedy)
    tokenizer = Tokenizer.from_file(str(path))
    text = "A line of text, 42.\n"
    back = tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=True)
    if back.strip() == text.strip():
        return Row("tokenizer", Level.OK, f"{tokenizer.get_vocab_size()} tokens, {folder}")
    return Row("tokenizer", Level.WARNING, f"{path} does not give a text back: {back!r}", "check the checkpoint")


CHECKS: tuple[tuple[str, Check], ...] = (
    ("Python", _python),
    ("torch", _torch),
    ("compilers", _compilers),
    ("devices", _devices),
    ("Ray", _ray),
    ("disk", _disk),
    ("locks", _locks),
    ("sandbox", _sandbox),
    ("tokenizer", _tokenizer),
)
