"""A campaign for other tools: CSV and Parquet tables of requests, pairs, startups, rounds; vLLM's benchmark JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype
from sqlalchemy import text

from campaigns.errors import UsageError
from campaigns.plan import Phase, Role
from campaigns.records import Request
from results.reading import frames
from results.reading.spreadsheet import inert
from results.store.reader import Reader

_NS = 1e-9
_STARTUPS = text("SELECT * FROM v_startup WHERE campaign_id = :campaign ORDER BY startup_index, attempt")
_PERCENTILE = 99


def export_tables(reader: Reader, campaign_id: str, folder: Path, format: str, *, force: bool = False) -> list[Path]:
    """One file per table in an empty `folder`, or with `force` in any. `format`: csv or parquet."""
    paths = {name: folder / f"{name}.{format}" for name in ("requests", "pairs", "startups", "rounds")}
    if folder.is_dir() and any(folder.iterdir()) and not force:
        raise UsageError(f"{folder} is there already: name another folder, or overwrite its files with --force")
    tables = dict(_tables(reader, campaign_id))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, path in paths.items():
            _write(tables[name], path, format)
    except OSError as error:
        raise UsageError(
            f"--output {folder} cannot be written ({error.strerror}): name a folder that is there or can be made"
        ) from error
    return list(paths.values())


def _tables(reader: Reader, campaign_id: str) -> Iterator[tuple[str, pd.DataFrame]]:
    requests = frames.requests(reader, campaign_id)
    yield "requests", requests
    yield "pairs", frames.pairs(reader, campaign_id, requests)
    yield "startups", pd.read_sql(_STARTUPS, reader.connection, params={"campaign": campaign_id})
    yield "rounds", frames.rounds(reader, requests.request_id.tolist())


def _write(frame: pd.DataFrame, path: Path, format: str) -> None:
    if format == "csv":
        texts = {name: frame[name].map(inert) for name in frame.columns if not is_numeric_dtype(frame[name])}
        frame.assign(**texts).to_csv(path, index=False)
        return
    try:
        frame.to_parquet(path, index=False)
    except ImportError as error:
        raise UsageError("Parquet needs pyarrow: pip install 'dflash2-campaigns[parquet]'") from error


def vllm_bench(reader: Reader, campaign_id: str, role: Role) -> dict[str, Any]:
    """The measured requests of one arm under the names of `vllm bench serve --save-detailed`. Times in s, means in ms.

    Gaps are those of the stream, one per chunk, as that tool has them: a gap is a round here, not a token.
    """
    campaign = reader.campaign(campaign_id)
    plan = json.loads(campaign.plan_json)
    if how := plan["server"].get("prompt_state"):
        raise UsageError(
            f"campaign {campaign_id} restored the states of its prompts (server.prompt_state={how}) and knows no "
            "TTFT, which that format holds: export its tables"
        )
    requests = [
        stored.request
        for stored in reader.requests(campaign_id)
        if stored.request.role is role and stored.request.phase is Phase.MEASURE and not stored.superseded
    ]
    done = [request for request in requests if request.last_content_ns is not None]
    start = min((request.send_ns for request in done), default=0)
    duration = sum(request.end_ns - request.send_ns for request in done) * _NS
    tokens_in = sum(request.prompt_tokens or 0 for request in done)
    tokens_out = sum(request.completion_tokens or 0 for request in done)
    detail: dict[str, list[Any]] = {
        "input_lens": [request.prompt_tokens or 0 for request in done],
        "output_lens": [request.completion_tokens or 0 for request in done],
        "ttfts": [_ttft_s(request) for request in done],
        "itls": [_gaps_s(request) for request in done],
        "start_times": [(request.send_ns - start) * _NS for request in done],
        "generated_texts": [request.reasoning_text + request.text for request in done],
        "errors": [request.error for request in requests if request.last_content_ns is None],
    }
    return {
        "date": campaign.created_utc,
        "endpoint_type": "openai",
        "backend": plan["server"]["adapter"],
        "label": f"{campaign.name} {plan[role.value]['name']}",
        "model_id": plan["server"]["model"],
        "tokenizer_id": plan["server"]["model"],
        "num_prompts": len(requests),
        "request_rate": "inf",
        "burstiness": 1.0,
        "max_concurrency": 1,
        "duration": duration,
        "completed": len(done),
        "failed": len(requests) - len(done),
        "total_input_tokens": tokens_in,
        "total_output_tokens": tokens_out,
        "request_throughput": _per_s(len(done), duration),
        "request_goodput": None,
        "output_throughput": _per_s(tokens_out, duration),
        "total_token_throughput": _per_s(tokens_in + tokens_out, duration),
        "max_output_tokens_per_s": None,
        "max_concurrent_requests": 1 if done else 0,
        **detail,
        **_figures("ttft", [1e3 * s for s in detail["ttfts"]]),
        **_figures("tpot", [tpot for request in done if (tpot := _tpot_ms(request)) is not None]),
        **_figures("itl", [1e3 * s for gaps in detail["itls"] for s in gaps]),
        **_figures("e2el", [_e2el_ms(request) for request in done]),
        **_speculation(done),
    }


def _figures(name: str, values_ms: list[float]) -> dict[str, float | None]:
    if not values_ms:
        return {f"{kind}_{name}_ms": None for kind in ("mean", "median", "std", f"p{_PERCENTILE}")}
    values = np.asarray(values_ms)
    return {
        f"mean_{name}_ms": float(values.mean()),
        f"median_{name}_ms": float(np.median(values)),
        f"std_{name}_ms": float(values.std()),
        f"p{_PERCENTILE}_{name}_ms": float(np.percentile(values, _PERCENTILE)),
    }


def _speculation(done: list[Request]) -> dict[str, Any]:
    """None where the server did not report what was drafted and accepted."""
    spec = [r for request in done for r in request.rounds if r.kind != "q1"]
    known = bool(spec) and all(r.drafted is not None and r.accepted is not None for r in spec)
    accepted = [r.accepted or 0 for r in spec] if known else []
    drafted = sum(r.drafted or 0 for r in spec) if known else 0
    positions = max((r.drafted or 0 for r in spec), default=0) if known else 0
    return {
        "spec_decode_acceptance_rate": 100 * sum(accepted) / drafted if drafted else None,
        "spec_decode_acceptance_length": 1 + sum(accepted) / len(spec) if known else None,
        "spec_decode_num_drafts": len(spec) if known else None,
        "spec_decode_draft_tokens": drafted if known else None,
        "spec_decode_accepted_tokens": sum(accepted) if known else None,
        "spec_decode_per_position_acceptance_rates": [
            sum(a > i for a in accepted) / len(spec) for i in range(positions)
        ],
    }


def _ttft_s(request: Request) -> float:
    assert request.first_content_ns is not None, request.key
    return (request.first_content_ns - request.send_ns) * _NS


def _gaps_s(request: Request) -> list[float]:
    return [r.client_ns * _NS for r in request.rounds if r.client_ns is not None]


def _e2el_ms(request: Request) -> float:
    assert request.last_content_ns is not None, request.key
    return (request.last_content_ns - request.send_ns) * 1e-6


def _tpot_ms(request: Request) -> float | None:
    tokens = request.completion_tokens or 0
    return (_e2el_ms(request) - 1e3 * _ttft_s(request)) / (tokens - 1) if tokens > 1 else None


def _per_s(count: int, seconds: float) -> float | None:
    return count / seconds if seconds > 0 else None
