"""`python -m runtime.server`: the process that speaks HTTP. It starts one engine process per rank and ends with them.

Never imports torch: parsing, templates and SSE run here, beside the engine and not in its way.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import errno
import importlib.metadata
import ipaddress
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from kernels.command_line import Parser
from runtime.errors import ModelError
from runtime.http.app import Limits, build_app
from runtime.http.requests.defaults import Defaults
from runtime.http.service import Service
from runtime.http.transport.connections import ConnectionLimits, bounded
from runtime.http.transport.door import own_names
from runtime.identity import DISTRIBUTION, version
from runtime.speculation.modes import MODES
from runtime.workers.client import EngineClient

_GRACE_SECONDS = 2  # for requests in flight when the server is stopped
_LEFT_SECONDS = 1  # for telling those that are left
_NEVER_INSTALLED = (
    f"this tree was never installed: there is no distribution {DISTRIBUTION}; "
    f"make setup, or pip install -e {Path(__file__).resolve().parent.parent}"
)
CANNOT_LISTEN = 3  # exit code


@dataclass(frozen=True)
class ServerOptions:
    model: Path
    port: int
    host: str
    served_model_name: str
    tensor_parallel_size: int
    max_model_len: int | None
    device: str
    dtype: str
    kv_cache_dtype: str | None
    keep_quantised: bool
    threads: int
    audit_ranks: bool
    rank_timeout: float
    speculation: str | None
    num_speculative_tokens: int | None
    lookup_rows: int
    max_waiting: int
    max_body_bytes: int
    trace_dir: Path | None
    max_connections: int
    header_timeout: float
    body_timeout: float
    allowed_host: list[str]
    prompt_state: str
    api_key: str | None

    def worker_arguments(self) -> list[str]:
        arguments = [f"--model={self.model}", f"--device={self.device}", f"--dtype={self.dtype}"]
        arguments += [f"--threads={self.threads}", f"--prompt-state={self.prompt_state}"]
        arguments += [f"--rank-timeout={self.rank_timeout}", f"--lookup-rows={self.lookup_rows}"]
        if self.audit_ranks:
            arguments.append("--audit-ranks")
        if self.keep_quantised:
            arguments.append("--keep-quantised")
        if self.max_model_len is not None:
            arguments.append(f"--max-model-len={self.max_model_len}")
        if self.kv_cache_dtype is not None:
            arguments.append(f"--kv-cache-dtype={self.kv_cache_dtype}")
        return arguments

    def speculation_asked(self) -> dict[str, str | int | None]:
        return {"speculation": self.speculation, "num_speculative_tokens": self.num_speculative_tokens}

    def worker_environment(self) -> dict[str, str]:
        """Torch reads its thread count when it loads, so a worker's environment states it too. Ranks share one host."""
        own = {"OMP_NUM_THREADS": str(self.threads), "PYTHONUNBUFFERED": "1", "GLOO_SOCKET_IFNAME": "lo"}
        return {**os.environ, **own}


def parse_options(arguments: list[str] | None = None) -> ServerOptions:
    parser = Parser(prog="python -m runtime.server", description=__doc__, allow_abbrev=False)
    parser.add_argument(
        "--model", type=Path, required=True, help="folder in Hugging Face layout, a drafter in drafter/"
    )
    parser.add_argument("--port", type=_port, required=True, help="0 lets the system choose, and says which")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--served-model-name", help="default: the folder's name")
    parser.add_argument("--tensor-parallel-size", type=_positive, default=1, metavar="N")
    parser.add_argument("--max-model-len", type=_positive, metavar="N", help="default: the checkpoint's capacity")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--dtype", choices=["float32", "bfloat16", "float16"], default="float32")
    parser.add_argument("--kv-cache-dtype", help="default: the engine's choice for the dtype")
    kept = "4-bit and FP8 linears stay as they are stored"
    parser.add_argument("--keep-quantised", "--keep-nvfp4", action="store_true", help=kept)
    parser.add_argument("--threads", type=_positive, default=1, help="CPU threads per engine process")
    parser.add_argument("--audit-ranks", action="store_true", help="compare every sampled token among the ranks")
    parser.add_argument(
        "--rank-timeout",
        type=_seconds,
        default=30.0,
        metavar="SECONDS",
        help="a rank that a publication waits for longer ends the server",
    )
    parser.add_argument(
        "--speculation", choices=MODES, help="of requests and arms that name none; default: dflash with a drafter"
    )
    parser.add_argument("--num-speculative-tokens", type=_positive, metavar="N", help="default: the drafter's block")
    parser.add_argument(
        "--lookup-rows",
        type=int,
        choices=(8, 16),
        default=8,
        help="16: speculation lookup may verify up to 15 drafts, if num_speculative_tokens asks for so many (CPU)",
    )
    parser.add_argument("--max-waiting", type=_positive, default=64, help="queued requests before 429")
    parser.add_argument("--max-body-bytes", type=_positive, default=4 << 20)
    parser.add_argument(
        "--trace-dir", type=Path, metavar="DIR", help="keep a Chrome trace per arm, of its first profiled request"
    )
    parser.add_argument("--max-connections", type=_positive, default=ConnectionLimits.max_open, help="before 503")
    for part, default in (("header", ConnectionLimits.header_s), ("body", ConnectionLimits.body_s)):
        told = f"for a request's {part} as a whole, before 408"
        parser.add_argument(f"--{part}-timeout", type=_seconds, default=default, metavar="SECONDS", help=told)
    named = "a name under which this server may be asked, beside localhost, the host's own and addresses"
    parser.add_argument("--allowed-host", action="append", default=[], metavar="NAME", help=named)
    parser.add_argument(
        "--prompt-state",
        choices=["computed", "snapshot", "shared"],
        default="computed",
        help="snapshot: a prompt that comes again under the same schedules is copied back instead of computed; shared: "
        "under any, since every prompt is computed by the schedules that run unasked",
    )
    parser.add_argument("--api-key-file", type=Path, help="file whose only line clients must send as bearer key")
    given = parser.parse_args(arguments)
    values = vars(given)
    key_file = values.pop("api_key_file")
    values["model"] = _model_folder(parser, given.model)
    if given.trace_dir is not None and not given.trace_dir.is_dir():
        parser.error(f"--trace-dir {given.trace_dir} is no folder; make it first")
    values["trace_dir"] = given.trace_dir and given.trace_dir.resolve()
    values["served_model_name"] = given.served_model_name or given.model.resolve().name
    return ServerOptions(**values, api_key=_read_key(parser, key_file))


def main(arguments: list[str] | None = None) -> int:
    options = parse_options(arguments)
    if not _is_loopback(options.host):
        print(f"warning: listening on {options.host}, reachable from other machines", file=sys.stderr)
    if not _installed():
        print(f"error: {_NEVER_INSTALLED}", file=sys.stderr)
        return 1
    try:
        listener = listen(options.host, options.port)
    except OSError as error:
        print(f"error: {_unheard(options, error)}", file=sys.stderr)
        return CANNOT_LISTEN
    server = Server(options)
    try:
        server.run(listener)
    except KeyboardInterrupt:
        return 130
    if server.death is not None:
        print(f"error: {server.death}", file=sys.stderr)
        return 1
    return 0


def _installed() -> bool:
    try:
        version()
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def listen(host: str, port: int) -> socket.socket:
    """The server's socket, taken before an engine starts: a port that is not to be had costs no loading of weights."""
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    return socket.create_server(address[:2], family=family)


def _unheard(options: ServerOptions, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {options.port} of {options.host} is taken; choose another with --port"
    why = str(error.strerror).partition(" (while")[0]  # the library repeats the address
    return f"cannot listen on {options.host}:{options.port} ({why}); choose another --host or --port"


class _Draining(uvicorn.Server):
    """Stopped, it gives requests in flight a grace; then `refuse` tells the others, whom uvicorn would cancel."""

    def __init__(self, config: uvicorn.Config, refuse: Callable[[], None]) -> None:
        super().__init__(config)
        self._refuse = refuse

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        refusing = asyncio.get_running_loop().call_later(_GRACE_SECONDS, self._refuse)
        try:
            await super().shutdown(sockets)
        finally:
            refusing.cancel()


class Server:
    """uvicorn around the application, with the engine's life inside the application's."""

    def __init__(self, options: ServerOptions) -> None:
        self.death: str | None = None
        self._options = options
        self._client = EngineClient(options.tensor_parallel_size, options.max_waiting, self._engine_died)
        asked = options.speculation_asked()
        self._service = Service(self._client, options.model, options.served_model_name, asked, traces=options.trace_dir)
        names = own_names(options.host, options.allowed_host)
        limits = Limits(options.max_body_bytes, options.api_key, names)
        connections = ConnectionLimits(options.max_connections, options.header_timeout, options.body_timeout)
        config = uvicorn.Config(
            build_app(self._service, limits, self._lifespan),
            log_level="warning",
            access_log=False,
            loop="asyncio",
            http=bounded(connections),
            ws="none",
            lifespan="on",
            timeout_graceful_shutdown=_GRACE_SECONDS + _LEFT_SECONDS,
        )
        self._uvicorn = _Draining(config, self._client.refuse)

    def run(self, listener: socket.socket) -> None:
        host, port = listener.getsockname()[:2]
        if not self._options.port:
            print(f"listening on {host}:{port}", file=sys.stderr, flush=True)
        self._uvicorn.run([listener])

    def _engine_died(self, sentence: str) -> None:
        self.death = sentence
        self._uvicorn.should_exit = True

    @contextlib.asynccontextmanager
    async def _lifespan(self) -> AsyncIterator[None]:
        await self._client.start(self._options.worker_arguments(), self._options.worker_environment())
        preparing = asyncio.create_task(self._service.prepare())
        preparing.add_done_callback(self._prepared)
        try:
            yield
        finally:
            preparing.cancel()
            await self._client.close()

    def _prepared(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            self._engine_died(f"the server cannot serve {self._options.model}: {error}")


def _port(value: str) -> int:
    if not value.isdecimal() or int(value) >= 65536:
        raise argparse.ArgumentTypeError(f"a port is a number from 0 to 65535, not {value}")
    return int(value)


def _positive(value: str) -> int:
    if not value.isdecimal() or not int(value):
        raise argparse.ArgumentTypeError(f"must be a whole number, at least 1, not {value}")
    return int(value)


def _seconds(value: str) -> float:
    if not value.replace(".", "", 1).isdecimal() or not float(value):
        raise argparse.ArgumentTypeError(f"must be a number of seconds above 0, not {value}")
    return float(value)


def _model_folder(parser: argparse.ArgumentParser, model: Path) -> Path:
    needed = ("config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json")
    for name in needed:
        if not (model / name).is_file():
            parser.error(f"--model {model} has no {name}; give a folder in Hugging Face layout")
    try:
        Defaults.read(model)
    except ModelError as error:
        parser.error(f"--model {model}: {error}")
    return model.resolve()


def _read_key(parser: argparse.ArgumentParser, path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        key = path.read_text(encoding="utf-8").strip()
    except OSError as error:
        parser.error(f"--api-key-file {path} cannot be read: {error.strerror}")
    if not key or not key.isascii() or len(key.split()) != 1:
        parser.error(f"--api-key-file {path} must hold one key of visible ASCII characters on one line")
    return key


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


if __name__ == "__main__":
    sys.exit(main())
