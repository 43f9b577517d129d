"""What a reader must know beside the result: what the server did not say, and whether restarts repeat themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from sqlalchemy import text

from campaigns.exactness.compare import divergence
from campaigns.plan import Role
from campaigns.records import CPU_UUID, HIDDEN, Exactness, Failure
from results.store.reader import Life, Reader

_ANSWERED = ("fixture", "seed", "sent", "startup", "answer")
_TEXTS = text("""
SELECT id, text, reasoning_text, tool_calls_json FROM request
WHERE campaign_id = :campaign AND phase = 'measure' AND token_sha256 IS NULL
""")


@dataclass(frozen=True)
class Determinism:
    """One arm over its startups: are the tokens of the same prompt and seed the same after a restart?"""

    arm: str
    role: str
    n_prompts: int  # prompts that more than one startup answered
    n_equal: int
    differing: tuple[str, ...]  # fixtures and the startups that answered otherwise
    n_repeated: int  # startups of a prompt that answered it more than once
    n_repeats_equal: int

    @property
    def n_otherwise(self) -> int:
        """Of restarts and repeats those that answered otherwise."""
        return self.n_prompts - self.n_equal + self.n_repeated - self.n_repeats_equal


def determinism(reader: Reader, measured: pd.DataFrame) -> tuple[Determinism, ...]:
    """Per role; an equality of token hashes (of the text where a server sends no ids), never a tolerance."""
    known = measured[measured.admissible]
    known = known.assign(sent=known.sent_seed.fillna(known.seed), answer=_answers(reader, known))
    return tuple(_of_role(reader, str(role), rows) for role, rows in known.groupby("role"))


def _answers(reader: Reader, known: pd.DataFrame) -> pd.Series:
    """What tells each answer from another."""
    if known.token_sha256.notna().all():
        return known.token_sha256
    told = reader.connection.execute(_TEXTS, {"campaign": str(known.campaign_id.iloc[0])})
    texts = {row.id: repr(tuple(row)[1:]) for row in told}
    return known.token_sha256.fillna(known.request_id.map(texts))


def _of_role(reader: Reader, role: str, rows: pd.DataFrame) -> Determinism:
    prompts: dict[tuple[str, int, float], dict[int, list[str]]] = {}  # to the hashes of each startup's answers
    for *prompt, startup, sha256 in zip(*(rows[name] for name in _ANSWERED), strict=True):
        prompts.setdefault(tuple(prompt), {}).setdefault(startup, []).append(sha256)
    restarted = {prompt: by for prompt, by in sorted(prompts.items()) if len(by) > 1}
    parted = [prompt for prompt, by in restarted.items() if len({sha for shas in by.values() for sha in shas}) > 1]
    differing = tuple(
        _differing(reader, rows[(rows.fixture == fixture) & (rows.seed == seed) & (rows.sent == sent)])
        for fixture, seed, sent in parted
    )
    often = [shas for by in prompts.values() for shas in by.values() if len(shas) > 1]
    same = sum(len(set(shas)) == 1 for shas in often)
    equal = len(restarted) - len(parted)
    return Determinism(str(rows.arm.iloc[0]), role, len(restarted), equal, differing, len(often), same)


def _differing(reader: Reader, answers: pd.DataFrame) -> str:
    """Which startups answered otherwise than the first one, and where the first of them parts from it."""
    first = answers.iloc[0]
    others = answers[answers.answer != first.answer]
    index, ids = divergence(*(reader.token_ids(int(row.request_id)) for row in (first, others.iloc[0])))
    numbers = [str(startup + 1) for startup in sorted({int(s) for s in others.startup})]
    startups = f"startup {numbers[0]} differs" if len(numbers) == 1 else f"startups {', '.join(numbers)} differ"
    where = "" if ids is None else f", at token {index}: {ids[0]} became {ids[1]}"
    return f"{first.fixture}, seed {int(first.sent)}: {startups} from startup {int(first.startup) + 1}{where}"


def told_once(failures: Sequence[Failure]) -> list[Failure]:
    """In the order of time, without those that a fuller one of the same reason and server life says again."""
    ordered = sorted(failures, key=lambda failure: failure.utc)
    return [f for i, f in enumerate(ordered) if not any(_says_again(later, f) for later in ordered[i + 1 :])]


def _says_again(later: Failure, failure: Failure) -> bool:
    about = (failure.reason, failure.startup, failure.startup_attempt)
    same = (later.reason, later.startup, later.startup_attempt) == about and later.key in (None, failure.key)
    return same and failure.message in later.message


def missing_notes(
    measured: pd.DataFrame, plan: Mapping[str, Any], required: Exactness, lives: Sequence[Life], has_aa: bool
) -> tuple[str, ...]:
    """One sentence for everything that the server, the host or the plan did not provide."""
    counted = measured[measured.admissible]
    told = [life.startup.identity.get("made_weights") for life in lives]
    made = {weights["sha256"] for weights in told if weights}
    lacks = sorted({name for life in lives for name in life.startup.identity.get("lacks", ())})
    checks = (
        (bool(lacks), f"the server offers no {', '.join(lacks)} (docs/adapters.md says what follows)"),
        (counted.cached_tokens.isna().any(), "cached_tokens was not reported: a prefix-cache hit would go unseen"),
        (
            counted.token_sha256.isna().any(),
            "token ids were not returned: equality rests on the text (E1), and every count of tokens on the usage "
            "alone, which a proxy may make up",
        ),
        (
            counted.engine_decode_ns.isna().any(),
            "engine times were not reported: rounds are told by the client's clock",
        ),
        (counted.n_rounds.isna().any(), "rounds could not be counted for some requests: their averages are left out"),
        (
            required < int(plan["required_exactness"]),
            f"accepted counts were not reported: E{int(required)} is required instead of E{plan['required_exactness']}",
        ),
        (all(life.startup.calibration is None for life in lives), "no calibration: the client's resolution is unknown"),
        (counted.median_sm_clock_mhz.isna().all() and not _on_cpu(lives), "SM clocks were not sampled"),
        (
            not has_aa,
            "fewer than three startups of comparable A/A campaigns: the noise floor is the campaign's own half width "
            "or its resolution",
        ),
        (
            _seeds_in_vain(counted, plan),
            "at temperature 0 a seed decides nothing: a prompt that was asked with several is repeated, and the bound "
            "on mismatches takes each seed for another prompt",
        ),
        (bool(_odd(plan)), f"K = {plan['pairs']} is odd: the arms were not first equally often"),
        (len(made) > 1, "startups made different random weights from one declaration: they do not measure one model"),
        (
            plan["startup_mode"] == "sequential",
            "the arms ran in separate server lives: pairs are matched by index only",
        ),
    )
    return tuple(sentence for holds, sentence in checks if holds and (len(counted) or "A/A" in sentence))


def _seeds_in_vain(counted: pd.DataFrame, plan: Mapping[str, Any]) -> bool:
    sent = counted.sent_seed.fillna(counted.seed).groupby(counted.fixture).nunique()
    return not plan["sampling"]["temperature"] and bool((sent > 1).any())


def started_alike(plan: Mapping[str, Any], lives: Sequence[Life]) -> str:
    """Arms that were declared different by variables alone, whose servers had the same ones: where the launcher or
    `server.env` had set them already. Values that were not recorded say nothing.
    """
    control, candidate = plan["control"], plan["candidate"]
    names = sorted({name for name, _ in (*control["env"], *candidate["env"])})
    if not names or any(control.get(part) != candidate.get(part) for part in control if part not in ("name", "env")):
        return ""
    told = {role: [_values(life, names) for life in lives if life.startup.role is role] for role in Role}
    known = {values for each in told.values() for values in each}
    if not all(told.values()) or len(known) != 1 or HIDDEN in (values := known.pop()):
        return ""
    shown = ", ".join(f"{name}={value}" for name, value in zip(names, values, strict=True))
    return f"the arms were declared different and their servers started alike, all with {shown}"


def _values(life: Life, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(life.startup.environment.get(name, "not set") for name in names)


def _on_cpu(lives: Sequence[Life]) -> bool:
    uuids = [uuid for life in lives for uuid in life.startup.device_uuids]
    return bool(uuids) and all(uuid.startswith(CPU_UUID) for uuid in uuids)


def _odd(plan: Mapping[str, Any]) -> bool:
    return not plan["corpus"] and int(plan["pairs"]) % 2 == 1
