"""System calls that generated code may not make: ways to memory that no limit counts, and doors out of the namespaces.

A seccomp filter, inherited by everything that the program starts. Refused calls fail with EPERM. Sockets are refused by
family: a network namespace does not hold all of them, and AF_VSOCK reaches the host of a virtual machine.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

from orchestrator.scoring.confined.kernel import Refused

# name: (x86_64, aarch64), from <asm/unistd.h>
CALLS = {
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "ptrace": (101, 117),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
}
SOCKET = (41, 198)
FAMILIES = (1, 2, 10)  # AF_UNIX, AF_INET, AF_INET6: those that the network namespace confines
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # column of CALLS, AUDIT_ARCH_*
_X32 = 0x40000000  # a second numbering of the same calls on x86_64
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data, both machines being little-endian
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050000 | errno.EPERM, 0x80000000
_PR_SET_SECCOMP, _FILTER = 22, 2
_Step = tuple[int, int | str, int | str, int]  # code, jump if true, jump if false, operand; jumps by name or distance


def program(machine: str) -> bytes:
    """The filter as BPF instructions; empty on other machines."""
    if machine not in _ARCHITECTURES:
        return b""
    column, audit = _ARCHITECTURES[machine]
    refused: list[_Step] = [(_EQUAL, "refuse", 0, call[column]) for call in CALLS.values()]
    allowed: list[_Step] = [(_EQUAL, "allow", 0, family) for family in FAMILIES]
    steps: list[_Step] = [(_LOAD, 0, 0, _ARCHITECTURE), (_EQUAL, 1, 0, audit), (_RETURN, 0, 0, _KILL)]
    steps += [(_LOAD, 0, 0, _NUMBER), (_AT_LEAST, "refuse", 0, _X32), *refused]
    steps += [(_EQUAL, 0, "allow", SOCKET[column]), (_LOAD, 0, 0, _FIRST_ARGUMENT), *allowed]
    ends = {"refuse": len(steps), "allow": len(steps) + 1}
    steps += [(_RETURN, 0, 0, _REFUSE), (_RETURN, 0, 0, _ALLOW)]
    return b"".join(
        struct.pack("=HBBI", code, *(ends[jump] - at - 1 if isinstance(jump, str) else jump for jump in jumps), operand)
        for at, (code, *jumps, operand) in enumerate(steps)
    )


def apply() -> None:
    """For this process and all that it starts, for good. Needs no_new_privileges before."""
    code = program(os.uname().machine)
    if not code:
        return
    instructions = ctypes.create_string_buffer(code, len(code))
    wanted = struct.pack("@HP", len(code) // 8, ctypes.addressof(instructions))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_SECCOMP, _FILTER, ctypes.create_string_buffer(wanted, len(wanted)), 0, 0):
        raise Refused(f"prctl(SECCOMP): {os.strerror(ctypes.get_errno())}")
