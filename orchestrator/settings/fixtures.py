"""The prompts that a configuration lists itself: single ones, a file of one's own, the context curve.

Knows no corpus, no tokenizer and no server.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from campaigns.corpora.conversations import Choice, fixtures_from
from campaigns.errors import UsageError
from campaigns.fixtures import Curve
from campaigns.plan import Fixture
from orchestrator.settings.config import Config, FixtureConfig
from orchestrator.settings.limits import at_least, check_name, unique


def fixtures_of(config: Config) -> tuple[Fixture, ...]:
    """The speed fixtures that the configuration lists."""
    listed = tuple(_fixture(item, config.campaign.max_tokens) for item in config.fixtures.items)
    fixtures = (*listed, *_from_file(config))
    unique([fixture.id for fixture in fixtures], "fixtures.items")
    for fixture in fixtures:
        check_name("the id of a fixture", fixture.id)
        _check_texts(fixture)
    _check_different(fixtures)
    return fixtures


def _check_different(fixtures: Sequence[Fixture]) -> None:
    """One question under two names would be evidence of two prompts."""
    asked: dict[tuple[str, int | None, int], str] = {}
    for fixture in fixtures:
        for seed in fixture.seeds:
            other = asked.setdefault((fixture.body, fixture.max_tokens, seed), fixture.id)
            if other != fixture.id:
                raise UsageError(
                    f"fixtures {other} and {fixture.id} ask the same with seed {seed}: drop one, or give it other "
                    "seeds; repeats are campaign.pairs"
                )


def _check_texts(fixture: Fixture) -> None:
    """Half a surrogate pair can be read from JSON, but neither hashed nor sent."""
    try:
        json.dumps(json.loads(fixture.body), ensure_ascii=False, allow_nan=False).encode()
    except ValueError as error:
        raise UsageError(
            f"fixture {fixture.id}: it holds what no JSON text can say ({error}); mend its prompt"
        ) from error


def _from_file(config: Config) -> tuple[Fixture, ...]:
    f = config.fixtures.file
    if not f.path:
        return ()
    if not f.seeds:
        raise UsageError("fixtures.file.seeds is empty; give at least one")
    unique(f.seeds, "fixtures.file.seeds")
    choice = Choice(
        count=at_least("fixtures.file.count", f.count, 1),
        seed=f.seed,
        turns=None if f.turns is None else at_least("fixtures.file.turns", f.turns, 1),
        seeds=tuple(f.seeds),
        max_tokens=config.campaign.max_tokens
        if f.max_tokens is None
        else at_least("fixtures.file.max_tokens", f.max_tokens, 1),
    )
    return fixtures_from(Path(f.path).expanduser(), choice)


def curve_of(config: Config) -> Curve:
    """The context curve that the configuration asks for."""
    c = config.fixtures.curve
    for length in c.lengths:
        at_least("fixtures.curve.lengths", length, 1)
    if not c.seeds:
        raise UsageError("fixtures.curve.seeds is empty; give at least one")
    if c.caps and len(c.caps) != len(c.lengths):
        raise UsageError(
            f"fixtures.curve.caps has {len(c.caps)} figures for {len(c.lengths)} lengths; give one for each, or "
            "fixtures.curve.caps=[] for output_tokens everywhere"
        )
    return Curve(
        lengths=tuple(c.lengths),
        scaled=c.scaled,
        boundary=c.boundary,
        output_tokens=at_least("fixtures.curve.output_tokens", c.output_tokens, 1),
        caps=tuple(at_least("fixtures.curve.caps", cap, 1) for cap in c.caps),
        seeds=tuple(c.seeds),
        ignore_eos=c.ignore_eos,
    )


def _fixture(item: FixtureConfig, cap: int | None) -> Fixture:
    given = [n for n in ("messages", "prompt", "prompt_token_ids") if getattr(item, n) is not None]
    if len(given) != 1:
        raise UsageError(f"fixture {item.id}: give exactly one of messages, prompt, prompt_token_ids, not {given}")
    if not getattr(item, given[0]):
        raise UsageError(f"fixture {item.id}: {given[0]} is empty; a server needs something to answer")
    if not item.seeds:
        raise UsageError(f"fixture {item.id}: seeds is empty; give at least one")
    body: dict[str, Any] = {"messages": item.messages} if item.messages else {"prompt": getattr(item, given[0])}
    if item.chat_template_kwargs:
        body["chat_template_kwargs"] = item.chat_template_kwargs
    text = json.dumps(body, ensure_ascii=False)
    limit = at_least(f"fixture {item.id}: max_tokens", item.max_tokens, 1) if item.max_tokens is not None else cap
    return Fixture(item.id, text, tuple(item.seeds), max_tokens=limit, chat=bool(item.messages))
