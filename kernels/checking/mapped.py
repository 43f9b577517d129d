"""Whether another process sees memory that a library has made for others, by the handle it gave.

`python mapped.py LIBRARY ENTRY HANDLE BYTES` maps it there and prints a hash of what it finds. Needs no torch.
"""

from __future__ import annotations

import ctypes
import hashlib
import subprocess
import sys
from pathlib import Path

LIMIT_S = 60.0


def hash_at(address: int, size_bytes: int) -> str:
    """Of memory of the current device."""
    host = ctypes.create_string_buffer(size_bytes)
    code = ctypes.CDLL("libcuda.so.1").cuMemcpyDtoH_v2(host, ctypes.c_uint64(address), ctypes.c_size_t(size_bytes))
    return hashlib.sha256(host.raw).hexdigest() if code == 0 else f"error {code} of the copy"


def hash_of(library: str, entry: str, handle: str, size_bytes: int) -> str:
    """Of what `handle` maps into this process, which has nothing of CUDA yet."""
    address = ctypes.c_void_p()
    code = getattr(ctypes.CDLL(library), entry)(bytes.fromhex(handle), ctypes.byref(address))
    return hash_at(address.value or 0, size_bytes) if code == 0 else f"error {code} of the mapping"


def difference(library: Path, entry: str, handle: bytes, address: int, size_bytes: int) -> str | None:
    """What is wrong with another process's view of `address`, or None."""
    command = [sys.executable, __file__, str(library), entry, handle.hex(), str(size_bytes)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    there, here = done.stdout.strip() or f"exit status {done.returncode}", hash_at(address, size_bytes)
    return None if there == here else f"another process sees {there}, this one {here}"


if __name__ == "__main__":
    print(hash_of(*sys.argv[1:4], int(sys.argv[4])))
