"""Prompts of a corpus are pinned at first use."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType

import pytest

from campaigns.errors import Exit, IdentityMismatch
from campaigns.plan import Arm, CampaignPlan, ServerPlan
from orchestrator.preparation.pinning import pin_prompts
from orchestrator.preparation.prepare import Prepared
from results.store.writer import Store


def prepared(
    corpus: str = "c" * 64, tokenizer: str = "t" * 64, template: str = "x" * 64, **ids: tuple[int, ...]
) -> Prepared:
    plan = CampaignPlan("p", Arm("a"), Arm("b"), (), ServerPlan("dflash2"), corpus=corpus)
    empty: MappingProxyType[str, int] = MappingProxyType({})
    expected = {"tokenizer_sha256": tokenizer}
    return Prepared(plan, "{}", {}, {"template_sha256": template}, expected, ids, empty, Path(), False)


def test_the_first_use_records_and_a_later_difference_is_named(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.sqlite") as store:
        pin_prompts(store, prepared(a=(1, 2), b=(3,)))
        pin_prompts(store, prepared(a=(1, 2), b=(3,)))
        pin_prompts(store, prepared(template="y" * 64, a=(1, 2, 9), b=(3,)))
        with pytest.raises(IdentityMismatch, match="prompt b: its token ids are not those") as caught:
            pin_prompts(store, prepared(a=(1, 2), b=(3, 4)))
        assert caught.value.exit_code is Exit.IDENTITY


def test_speed_fixtures_are_not_pinned(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.sqlite") as store:
        pin_prompts(store, prepared(corpus="", a=(1,)))
        pin_prompts(store, prepared(corpus="", a=(2,)))
