"""The two arms' answers to each case of a corpus, side by side, the place marked at which they part.

Knows no page. What is marked begins at the first character that differs: texts of equal tokens are equal, so the first
divergent token holds it, or ends before it where its characters are only half told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import text

from campaigns.plan import PairKey, Role
from campaigns.records import Pair
from campaigns.remarks import Score
from campaigns.scorers.paired import newest
from results.reading.summary import Summary
from results.store.reader import Reader

MAX_CASES = 200  # on a page; those whose answers or verdicts differ come first
MAX_CHARACTERS = 20_000  # of one answer, before the difference and behind it
_MAX_MARKED = 40
NOT_SCORED = "not scored"
_ANSWERS = text("""
SELECT r.startup, r.fixture, r.seed, r.repeat, r.role, r.reasoning_text, r.text, r.tool_calls_json, r.error
FROM request r
WHERE r.campaign_id = :campaign AND r.phase = 'measure' AND r.block_attempt >= coalesce((
    SELECT max(b.attempt) FROM block b WHERE b.campaign_id = r.campaign_id AND b.startup = r.startup
        AND b.fixture = r.fixture AND b.seed = r.seed), 0)
ORDER BY r.id
""")


@dataclass(frozen=True)
class Side:
    before: str
    marked: str  # empty where the answers are equal
    behind: str


@dataclass(frozen=True)
class Answers:
    key: PairKey
    verdicts: tuple[tuple[str, str, str], ...]  # scorer, control, candidate
    divergence: str  # where the tokens part, in words; empty where they do not or nobody told them
    sides: tuple[Side, Side]  # control, candidate

    @property
    def title(self) -> str:
        return f"{self.key.fixture}, seed {self.key.seed}, startup {self.key.startup + 1}, pair {self.key.repeat + 1}"

    @property
    def differ(self) -> bool:
        return bool(self.sides[0].marked or self.sides[1].marked)

    @property
    def told_apart(self) -> bool:
        """Whether a scorer judged the two differently."""
        return any(NOT_SCORED not in said and said[0] != said[1] for _, *said in self.verdicts)


def side_by_side(summary: Summary, reader: Reader, scores: Sequence[Score]) -> list[Answers]:
    """One pair for each case: one that a scorer tells apart, else one whose answers differ, else the first."""
    if not summary.plan["corpus"]:
        return []
    campaign_id = summary.campaign.campaign_id
    verdicts = newest(scores)
    parted = {pair.key: pair for pair in reader.pairs(campaign_id)}
    best: dict[str, Answers] = {}
    for key, both in _pairs(reader, campaign_id).items():
        one = _answers(key, both, verdicts, parted.get(key))
        known = best.get(key.fixture)
        if known is None or _interest(one) > _interest(known):
            best[key.fixture] = one
    return sorted(best.values(), key=_interest, reverse=True)[:MAX_CASES]


def _interest(one: Answers) -> tuple[bool, bool]:
    return one.told_apart, one.differ


def _pairs(reader: Reader, campaign_id: str) -> dict[PairKey, tuple[str, str]]:
    """Both answers of every pair: everything that was sent, channels apart."""
    found: dict[PairKey, dict[str, str]] = {}
    for *key, role, reasoning, answer, calls, error in reader.connection.execute(_ANSWERS, {"campaign": campaign_id}):
        parts = (part for part in (reasoning, answer, calls, error) if part)
        found.setdefault(PairKey(*key), {})[role] = "\n\n".join(parts)
    return {key: (sides[Role.CONTROL], sides[Role.CANDIDATE]) for key, sides in found.items() if len(sides) == 2}


def _answers(
    key: PairKey,
    both: tuple[str, str],
    verdicts: Mapping[tuple[str, PairKey, Role], Score],
    pair: Pair | None,
) -> Answers:
    names = dict.fromkeys(scorer for scorer, scored, _ in verdicts if scored == key)
    outcomes = tuple(
        (name, _outcome(verdicts, name, key, Role.CONTROL), _outcome(verdicts, name, key, Role.CANDIDATE))
        for name in names
    )
    return Answers(key, outcomes, _divergence(pair), parted_texts(*both))


def _outcome(verdicts: Mapping[tuple[str, PairKey, Role], Score], scorer: str, key: PairKey, role: Role) -> str:
    found = verdicts.get((scorer, key, role))
    return found.outcome if found else NOT_SCORED


def _divergence(pair: Pair | None) -> str:
    if pair is None or pair.divergence_index is None or pair.divergence_ids is None:
        return ""
    control, candidate = ("the end" if token is None else f"id {token}" for token in pair.divergence_ids)
    return f"they part at token {pair.divergence_index}: control {control}, candidate {candidate}"


def parted_texts(control: str, candidate: str) -> tuple[Side, Side]:
    """Both texts, marked from their first difference to the end of the word; nothing marked where there is none."""
    shorter = min(len(control), len(candidate))
    at = next((n for n in range(shorter) if control[n] != candidate[n]), shorter)
    return _side(control, at), _side(candidate, at)


def _side(text: str, at: int) -> Side:
    longest = min(len(text), at + _MAX_MARKED)
    end = next((n for n in range(at + 1, longest) if text[n].isspace()), longest)
    before, behind = text[max(0, at - MAX_CHARACTERS) : at], text[end : end + MAX_CHARACTERS]
    return Side(
        _left_out(at - len(before), "before") + before,
        text[at:end],
        behind + _left_out(len(text) - end - len(behind), "behind"),
    )


def _left_out(num_characters: int, where: str) -> str:
    return f"[… {num_characters} characters {where} …]" if num_characters else ""
