"""A campaign whose driver was killed reads as interrupted, not as running."""

from __future__ import annotations

from pathlib import Path

from campaigns.records import Campaign, CampaignStatus
from results.store.reader import Reader
from results.store.writer import Store


def test_running_needs_a_living_writer(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    with Store.open(path) as store:
        store.begin(Campaign("c", "t", "2026-01-01", 1, "{}", "sha", "{}", {}, {}))
        store.status("c", CampaignStatus.RUNNING)
        with Reader.open(path) as reader:
            assert reader.status("c") is CampaignStatus.RUNNING
    with Reader.open(path) as reader:
        assert reader.status("c") is CampaignStatus.INTERRUPTED


def test_a_written_end_stays_what_it_is(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    with Store.open(path) as store:
        store.begin(Campaign("c", "t", "2026-01-01", 1, "{}", "sha", "{}", {}, {}))
        store.status("c", CampaignStatus.HELD, "lunch")
    with Reader.open(path) as reader:
        assert reader.status("c") is CampaignStatus.HELD
