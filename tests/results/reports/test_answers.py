"""Scores over time, and the arms' answers side by side on the page."""

from __future__ import annotations

import html as html_module
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from scipy.stats import binomtest

from campaigns.plan import Arm, CampaignPlan, Fixture, PairKey, Role, ServerPlan
from campaigns.remarks import Score
from orchestrator import cli
from results.history.entries import Filter
from results.history.scores import COLUMNS, scores
from results.reports.answers import MAX_CHARACTERS, parted_texts
from results.reports.report import render
from results.store.reader import Reader
from results.store.writer import Store
from results.transfer.scripts import Script, Trajectory
from results.transfer.synthetic import Driver
from tests.results.reports.test_page import CHROMIUM, PROBE, framed, look

CASES = tuple(f"gsm8k/{n}" for n in range(6))
# control, candidate; the first case is scored twice, the newest verdict counts
GSM8K = [("passed", "passed"), ("passed", "failed"), ("passed", "failed"), ("failed", "failed"), ("failed", "passed")]
GSM8K += [("ineligible", "ineligible")]


class Writing(Driver):
    """Answers as models give them, with what a page has to escape."""

    def request(self, campaign_id, step, startup_attempt, block_attempt):
        request = super().request(campaign_id, step, startup_attempt, block_attempt)
        differs = step.key.fixture == "gsm8k/1" and step.role is Role.CANDIDATE
        end = "seventeen </pre><script>" if differs else "18 <b>"
        return replace(request, text=f"Six times three is {end} in all.")


@pytest.fixture(scope="module")
def scored(module_ram: Path) -> Path:
    fixtures = tuple(Fixture(case, "{}", (0,), dataset="gsm8k") for case in CASES)
    plan = CampaignPlan("six", Arm("a"), Arm("b"), fixtures, ServerPlan("null"), corpus="c0", startups=1)
    path = module_ram / "answers.sqlite"

    def script(step, attempt):
        differs = step.key.fixture == "gsm8k/1" and step.role is Role.CANDIDATE
        return Script(Trajectory(10, 3, 6), 10.0, token_seed=int(differs))

    with Store.open(path) as store:
        campaign_id = Writing(store, replace(plan, pairs=1, warmups=0), script).run()
        outdated = [row(campaign_id, 0, Role.CONTROL, "failed")]
        found = [row(campaign_id, n, role, said[i]) for n, said in enumerate(GSM8K) for i, role in enumerate(Role)]
        store.scores([*outdated, *found, row(campaign_id, 0, Role.CONTROL, "failed", "other")])
    return path


def row(campaign_id: str, case: int, role: Role, outcome: str, scorer: str = "gsm8k") -> Score:
    key = PairKey(0, CASES[case], 0, 0)
    details = '{"checked_afterwards": ["uniqueItems"]}' if case == 2 else "[]"
    return Score(campaign_id, key, role, "2026-01-02T00:00:00+00:00", scorer, "1", "{}", outcome, details)


def test_history_has_each_scorer_with_its_own_denominator_and_the_exact_p(scored: Path) -> None:
    with Reader.open(scored) as reader:
        found = scores(reader)
        assert scores(reader, Filter(arm="nobody")).empty
        assert list(scores(reader, Filter(fixture="gsm")).scorer) == ["gsm8k"]
    assert list(found.columns) == list(COLUMNS) and list(found.scorer) == ["gsm8k", "other"]
    gsm8k, other = found.itertuples()
    assert (gsm8k.control, gsm8k.candidate, gsm8k.n_pairs) == ("a", "b", 5), "the ineligible pair is outside"
    assert (gsm8k.control_passed, gsm8k.candidate_passed) == (3, 2)
    assert (gsm8k.only_control, gsm8k.only_candidate) == (2, 1)
    assert gsm8k.mcnemar_p == pytest.approx(binomtest(1, 3).pvalue)
    assert (other.n_pairs, other.control_passed, other.mcnemar_p) == (0, 0, 1.0), "one side alone is no pair"


@pytest.mark.parametrize(("words", "has"), [([], "paired"), (["--scores"], ""), (["--scores", "--format", "csv"], "")])
def test_the_command_shows_scores(scored: Path, words: list[str], has: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["history", "--store", str(scored), *words]) == 0
    out = capfd.readouterr().out
    assert "mcnemar_p" in out and ("effect_pct" in out) is (not words)


def test_the_page_has_the_answers_of_each_case_folded_and_marks_where_they_part(scored: Path) -> None:
    with Reader.open(scored) as reader:
        page = render(reader, reader.campaigns()[0].campaign_id, "html")
    section = page.split('<section id="answers">')[1].split("</section>")[0]
    assert '<a href="#answers">' in page and "<script>" not in section
    folded = re.findall(r"<details>\n<summary>(.*?)</summary>(.*?)</details>", section, re.DOTALL)
    assert [title.split(",")[0] for title, _ in folded][:3] == ["gsm8k/1", "gsm8k/2", "gsm8k/4"], "told apart first"
    assert len(folded) == len(CASES) and all(inside.count("<pre") == 2 for _, inside in folded)
    title, inside = folded[0]
    assert title.endswith("different · gsm8k passed / failed") and "they part at token 0: control id" in inside
    assert re.findall(r"<mark>(.*?)</mark>", inside) == ["18", "seventeen"]
    texts = [
        html_module.unescape(re.sub("</?mark>", "", text)) for text in re.findall(r"<pre[^>]*>(.*?)</pre>", inside)
    ]
    assert texts == ["Six times three is 18 <b> in all.", "Six times three is seventeen </pre><script> in all."]
    assert all("<mark>" not in inside for _, inside in folded[1:]) and ": equal ·" in folded[1][0]


@pytest.mark.acceptance
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
@pytest.mark.parametrize(("width", "dark"), [(390, False), (390, True), (1440, False)])
def test_open_answers_overflow_nowhere_and_can_be_read(scored: Path, tmp_path: Path, width: int, dark: bool) -> None:
    with Reader.open(scored) as reader:
        page = render(reader, reader.campaigns()[0].campaign_id, "html")
    opened = page.replace("<details>", "<details open>").replace(" in all.", " in " + "all" * 200)
    (tmp_path / "r.html").write_text(framed(opened.replace("</body>", PROBE + "</body>"), width, 12000))
    dom = look(tmp_path / "r.html", width, 12000, dark, "--dump-dom")
    told = re.search(r'<pre id="found"[^>]*>(.*?)</pre>', dom, re.DOTALL)
    assert told is not None
    found = json.loads(html_module.unescape(told[1]))
    assert found["overflow"] <= 0 and found["wide"] == [] and found["low"] == [] and found["small"] == []


def test_the_report_counts_what_was_checked_on_finished_answers(scored: Path) -> None:
    with Reader.open(scored) as reader:
        text = render(reader, reader.campaigns()[0].campaign_id, "md")
    assert "In 2 answers a part of the schema that no grammar follows was checked" in text
    assert "| gsm8k | 3/5 (1 ineligible) | 2/5 (1 ineligible) | 2 / 1 | 1.0000 |" in text


@pytest.mark.parametrize(
    ("control", "candidate", "marked"),
    [
        ("a b c", "a b c", ("", "")),
        ("a b c", "a x c", ("b", "x")),
        ("a b", "a b c", ("", " c")),
        ("", "a", ("", "a")),
        ("x" * 100, "y" * 100, ("x" * 40, "y" * 40)),
    ],
)
def test_texts_part_at_their_first_difference(control: str, candidate: str, marked: tuple[str, str]) -> None:
    sides = parted_texts(control, candidate)
    assert (sides[0].marked, sides[1].marked) == marked
    assert [side.before + side.marked + side.behind for side in sides] == [control, candidate]


def test_long_answers_are_cut_round_their_difference() -> None:
    common = "a" * (MAX_CHARACTERS + 5)
    left, _ = parted_texts(common + "x " + common, common + "y " + common)
    assert left.marked == "x" and left.before.startswith("[… 5 characters before …]a")
    assert left.behind.endswith("a[… 6 characters behind …]"), "the space behind the word counts"
