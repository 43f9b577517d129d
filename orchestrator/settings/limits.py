"""What a value of the configuration may be where its type allows more. Knows the keys, nothing of what they do."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, TypeVar

from campaigns.errors import UsageError
from campaigns.printable import one_line

_Number = TypeVar("_Number", int, float)
# Lowest and highest, both allowed; a duration may be endless only where somebody can end it.
_ENDS: dict[str, tuple[float, float]] = {
    "campaign.startups": (1, 1_000_000),
    "campaign.margin_percent": (0.001, 50.0),
    "campaign.pairs": (1, 1_000_000),
    "campaign.warmups": (0, 10_000),
    "campaign.max_tokens": (1, 2**31 - 1),
    "campaign.required_exactness": (1, 5),
    "startup.retries": (0, 100),
    "startup.calibrate_s": (0.0, 3600.0),
    "startup.sample_hz": (0.0, 1000.0),
    "server.ready_timeout_s": (1.0, 86400.0),
    "server.stop_grace_s": (0.0, 3600.0),
    "lease.wait_s": (0.0, math.inf),
    "lease.ray_start_s": (30.0, 3600.0),
    "lease.parallel": (1, 10_000),
    "lease.per_host": (1, 1000),
    "sweep.parallel": (1, 1000),
    "client.timeout_s": (0.1, 86400.0),
    "sampling.temperature": (0.0, 100.0),
    "sampling.top_k": (-1, math.inf),
    "sampling.top_p": (0.0, 1.0),
    "sampling.min_p": (0.0, 1.0),
}
MOST_PAIRS = 1_000_000  # of a campaign: every one of them is in memory, planned and reported
_SAMPLING = "give it as sampling.…"
_DECIDED = {
    **dict.fromkeys(("temperature", "top_k", "top_p", "min_p"), _SAMPLING),
    **dict.fromkeys(("prompt", "messages"), "it is the fixture's"),
    "seed": "it is the fixture's, or drawn by campaign.seeds=fresh",
    "max_tokens": "give it as campaign.max_tokens",
    "model": "give it as server.model",
    "stream": "only streams have times",
    "stream_options": "only streams with usage have counts",
    "n": "one answer a request is measured",
}
_NAMED = ("campaign.name", "campaign.control.name", "campaign.candidate.name")


def check_values(config: Any) -> None:
    """UsageError that names the first value out of its range, or empty where a name is asked for."""
    for path, (least, most) in _ENDS.items():
        value = reduce(getattr, path.split("."), config)
        if value is not None:
            at_least(path, value, least) if math.isinf(most) else between(path, value, least, most)
    for path in _NAMED:
        if not (name := reduce(getattr, path.split("."), config)):
            raise UsageError(f"{path} is empty: give it a name")
        check_name(path, name)


def check_name(path: str, name: str) -> None:
    """It stands in tables, on terminals and in file names of reports: one line, of what can be seen."""
    if one_line(name) != name:
        raise UsageError(
            f"{path} is {name!r}: a name has no line ends, no control characters and no marks of direction"
        )


def check_headers(headers: Mapping[str, str], key_env: str, key_file: str) -> None:
    """Headers are stored with the campaign; a key must not be."""
    for name, value in headers.items():
        if name.lower() in ("authorization", "proxy-authorization", "cookie", "x-api-key", "api-key"):
            raise UsageError(
                f"server.headers names {name}, and headers are stored: give a key by server.api_key_env=NAME or "
                "server.api_key_file=FILE"
            )
        if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name) or not re.fullmatch(r"[\t -~]*", value):
            raise UsageError(f"server.headers: {name}: {value!r} is no header of HTTP")
    if key_env and key_file:
        raise UsageError("server.api_key_env and server.api_key_file are both set: name the key in one way")


def check_request_fields(fields: Mapping[str, Any]) -> None:
    """What the campaign decides, and stores under its own name, is not sent otherwise."""
    for name in fields:
        if name in _DECIDED:
            raise UsageError(f"server.request_fields names {name}, which the campaign decides: {_DECIDED[name]}")


def check_proxy(proxy: str, adapter: str) -> None:
    if proxy and adapter != "attach":
        raise UsageError(f"server.proxy={proxy}: a server that is started here is reached directly; leave it out")
    if proxy and not re.fullmatch(r"http://(\[[0-9a-fA-F:.]+\]|[^\s:/@]+):\d{1,5}/?", proxy):
        raise UsageError(f"server.proxy={proxy}: write http://HOST:PORT")


def at_least(path: str, value: _Number, least: _Number) -> _Number:
    if not value >= least:
        raise UsageError(f"{path}={value}: must be at least {least}")
    return value


def between(path: str, value: _Number, least: _Number, most: _Number) -> _Number:
    if not least <= value <= most:
        raise UsageError(f"{path}={value}: must lie between {least} and {most}")
    return value


def unique(names: Sequence[object], path: str) -> None:
    twice = sorted({str(name) for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(f"{path} names {', '.join(twice)} twice: each stands there once")
