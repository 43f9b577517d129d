"""Quantities of one request, with their definitions in one place.

Send time s, first content chunk t0, following chunks t1 … tR with e1 … eR tokens. Chunk 0 is the prefill's result and
not a round. Rounds are never rescaled and a missing quantity is None, never 0.
"""

from __future__ import annotations

from campaigns.reasons import Reason
from campaigns.records import Request

_MS = 1e-6


def ttft_ms(request: Request) -> float | None:
    """Time to first token: the first content of any channel (text, reasoning, tool call) after sending.

    None of a request whose prompt was not computed.
    """
    restored = Reason.PROMPT_RESTORED in request.reasons
    if request.first_content_ns is None or restored or not _first_seen(request):
        return None
    return (request.first_content_ns - request.send_ns) * _MS


def client_decode_ns(request: Request) -> int | None:
    """tR − t0: ends with the last content, not with the trailing usage chunk."""
    if request.first_content_ns is None or request.last_content_ns is None or not _first_seen(request):
        return None
    return request.last_content_ns - request.first_content_ns


def _first_seen(request: Request) -> bool:
    """A first chunk that arrived together with later ones was held back somewhere: nobody saw when it was made."""
    return Reason.FIRST_CHUNK_COALESCED not in request.reasons


def round_ms(request: Request, *, engine: bool) -> float | None:
    """Request-average round: decode time of the named source over R. Time of q1 steps stays in the numerator."""
    decode_ns = request.engine_decode_ns if engine else client_decode_ns(request)
    return decode_ns * _MS / request.n_rounds if decode_ns is not None and request.n_rounds else None


def decode_tokens_per_s(request: Request, *, engine: bool) -> float | None:
    """Decoded tokens over the time of their decoding."""
    decode_ns = request.engine_decode_ns if engine else client_decode_ns(request)
    tokens = decoded_tokens(request, engine=engine)
    return tokens / (decode_ns * 1e-9) if decode_ns and tokens is not None else None


def decoded_tokens(request: Request, *, engine: bool) -> int | None:
    """e1+…+eR: the tokens that the decode time of the named source made.

    An engine's begins behind the prefill, which makes one token; the client's behind the first chunk, whatever that
    bundles. None where the server does not say how many those are.
    """
    first = 1 if engine else request.first_tokens
    return None if request.completion_tokens is None or first is None else request.completion_tokens - first


def tpot_ms(request: Request) -> float | None:
    """vLLM's time per output token, (tR − t0)/(N − 1); kept for compatibility, never a headline."""
    decode_ns = client_decode_ns(request)
    if decode_ns is None or request.completion_tokens is None or request.completion_tokens < 2:
        return None
    return decode_ns * _MS / (request.completion_tokens - 1)


def e2el_ms(request: Request) -> float | None:
    """End-to-end latency up to the last content."""
    return None if request.last_content_ns is None else (request.last_content_ns - request.send_ns) * _MS


def accepted(request: Request) -> int | None:
    """Sum of accepted drafts; None unless every speculative round reported it."""
    counts = [r.accepted for r in request.rounds if r.kind != "q1" and r.engine_ns is not None]
    return sum(c for c in counts if c is not None) if counts and None not in counts else None


def drafted(request: Request) -> int | None:
    """Sum of real proposals; a grammar may allow fewer than seven."""
    counts = [r.drafted for r in request.rounds if r.kind != "q1" and r.engine_ns is not None]
    return sum(c for c in counts if c is not None) if counts and None not in counts else None


def residual(request: Request) -> int | None:
    """Emitted after chunk 0 − accepted − R: 0 uncut, −1 when EOS was an accepted draft, positive by q1 steps."""
    num_accepted = accepted(request)
    if (
        num_accepted is None
        or request.completion_tokens is None
        or request.first_tokens is None
        or request.n_rounds is None
    ):
        return None
    return request.completion_tokens - request.first_tokens - num_accepted - request.n_rounds
