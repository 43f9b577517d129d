"""How far the two requests of a pair agree (E0 … E5), where they part, and by how much their rounds differ in time.

Hashes are those of `campaigns.hashes` (version byte, little-endian uint32). A level contains the ones below it: E0 is a
pair that was not compared or whose texts differ, and a difference has a first divergence wherever both arms gave ids.
Ids are compared as the server sent them, never retokenised; ids that do not add up to the usage prove nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from campaigns.provenance import METHODOLOGY_VERSION
from campaigns.quantities import client_decode_ns, decoded_tokens, round_ms
from campaigns.reasons import FAILED, FLAGS, Reason
from campaigns.records import Exactness, Pair, Request

_CLOCK_TOLERANCE = 0.01  # a larger difference of the median SM clock inside a pair is flagged
_NS = 1e6


def compare(control: Request, candidate: Request, required: int, methodology: int = METHODOLOGY_VERSION) -> Pair:
    """The pair of two requests with the same key, admitted where both count and agree at least to `required`.

    `methodology` is the version that its numbers follow.
    """
    assert control.key == candidate.key, (control.key, candidate.key)
    level = exactness(control, candidate)
    index, ids = divergence(control.token_ids, candidate.token_ids)
    delta_log, delta_ns = effect(control, candidate, methodology)
    reasons = _reasons(control, candidate, level, required_level(required, control, candidate))
    return Pair(
        campaign_id=control.campaign_id,
        key=control.key,
        block_attempt=control.block_attempt,
        exactness=level,
        divergence_index=index,
        divergence_ids=ids,
        delta_log=delta_log,
        delta_ns=delta_ns,
        admissible=not set(reasons) - FLAGS,
        reasons=reasons,
    )


def exactness(control: Request, candidate: Request) -> Exactness:
    level = Exactness.NOT_COMPARED
    for level_above, agree in _LADDER:
        if not agree(control, candidate):
            break
        level = level_above
    return level


def required_level(required: int, *requests: Request) -> Exactness:
    """E3 stands in for more where no server reports accepted counts, or the one that reports none drafts nothing."""
    silent = [r for r in requests if r.accepted_sha256 is None and ((r.n_rounds or 0) > 0 or _is_empty(r))]
    excused = len(silent) == len(requests) or (silent and all(map(_one_token_a_step, silent)))
    return Exactness(min(required, Exactness.STRUCTURE) if excused else required)


def _one_token_a_step(request: Request) -> bool:
    steps = (request.n_rounds or 0) + request.n_q1_steps
    return request.completion_tokens is not None and steps >= request.completion_tokens - 1


def divergence(
    control: Sequence[int] | None, candidate: Sequence[int] | None
) -> tuple[int | None, tuple[int | None, int | None] | None]:
    """The first position at which the ids differ, and both ids there (None behind the end); None, None if nowhere."""
    if control is None or candidate is None or tuple(control) == tuple(candidate):
        return None, None
    shorter = min(len(control), len(candidate))
    index = next((i for i in range(shorter) if control[i] != candidate[i]), shorter)
    at = [ids[index] if index < len(ids) else None for ids in (control, candidate)]
    return index, (at[0], at[1])


def effect(control: Request, candidate: Request, methodology: int) -> tuple[float | None, float | None]:
    """ln(candidate/control) of the time per decoded token, and the difference in ns of the request-average round.

    By one source for both. Tokens that the first chunk holds are in neither number, so that a first chunk that bundles
    those of several rounds makes nobody faster. Version 2 compared decode times, version 1 request-average rounds.
    """
    engine = control.engine_decode_ns is not None and candidate.engine_decode_ns is not None
    before, after = round_ms(control, engine=engine), round_ms(candidate, engine=engine)
    delta_ns = (after - before) * _NS if before and after else None
    if methodology > 2:
        return _per_token(control, candidate, engine), delta_ns
    if not before or not after or not control.n_rounds or not candidate.n_rounds:
        return None, None
    more_rounds = candidate.n_rounds / control.n_rounds if methodology > 1 else 1.0
    return math.log(after / before) + math.log(more_rounds), delta_ns


def _per_token(control: Request, candidate: Request, engine: bool) -> float | None:
    before, after = (r.engine_decode_ns if engine else client_decode_ns(r) for r in (control, candidate))
    tokens = _decoded(control, candidate, engine)
    if tokens is None or not before or not after or min(tokens) < 1:
        return None
    return math.log(after / before) - math.log(tokens[1] / tokens[0])


def _decoded(control: Request, candidate: Request, engine: bool) -> tuple[int, int] | None:
    """Decoded tokens of both arms. Without ids they are equal where the answers and the first chunks are as long."""
    one, other = decoded_tokens(control, engine=engine), decoded_tokens(candidate, engine=engine)
    if one is not None and other is not None:
        return one, other
    if control.first_tokens is None and candidate.first_tokens is None and _same_length(control, candidate):
        return 1, 1
    return None


def _same_length(one: Request, other: Request) -> bool:
    lengths = [(request.completion_tokens, request.first_characters) for request in (one, other)]
    return lengths[0] == lengths[1] and None not in lengths[0]


def _first_chunks_differ(one: Request, other: Request) -> bool:
    first = [(request.first_tokens, request.first_characters) for request in (one, other)]
    return any(a != b for a, b in zip(*first, strict=True) if a is not None and b is not None)


def ids_complete(request: Request) -> bool:
    """Whether the ids can prove anything: as many as the usage says."""
    return request.token_ids is not None and len(request.token_ids) == request.completion_tokens


def _same_text(one: Request, other: Request) -> bool:
    answered = all(
        (r.first_content_ns is not None or _is_empty(r)) and not set(r.reasons) & FAILED for r in (one, other)
    )
    prompts = {r.prompt_sha256 for r in (one, other) if r.prompt_sha256}
    same = (one.text, one.reasoning_text) == (other.text, other.reasoning_text)
    return answered and len(prompts) < 2 and same


def _is_empty(request: Request) -> bool:
    return Reason.EMPTY_ANSWER in request.reasons


def _same_ids(one: Request, other: Request) -> bool:
    """Of two answers without content there are none: as many tokens, at most the one that ends a sequence."""
    if _is_empty(one) and _is_empty(other):
        return one.completion_tokens == other.completion_tokens in (0, 1)
    return ids_complete(one) and ids_complete(other) and _equal_hash(one.token_sha256, other.token_sha256)


def _same_structure(one: Request, other: Request) -> bool:
    return (one.finish_reason, one.completion_tokens, one.tool_calls_json) == (
        other.finish_reason,
        other.completion_tokens,
        other.tool_calls_json,
    )


def _same_acceptance(one: Request, other: Request) -> bool:
    return _equal_hash(one.accepted_sha256, other.accepted_sha256) and _equal_hash(
        one.emitted_sha256, other.emitted_sha256
    )


def _same_widths(one: Request, other: Request) -> bool:
    return _equal_hash(one.drafted_sha256, other.drafted_sha256)


def _equal_hash(one: str | None, other: str | None) -> bool:
    """An unknown sequence equals nothing."""
    return one is not None and one == other


_LADDER: tuple[tuple[Exactness, Callable[[Request, Request], bool]], ...] = (
    (Exactness.TEXT, _same_text),
    (Exactness.TOKEN_IDS, _same_ids),
    (Exactness.STRUCTURE, _same_structure),
    (Exactness.ACCEPTANCE, _same_acceptance),
    (Exactness.DRAFT_WIDTH, _same_widths),
)


def _reasons(control: Request, candidate: Request, level: Exactness, required: Exactness) -> tuple[Reason, ...]:
    """Why the pair does not count, then what is merely flagged; each once."""
    requests = (control, candidate)
    reasons = [reason for request in requests for reason in request.reasons if not request.admissible]
    if control.admissible != candidate.admissible:
        reasons.append(Reason.PARTNER_EXCLUDED)
    if level < required:
        reasons.append(Reason.BELOW_REQUIRED_EXACTNESS)
    if any(request.token_ids is None for request in requests):
        reasons.append(Reason.IDS_UNAVAILABLE)
    elif not all(ids_complete(request) for request in requests):
        reasons.append(Reason.HASH_INCOMPLETE)
    if _first_chunks_differ(control, candidate):
        reasons.append(Reason.FIRST_CHUNKS_DIFFER)
    if _clocks_differ(control.median_sm_clock_mhz, candidate.median_sm_clock_mhz):
        reasons.append(Reason.CLOCK_MISMATCH)
    return tuple(dict.fromkeys(reasons))


def _clocks_differ(one: int | None, other: int | None) -> bool:
    return one is not None and other is not None and abs(one - other) > _CLOCK_TOLERANCE * max(one, other)
