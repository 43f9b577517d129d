"""System calls that generated code may not make: ways to memory that no limit counts, and doors into the kernel.

A seccomp filter, inherited by everything that the program starts. Refused calls fail with EPERM.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

from orchestrator.confined.kernel import Refused

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
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # column of CALLS, AUDIT_ARCH_*
_X32 = 0x40000000  # a second numbering of the same calls on x86_64
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050000 | errno.EPERM, 0x80000000
_PR_SET_SECCOMP, _FILTER = 22, 2


def program(machine: str) -> bytes:
    """The filter as BPF instructions (code, jump if true, jump if false, operand); empty on other machines."""
    if machine not in _ARCHITECTURES:
        return b""
    column, audit = _ARCHITECTURES[machine]
    numbers = [call[column] for call in CALLS.values()]
    steps = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, audit), (_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, 0)]
    steps += [(_AT_LEAST, len(numbers) + 1, 0, _X32)]
    steps += [(_EQUAL, len(numbers) - position, 0, number) for position, number in enumerate(numbers)]
    steps += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _REFUSE)]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


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
