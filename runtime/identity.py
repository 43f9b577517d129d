"""What makes two server lives the same thing: hashes of source, weights and mapped libraries, and process marks.

Reads files and /proc only. Knows nothing of torch, HTTP or the engine: versions and devices are told by the workers.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

DISTRIBUTION = "dflash2-campaigns"
PACKAGES = ("kernels", "runtime")
TOKENIZER_FILES = (
    "added_tokens.json",
    "chat_template.jinja",
    "merges.txt",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.json",
)
# Variables that change numbers or speed. The others may hold secrets and are not reported.
_ENVIRONMENT_PREFIXES = (
    "CUBLAS", "CUDA_", "CUDNN", "DNNL_", "GLOO_", "GOMP_", "KMP_", "LD_", "MALLOC_", "MKL_", "NCCL_", "NVIDIA_",
    "OMP_", "ONEDNN_", "OPENBLAS_", "PYTHON", "PYTORCH_", "TORCH", "TRITON_",
)  # fmt: skip


def version() -> str:
    """Of the installed project; raises `importlib.metadata.PackageNotFoundError` where it was never installed."""
    return importlib.metadata.version(DISTRIBUTION)


def _is_source(relative: Path) -> bool:
    hidden_or_cache = any(part.startswith(".") or part == "__pycache__" for part in relative.parts)
    return not hidden_or_cache and relative.suffix not in {".pyc", ".pyo"}


def tree_files(root: Path, below: Iterable[str] = ("",)) -> Iterator[Path]:
    """Files under `root`/`below`, without byte code and hidden ones."""
    for folder in below:
        for path in (root / folder).rglob("*"):
            if path.is_file() and _is_source(path.relative_to(root)):
                yield path


def tree_sha256(root: Path, files: Iterable[Path]) -> str:
    """SHA-256 over the lines `path NUL sha256-of-content LF`, sorted by the path relative to `root`."""
    digest = hashlib.sha256()
    for name, path in sorted((path.relative_to(root).as_posix(), path) for path in files):
        digest.update(f"{name}\0{file_sha256(path)}\n".encode())
    return digest.hexdigest()


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def source_sha256() -> str:
    root = Path(__file__).resolve().parent.parent
    return tree_sha256(root, tree_files(root, PACKAGES))


def folder_sha256(folder: Path) -> str:
    return tree_sha256(folder, tree_files(folder))


def tokenizer_sha256(model_dir: Path) -> str:
    files = [model_dir / name for name in TOKENIZER_FILES]
    return tree_sha256(model_dir, [path for path in files if path.is_file()])


def start_ticks(pid: int) -> int:
    """When the process started, in clock ticks since boot (proc(5), stat field 22)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[19])


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def numeric_environment(environment: Mapping[str, str]) -> dict[str, str]:
    return {k: v for k, v in sorted(environment.items()) if k.startswith(_ENVIRONMENT_PREFIXES)}


class MappedLibraries:
    """Shared objects that a process has mapped, with their hashes; a hash is kept per inode, size and mtime."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int, int, int], str] = {}

    def of(self, pid: int) -> list[tuple[str, str]]:
        """(path, sha256) sorted by path. A file deleted or replaced since it was mapped has sha256 ''."""
        return [(path, self._sha256(path)) for path in sorted(self._mapped(pid))]

    @staticmethod
    def _mapped(pid: int) -> set[str]:
        lines = [line.split(maxsplit=5) for line in Path(f"/proc/{pid}/maps").read_text().splitlines()]
        return {fields[5] for fields in lines if len(fields) == 6 and _is_library(fields[5])}

    def _sha256(self, path: str) -> str:
        # The kernel appends " (deleted)" to the path of a file that was unlinked or renamed over: no such file here.
        try:
            stat = Path(path).stat()
            key = (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns)
            if key not in self._known:
                self._known[key] = file_sha256(Path(path))
        except OSError:
            return ""
        return self._known[key]


def _is_library(path: str) -> bool:
    if not path.startswith("/"):
        return False
    name = path.removesuffix(" (deleted)").rpartition("/")[2]
    return name.endswith((".so", ".cubin")) or ".so." in name
