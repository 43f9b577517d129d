"""`campaign serve`: the store in a browser of this host."""

from __future__ import annotations

import argparse
from typing import Any

from campaigns.errors import Exit, WorldError
from orchestrator.commands.options import positive, store_option

_DESCRIPTION = """Pages for a browser on this host: the campaigns, a running one as it goes on, reports, comparisons and
history. Listens on 127.0.0.1 alone and reads the store; from another host use ssh -L PORT:127.0.0.1:PORT."""


def add_serve_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "serve", help="the store as pages for a browser of this host", description=_DESCRIPTION
    )
    store_option(parser)
    parser.add_argument("--port", type=positive(int), default=8765, metavar="N", help="default: %(default)s")
    parser.set_defaults(run=run_serve)


def run_serve(options: argparse.Namespace) -> int:
    """Until it is interrupted."""
    import socket

    import uvicorn

    from orchestrator.web.app import application
    from results.store.reader import Reader

    Reader.open(options.store).close()  # a wrong name is told now, not on the page
    try:
        listener = socket.create_server(("127.0.0.1", options.port))
    except (OSError, OverflowError) as error:
        raise WorldError(f"--port {options.port} cannot be taken ({error}): name another one") from error
    with listener:
        print(f"http://127.0.0.1:{options.port}/ shows {options.store}; Ctrl-C ends it", flush=True)
        app = application(options.store, options.port)
        uvicorn.Server(uvicorn.Config(app, log_level="warning", server_header=False, timeout_graceful_shutdown=1)).run(
            sockets=[listener]
        )
    return int(Exit.COMPLETE)
