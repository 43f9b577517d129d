"""What a campaign already holds: resuming is the plan minus this. Knows nothing of how the rest will be run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, text

from campaigns.plan import Block, PairKey
from campaigns.reasons import FAILED

# A pair counts when it and both of its requests stand in the newest attempt of their block, and when nobody found at
# the end of its server's life that files had changed meanwhile.
_PAIRS = """
WITH newest AS (
    SELECT campaign_id, startup, fixture, seed, max(attempt) AS attempt FROM block
    WHERE campaign_id = :campaign {one} GROUP BY campaign_id, startup, fixture, seed
)
SELECT p.startup, p.fixture, p.seed, p.repeat, p.reasons
FROM pair p
JOIN newest n ON n.startup = p.startup AND n.fixture = p.fixture AND n.seed = p.seed AND n.attempt = p.block_attempt
JOIN request r ON r.campaign_id = p.campaign_id AND r.startup = p.startup AND r.fixture = p.fixture
    AND r.seed = p.seed AND r.repeat = p.repeat AND r.block_attempt = p.block_attempt AND r.phase = 'measure'
WHERE p.campaign_id = :campaign {one_p} AND NOT EXISTS (
    SELECT 1 FROM failure f WHERE f.campaign_id = p.campaign_id AND f.reason = 'identity-fail'
        AND f.startup = r.startup AND f.startup_attempt = r.startup_attempt
)
GROUP BY p.startup, p.fixture, p.seed, p.repeat
HAVING count(DISTINCT r.role) = 2
"""
# A startup that failed before it was ready has an end and no beginning.
_STARTUPS = """
SELECT startup, max(attempt) FROM (
    SELECT startup, attempt FROM startup WHERE campaign_id = :campaign {one}
    UNION SELECT startup, attempt FROM startup_end WHERE campaign_id = :campaign {one}
) GROUP BY startup
"""
_BLOCKS = """
SELECT startup, fixture, seed, max(attempt) FROM block
WHERE campaign_id = :campaign {one} GROUP BY startup, fixture, seed
"""


@dataclass(frozen=True)
class Recorded:
    pairs: frozenset[PairKey]
    failed: frozenset[PairKey]  # those of which a request got no answer
    startup_attempts: Mapping[int, int]  # the newest attempt; attempts count from 1
    block_attempts: Mapping[tuple[int, str, int], int]  # by (startup, fixture, seed)

    def holds(self, block: Block) -> bool:
        """Whether the block is complete: a block with a missing pair is repeated as a whole."""
        return all(key in self.pairs for key in block.keys)

    def next_startup_attempt(self, startup: int) -> int:
        return self.startup_attempts.get(startup, 0) + 1

    def next_block_attempt(self, block: Block) -> int:
        return self.block_attempts.get((block.startup, block.fixture, block.seed), 0) + 1


def recorded(connection: Connection, campaign_id: str, startup: int | None = None) -> Recorded:
    """Of the whole campaign, or of one startup alone: that costs the same however many there are."""

    def rows(query: str) -> Iterable[Sequence[Any]]:
        one, one_p = ("", "") if startup is None else ("AND startup = :startup", "AND p.startup = :startup")
        asked = {"campaign": campaign_id} if startup is None else {"campaign": campaign_id, "startup": startup}
        return connection.execute(text(query.format(one=one, one_p=one_p)), asked)

    pairs = {PairKey(*key): json.loads(reasons) for *key, reasons in rows(_PAIRS)}
    return Recorded(
        pairs=frozenset(pairs),
        failed=frozenset(key for key, reasons in pairs.items() if FAILED & set(reasons)),
        startup_attempts={row[0]: row[1] for row in rows(_STARTUPS)},
        block_attempts={(s, f, seed): attempt for s, f, seed, attempt in rows(_BLOCKS)},
    )
