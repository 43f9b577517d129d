"""What a foreign engine says of one request's drafts: vLLM's `metrics.speculative_decoding`, SGLang's `sglext`. Pure.

vLLM lists every step that verified a draft (`--per-request-spec-decode-metrics=detailed`); steps without a draft are in
no list, and their place among the others is not told. SGLang, and vLLM's `summary`, give totals alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from campaigns.routes import ACCEPTED, DRAFTED, DRAFTS
from orchestrator.servers import fields
from orchestrator.servers.fields import MOST_TOKENS, Malformed, Object


@dataclass(frozen=True)
class Speculation:
    """Totals of one request; `accepted` and `drafted` are by verifying step, None where only totals are told."""

    num_steps: int | None
    num_drafted: int | None
    num_accepted: int | None
    accepted: tuple[int, ...] | None = None
    drafted: tuple[int, ...] | None = None

    @property
    def counters(self) -> Mapping[str, int]:
        named = {DRAFTS: self.num_steps, DRAFTED: self.num_drafted, ACCEPTED: self.num_accepted}
        return {name: count for name, count in named.items() if count is not None}

    def emitted(self, completion_tokens: int) -> tuple[int, ...] | None:
        """By verifying step: what it accepted and one more; the last may have been cut by the answer's end.

        None where only totals are told, or where the steps emitted more than the answer holds behind its first token.
        """
        if self.accepted is None:
            return None
        emitted = [count + 1 for count in self.accepted]
        beyond = sum(emitted) - (completion_tokens - 1)
        if emitted and beyond > 0:
            emitted[-1] -= beyond
        return tuple(emitted) if not emitted or emitted[-1] > 0 else None

    def is_whole(self, completion_tokens: int) -> bool:
        """Whether every token behind the first came from a listed step: then the steps are the rounds."""
        emitted = self.emitted(completion_tokens)
        return emitted is not None and sum(emitted) == completion_tokens - 1


def speculation(value: Object) -> Speculation | None:
    """Of one event of the stream; None where it says nothing. `Malformed` names field and value."""
    metrics, extension = value.get("metrics"), value.get("sglext")
    if isinstance(metrics, dict) and (found := fields.mapping(metrics, "speculative_decoding")):
        return _vllm(found)
    if isinstance(extension, dict) and (found := fields.mapping(extension, "spec_tokens_details")):
        return _totals(found, "spec_verify_ct", "spec_num_proposed_drafts", "spec_num_correct_drafts")
    return None


def _totals(found: Object, steps: str, drafted: str, accepted: str) -> Speculation:
    num_steps, num_drafted, num_accepted = (
        fields.whole(found, name, MOST_TOKENS) for name in (steps, drafted, accepted)
    )
    return Speculation(num_steps, num_drafted, num_accepted)


def _vllm(found: Object) -> Speculation:
    totals = _totals(found, "num_spec_steps", "num_draft_tokens", "num_accepted_draft_tokens")
    accepted, drafted = fields.ids(found, "per_step_accepted"), fields.ids(found, "per_step_drafted")
    if accepted is None or drafted is None:
        return totals
    if len(accepted) != len(drafted):
        raise Malformed(f"per_step_accepted has {len(accepted)} steps and per_step_drafted {len(drafted)}")
    for step, (kept, proposed) in enumerate(zip(accepted, drafted, strict=True)):
        if kept > proposed:
            raise Malformed(f"per_step_accepted[{step}] is {kept}, which is more than the {proposed} drafted")
    return Speculation(len(accepted), sum(drafted), sum(accepted), accepted, drafted)
