"""Questions over many campaigns: history, queries, trends, comparison, gates, and a store that takes in another."""

import json
import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from PIL import Image

from campaigns.plan import Arm, CampaignPlan, Fixture, Mode, Order, PairKey, Role, ServerPlan
from campaigns.reasons import Reason
from campaigns.records import Failure
from orchestrator.cli import main
from results.history.entries import Filter, history
from results.reading.frames import requests as request_frame
from results.reading.summary import summarise
from results.reports.layout import lay_out
from results.reports.tables import cells
from results.store.hashing import row_sha256
from results.store.reader import Reader
from results.store.writer import Store
from results.transfer.scripts import Script, Trajectory
from results.transfer.synthetic import Driver

PLAN = CampaignPlan(
    name="nightly",
    control=Arm("default"),
    candidate=Arm("columns-32", (("projection", "columns-32"),)),
    fixtures=(Fixture("release1k", "{}", (1,)), Fixture("mbpp28", "{}", (0,))),
    server=ServerPlan("null", model="small"),
    startups=3,
    pairs=4,
    warmups=1,
)
HOST = {"host.device_names": '["NVIDIA H200"]', "runtime_sha256": "one"}


def script(factor, spread=0.0005):
    def of(step, attempt):
        key = step.key
        wobble = 1 + spread * ((7 * key.startup + 3 * key.repeat + len(key.fixture)) % 5 - 2)
        return Script(Trajectory(30, 10, 19), 16.0 * wobble * (factor if step.role is Role.CANDIDATE else 1))

    return of


@pytest.fixture(scope="module")
def made(module_ram):
    """Three A/B campaigns on one build, one on another, one A/A."""
    path = module_ram / "store.sqlite"
    with Store.open(path) as store:

        def run(month, factor, plan=PLAN, **prints):
            utc = f"2026-0{month}-01T00:00:00+00:00"
            return Driver(store, plan, script(factor), HOST | prints, created_utc=utc, run_number=month).run()

        aa = replace(PLAN, name="noise", mode=Mode.AA, candidate=PLAN.control, startups=8)
        ids = {
            "noise": run(1, 1.0, aa),
            "first": run(2, 0.97),
            "slower": run(3, 1.03),
            "equal": run(4, 1.0),
            "blocked": run(5, 0.96, replace(PLAN, order=Order.BLOCKED)),
            "other": run(6, 0.96, runtime_sha256="two"),
        }  # fmt: skip
    return path, ids


@pytest.fixture
def store(made, ram):
    """A copy to write to."""
    shutil.copy(made[0], ram / "copy.sqlite")
    return ram / "copy.sqlite"


def run(*words, store):
    return main([*words, "--store", str(store)])


def test_history_says_what_the_reports_say(made):
    path, _ = made
    with Reader.open(path) as reader:
        found = history(reader)
        said = {campaign: summarise(reader, campaign) for campaign in found.campaign_id.unique()}
        for row in found.itertuples():
            group = next(g for g in said[row.campaign_id].groups if g.id == row.fixture)
            judgement = group.judgement
            assert (row.verdict, row.evidence) == (judgement.verdict.value, judgement.evidence.value)
            assert row.effect_pct == pytest.approx(100 * (2.718281828459045**judgement.effect - 1), abs=1e-6)
            assert row.noise_floor_pct == pytest.approx(100 * (2.718281828459045**judgement.floor.value - 1), abs=1e-6)
    assert len(found) == 12


def test_the_noise_floor_comes_from_the_aa_campaign_of_the_same_build(made):
    path, ids = made
    with Reader.open(path) as reader:
        sources = {name: summarise(reader, i).groups[0].judgement.floor.source for name, i in ids.items()}
    assert sources["first"] == "A/A, 8 startups"
    assert sources["slower"] == "A/A, 8 startups; A/B, 3 startups"  # of the one before it
    assert sources["noise"] == sources["other"] == "no A/A"  # itself, and another build
    assert sources["blocked"] == "no A/A"  # another order


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ({"verdict": "slower"}, {"slower"}),
        ({"since": "2026-04"}, {"equal", "other", "blocked"}),
        ({"mode": "aa"}, {"noise"}),
        ({"arm": "projection/columns-32"}, {"first", "slower", "equal", "other", "blocked"}),
        ({"arm": "columns-32", "verdict": "faster", "since": "2026-05"}, {"other", "blocked"}),
        ({"gpu": "h200", "model": "small", "name": "noise"}, {"noise"}),
        ({"gpu": "v100"}, set()),
    ],
)
def test_filters(made, wanted, names):
    path, ids = made
    with Reader.open(path) as reader:
        assert set(history(reader, Filter(**wanted)).campaign_id) == {ids[name] for name in names}


def test_an_exclusion_takes_both_arms_and_is_counted(made, store):
    _, ids = made
    with Store.open(store) as writer:
        key = PairKey(1, "mbpp28", 0, 2)
        writer.failure(Failure(ids["first"], "2026-02-02", Reason.THROTTLE, "power cap", 1, 1, key))
    with Reader.open(store) as reader:
        found = summarise(reader, ids["first"])
        assert (found.n_pairs, found.n_admissible_pairs, found.n_excluded) == (24, 23, 1)
        assert found.exclusions == {"throttle": 1}
        group = found.groups[1]
        assert group.control.n_requests == group.candidate.n_requests == 11
        rows = history(reader, Filter(campaigns=frozenset({ids["first"]})))
        assert rows.n_admissible.tolist() == [12, 11]


def test_a_whole_startup_may_be_excluded(made, store):
    _, ids = made
    with Store.open(store) as writer:
        writer.failure(
            Failure(ids["first"], "2026-02-02", Reason.FOREIGN_PROCESS, "pid 7", startup=2, startup_attempt=1)
        )
        writer.failure(
            Failure(ids["slower"], "2026-02-02", Reason.FOREIGN_PROCESS, "pid 7", startup=2, startup_attempt=9)
        )
    with Reader.open(store) as reader:
        found = summarise(reader, ids["first"])
        assert found.n_excluded == 8 and found.verdict.value == "screen"  # two startups are left
        assert summarise(reader, ids["slower"]).n_excluded == 0  # that attempt measured nothing


def test_a_startup_whose_files_changed_is_excluded_and_measured_again(made, store):
    _, ids = made
    with Store.open(store) as writer:
        before = writer.recorded(ids["first"]).pairs
        writer.failure(Failure(ids["first"], "2026-02-02", Reason.IDENTITY_FAIL, "a.so", startup=2, startup_attempt=1))
        assert writer.recorded(ids["first"]).pairs == {key for key in before if key.startup != 2} != before
    with Reader.open(store) as reader:
        assert summarise(reader, ids["first"]).exclusions == {"identity-fail": 8}


# -- the command line --------------------------------------------------------------------------------------------------


def test_history_command_in_three_formats(made, capsys):
    path, ids = made
    assert run("history", "--verdict", "slower", "--format", "json", store=path) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["campaign_id"] for row in rows] == [ids["slower"]] * 2 and rows[0]["effect_pct"] > 2.9
    assert run("history", "--since", "2026-06", "--format", "csv", store=path) == 0
    assert capsys.readouterr().out.splitlines()[1].startswith(f"{ids['other']},2026-06-01")
    assert run("history", store=path) == 0
    assert capsys.readouterr().out.count("nightly") == 10


def test_what_is_unknown_is_an_empty_field():
    rows = [["a", float("nan")], ["b", None], ["c", 0.5]]
    assert lay_out("csv", ["name", "effect"], rows) == "name,effect\na,\nb,\nc,0.5\n"
    assert [row["effect"] for row in json.loads(lay_out("json", ["name", "effect"], rows))] == [None, None, 0.5]


def test_query_reads_and_only_reads(made, capsys):
    path, ids = made
    before = path.read_bytes()
    sql = "SELECT count(*) AS n FROM v_request WHERE phase = 'measure' AND NOT superseded"
    assert run("query", sql, "--format", "json", store=path) == 0
    assert json.loads(capsys.readouterr().out) == [{"n": 2 * 8 * 8 + 5 * 2 * 3 * 8}]
    for statement in (
        "DELETE FROM campaign",
        "INSERT INTO probe VALUES (1)",
        "DROP VIEW v_round",
        "ATTACH '/tmp/x.sqlite' AS x",
        "PRAGMA journal_mode = DELETE",
        "PRAGMA user_version = 3",
        "PRAGMA database_list",  # reads, and tells where files lie
        "CREATE TEMP TABLE t (x)",
        "SELECT 1; DELETE FROM campaign",
        "VACUUM INTO '/tmp/x.sqlite'",
        "SELECT nothing FROM nowhere",
        "SELECT load_extension('x')",
        "",
    ):
        assert run("query", statement, store=path) == 1, statement
        assert capsys.readouterr().err.startswith("campaign: the query")
    assert path.read_bytes() == before
    assert ids


def test_query_has_limits(made, capsys):
    path, _ = made
    assert run("query", "SELECT * FROM v_round", "--max-rows", "5", "--format", "csv", store=path) == 0
    out = capsys.readouterr()
    assert len(out.out.splitlines()) == 6 and "only the first 5 rows" in out.err
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    assert run("query", endless, "--max-s", "0.3", store=path) == 1
    assert "stopped after 0.3 s" in capsys.readouterr().err


def test_views_agree_with_the_frames(made):
    path, ids = made
    with Reader.open(path) as reader:
        frame = request_frame(reader, ids["first"])
        view = pd.read_sql("SELECT * FROM v_request WHERE campaign_id = ? ORDER BY request_id",
                           sqlite3.connect(path), params=(ids["first"],))  # fmt: skip
        for name in ("ttft_ms", "e2el_ms", "request_average_engine_ms", "request_average_client_ms", "prefill_ms",
                     "decode_tokens_per_s_engine"):  # fmt: skip
            assert view[name].tolist() == pytest.approx(frame[name].tolist(), rel=1e-9), name
        effects = sqlite3.connect(path).execute(
            "SELECT fixture_id, startup_index, effect_pct, effect_log FROM v_effect WHERE campaign_id = ?",
            (ids["first"],),
        )
        found = {(fixture, startup): (pct, log) for fixture, startup, pct, log in effects}
        for group in summarise(reader, ids["first"]).groups:
            for startup, median in group.judgement.startup_medians.items():
                assert found[group.id, startup][1] == pytest.approx(median, abs=1e-9)
                assert found[group.id, startup][0] == pytest.approx(100 * (2.718281828459045**median - 1), abs=1e-6)


def test_trend_lists_and_draws(made, tmp_path, capsys):
    path, ids = made
    figure = tmp_path / "trend.svg"
    words = ("trend", "mbpp28", "--arm", "columns-32", "--format", "json", "--figure", str(figure))
    assert run(*words, store=path) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["campaign_id"] for row in rows] == [ids[n] for n in ("first", "slower", "equal", "blocked", "other")]
    drawn = figure.read_text()
    assert drawn.startswith("<svg xmlns=") and "var(" not in drawn and "currentColor" not in drawn
    assert "noise floor: what equal arms may differ by" in drawn
    bitmap = tmp_path / "trend.PNG"
    assert run(*words[:-1], str(bitmap), store=path) == 0
    capsys.readouterr()
    with Image.open(bitmap) as image:  # by a reader of somebody else's
        colours = {colour for _, colour in image.convert("RGB").getcolors(1 << 20)}
    assert image.format == "PNG" and {(0xBC, 0x4C, 0x00), (0xDD, 0xE3, 0xEA), (255, 255, 255)} <= colours
    assert not {(n, n, n) for n in range(1, 6)} & colours, "a placeholder's colour"
    assert run(*words[:-1], str(tmp_path / "trend.pdf"), store=path) == 1
    assert "ends with .svg or .png" in capsys.readouterr().err
    assert run("trend", "nothing", store=path) == 1
    assert "there are release1k, mbpp28" in capsys.readouterr().err


def test_compare_puts_equal_fingerprints_side_by_side(made, capsys):
    path, ids = made
    assert run("compare", ids["first"], ids["slower"], store=path) == 0
    out = capsys.readouterr().out
    assert "Fingerprints differ" not in out and "Levels, control / candidate ms" in out
    effects = out.split("Paired effects")[1].split("Levels")[0]
    before, after = (line for line in effects.splitlines() if line.startswith("mbpp28"))
    assert "+ faster" in before and "- slower" in after and after.endswith("-") and not before.endswith("-")
    with Reader.open(path) as reader:
        [judgement] = [g.judgement for g in summarise(reader, ids["first"]).groups if g.id == "mbpp28"]
    assert "(A/A" in cells.floor(judgement)  # the campaign's own half width would be another number
    for told in (cells.effect(judgement.effect), cells.interval(judgement), cells.floor(judgement)):
        assert f"  {told}  " in before, told


def test_compare_shows_what_differs_and_no_levels(made, capsys):
    path, ids = made
    assert run("compare", ids["first"], ids["other"], store=path) == 0
    out = capsys.readouterr().out
    assert "runtime_sha256  one" in out and "Levels" not in out and "Paired effects" in out


def test_declared_orders_are_never_mixed_in_one_table(made, capsys):
    path, ids = made
    assert run("compare", ids["first"], ids["blocked"], store=path) == 0
    out = capsys.readouterr().out
    assert "no common table" in out and "Paired effects" not in out
    assert run("compare", ids["first"], store=path) == 1


def test_baselines_are_named_sets(made, store, capsys):
    _, ids = made
    assert run("baseline", "set", "release", ids["first"], ids["equal"], "--note", "good nights", store=store) == 0
    assert run("baseline", "set", "release", ids["first"], store=store) == 0  # once is enough
    capsys.readouterr()
    assert run("baseline", "list", store=store) == 0
    assert capsys.readouterr().out == f"release: {ids['first']}, {ids['equal']}\n"
    assert run("history", "--baseline", "release", "--format", "csv", store=store) == 0
    assert len(capsys.readouterr().out.splitlines()) == 5
    assert run("history", "--baseline", "nothing", store=store) == 1


def test_plan_from_an_aa_campaign(made, capsys):
    path, ids = made
    assert run("plan", "--from", ids["noise"], "--half-width", "0.1", store=path) == 0
    out = capsys.readouterr().out
    assert "campaign.startups=" in out and "half width at most 0.10 %" in out
    assert run("plan", "--from", ids["noise"], "--half-width", "0", store=path) == 1


# -- export and import -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("format", "read"), [("csv", pd.read_csv), ("parquet", pd.read_parquet)])
def test_export_tables(made, tmp_path, format, read):
    path, ids = made
    folder = tmp_path / "out"
    assert run("export", ids["first"], "--format", format, "--output", str(folder), store=path) == 0
    sizes = {name: len(read(folder / f"{name}.{format}")) for name in ("requests", "pairs", "startups", "rounds")}
    assert sizes == {"requests": 60, "pairs": 24, "startups": 3, "rounds": 600}
    assert (
        run("export", ids["first"], "--format", format, "--output", str(folder), store=path) == 1
    )  # nothing overwritten


VLLM_NAMES = """date endpoint_type backend label model_id tokenizer_id num_prompts request_rate burstiness
max_concurrency duration completed failed total_input_tokens total_output_tokens request_throughput request_goodput
output_throughput total_token_throughput input_lens output_lens ttfts itls start_times generated_texts errors
max_output_tokens_per_s max_concurrent_requests mean_ttft_ms median_ttft_ms std_ttft_ms p99_ttft_ms mean_tpot_ms
median_tpot_ms std_tpot_ms p99_tpot_ms mean_itl_ms median_itl_ms std_itl_ms p99_itl_ms mean_e2el_ms median_e2el_ms
std_e2el_ms p99_e2el_ms spec_decode_acceptance_rate spec_decode_acceptance_length spec_decode_num_drafts
spec_decode_draft_tokens spec_decode_accepted_tokens spec_decode_per_position_acceptance_rates"""


def test_export_under_vllms_names(made, capsys):
    path, ids = made
    assert run("export", ids["first"], "--format", "vllm-bench", store=path) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found) == set(VLLM_NAMES.split())
    assert found["completed"] == 24 and found["failed"] == 0 and len(found["itls"]) == 24
    assert found["total_output_tokens"] == 24 * 30
    assert found["spec_decode_acceptance_rate"] == pytest.approx(100 * 19 / 70)
    assert found["spec_decode_acceptance_length"] == pytest.approx(2.9)
    assert found["mean_itl_ms"] == pytest.approx(16 * 0.97, rel=0.01)


def counts(path):
    connection = sqlite3.connect(path)
    tables = ("campaign", "startup", "request", "request_summary", "round", "pair", "probe")
    return {table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables}


def test_import_appends_and_never_doubles(ram, capsys):
    path = ram / "store.sqlite"
    with Store.open(path) as writer:
        aa = replace(PLAN, name="noise", mode=Mode.AA, candidate=PLAN.control)
        ids = [
            Driver(writer, plan, script(factor), HOST, created_utc=f"2026-0{month}-01T00:00:00+00:00").run()
            for month, (plan, factor) in enumerate([(aa, 1.0), (PLAN, 0.97)], start=1)
        ]
    target = ram / "target.sqlite"
    Store.open(target).close()
    assert run("import", str(path), store=target) == 0
    assert counts(target) == counts(path)
    assert run("import", str(path), store=target) == 0
    assert counts(target) == counts(path)
    assert "0 rows appended" in capsys.readouterr().out
    for name in ids:
        assert run("verify", name, store=target) == 0
    with Reader.open(path) as one, Reader.open(target) as other:
        pd.testing.assert_frame_equal(history(one), history(other))


def test_import_of_an_older_store(ram):
    target = ram / "target.sqlite"
    Store.open(target).close()
    old = Path(__file__).parents[1] / "store/stores/0001.sqlite"
    assert run("import", str(old), store=target) == 0
    assert run("verify", "last", store=target) == 0


def test_a_contradiction_is_named_and_left_out(made, store, ram, capsys):
    _, ids = made
    target = ram / "target.sqlite"
    shutil.copy(store, target)
    connection = sqlite3.connect(store)  # the other side tells another story of one request, with a hash that fits it
    connection.row_factory = sqlite3.Row
    asked = "SELECT * FROM request WHERE campaign_id = ? AND position = 3"
    row = {**connection.execute(asked, (ids["first"],)).fetchone(), "error": "forged"}
    changed = (row["error"], row_sha256(row), row["id"])
    connection.execute("UPDATE request SET error = ?, row_sha256 = ? WHERE id = ?", changed)
    connection.commit()
    connection.close()
    before = counts(target)
    assert run("import", str(store), store=target) == 6
    out = capsys.readouterr().out
    assert f"{ids['first']}: not imported, this store holds another request" in out
    assert f"{ids['slower']}: 0 rows appended" in out
    assert counts(target) == before
    assert run("verify", ids["first"], store=target) == 0


# -- gates -------------------------------------------------------------------------------------------------------------


def write_lines(path, *lines):
    path.write_text("\n".join(json.dumps(line) for line in lines))
    return str(path)


CHECK = {
    "gate": "contract",
    "operator": "projection",
    "schedule": "columns-32",
    "library_sha256": "aa",
    "check": "bytes",
    "problem": "m8",
    "status": "passed",
    "utc": "2026-01-01",
}


UNMEASURED = {**CHECK, "schedule": "columns-128"}  # no campaign is about it


def status_of(capsys, store, subject="projection/columns-32"):
    code = run("gates", subject, "--format", "json", store=store)
    return code, {row["gate"]: row for row in json.loads(capsys.readouterr().out)}


def test_the_ledger_of_a_schedule(made, store, tmp_path, capsys):
    _, ids = made
    lines = write_lines(tmp_path / "gate.jsonl", CHECK, {**CHECK, "check": "guards"})
    assert run("probe", "import", lines, store=store) == 0
    audit = write_lines(
        tmp_path / "audit.jsonl", {"kind": "fixed-prefix-row", "row": 0}, {"kind": "fixed-prefix", "passed": True}
    )
    assert run("probe", "import", audit, "--subject", "projection/columns-32", "--library", "aa", store=store) == 0
    assert "1 probe added (1 passed): 2 lines read" in capsys.readouterr().out
    code, rows = status_of(capsys, store)
    assert len(rows) == 14
    assert rows["operator bytes"]["status"] == rows["fixed-prefix audit"]["status"] == "passed"
    assert rows["three startups"]["status"] == "passed"  # the slower one is of an older build
    assert rows["three startups"]["evidence"] == ids["other"]
    assert rows["natural-output corpus"]["status"] == rows["user decision"]["status"] == "open"
    assert code == 0


def test_a_line_that_is_recorded_is_not_recorded_again(store, tmp_path, capsys):
    lines = write_lines(tmp_path / "gate.jsonl", CHECK, {**CHECK, "check": "guards"}, CHECK)
    assert run("probe", "import", lines, store=store) == 0
    assert "2 probes added (2 passed), 1 there already: 3 lines read" in capsys.readouterr().out
    assert run("probe", "import", lines, store=store) == 0
    assert "0 probes added, 3 there already: 3 lines read" in capsys.readouterr().out
    assert counts(store)["probe"] == 2


def test_a_line_without_a_time_is_the_recorded_one_until_another_result_came_after_it(store, tmp_path):
    untimed = {name: value for name, value in CHECK.items() if name != "utc"}
    passed = write_lines(tmp_path / "passed.jsonl", untimed)
    failed = write_lines(tmp_path / "failed.jsonl", {**untimed, "status": "failed"})
    for file, total in ((passed, 1), (passed, 1), (failed, 2), (passed, 3)):
        assert run("probe", "import", file, store=store) == 0
        assert counts(store)["probe"] == total


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("gates", "projection/column-32"), "is no schedule, arm or recorded subject; did you mean projection/col"),
        (("gates", "nonsense"), "nonsense is no schedule, arm or recorded subject; conf/arm has the arms"),
        (("gates", "cpu-tuned", "--gates", "none"), "--gates none: there are default"),
        (("gates", "cpu-tuned", "--library", "ab"), "--library ab: no probe of cpu-tuned is about it; there is none"),
        (("promote", "cpu-tunned", "--by", "a", "--reason", "b"), "did you mean cpu-tuned?"),
        (("history", "--arm", "colums-32"), "--arm colums-32: no recorded campaign has it; did you mean columns-32?"),
        (("history", "--arm", "schedules"), "--arm schedules: no recorded campaign has it"),  # a key of the plan
        (("history", "--gpu", "v100"), "--gpu v100: no recorded campaign has it; there are NVIDIA H200"),
        (("history", "--fixture", "mbpp3"), "--fixture mbpp3: no recorded campaign has it; did you mean mbpp28?"),
        (("history", "--verdict", "fastest"), "--verdict fastest: there is no such verdict; did you mean faster?"),
        (("history", "--since", "yesterday"), "argument --since: yesterday is no UTC time: write YYYY-MM-DD"),
        (("history", "--baseline", "none"), "no baseline is named 'none'"),
        (("trend", "mbpp28", "--model", "large"), "--model large: no recorded campaign has it; there are small"),
        (("trend", "mbpp"), "no campaign measured 'mbpp'; there are release1k, mbpp28"),
    ],
)  # fmt: skip
def test_a_name_that_does_not_exist_is_not_an_empty_answer(made, capsys, words, said):
    assert run(*words, store=made[0]) == 1
    captured = capsys.readouterr()
    assert said in captured.err and captured.err.count("\n") == 1 and not captured.out


def test_names_that_exist_but_never_together_give_an_empty_answer(made, capsys):
    assert run("history", "--name", "noise", "--verdict", "slower", store=made[0]) == 0
    assert capsys.readouterr().err == "nothing that was measured meets all of this\n"


def test_the_ledger_of_an_arm_or_a_schedule_that_nobody_measured_is_open(made, capsys):
    for subject in ("gdn-bv16", "gdn/sequential"):
        assert run("gates", subject, store=made[0]) == 0
        assert "run a campaign of 3 startups" in capsys.readouterr().out


def test_a_failed_gate_ends_with_2(store, tmp_path, capsys):
    lines = write_lines(tmp_path / "gate.jsonl", UNMEASURED, {**UNMEASURED, "check": "guards", "status": "failed"})
    assert run("probe", "import", lines, store=store) == 0
    capsys.readouterr()
    code, rows = status_of(capsys, store, "projection/columns-128")
    assert code == 2 and rows["operator bytes"]["status"] == "failed"


def test_probes_of_another_build_do_not_count(store, tmp_path, capsys):
    old = write_lines(tmp_path / "a.jsonl", {**UNMEASURED, "library_sha256": "old"})
    new = write_lines(
        tmp_path / "b.jsonl", {**UNMEASURED, "gate": "sanitizer", "library_sha256": "new", "utc": "2026-01-02"}
    )
    assert run("probe", "import", old, store=store) == run("probe", "import", new, store=store) == 0
    capsys.readouterr()
    _, rows = status_of(capsys, store, "projection/columns-128")
    assert rows["sanitizers"]["status"] == "passed"
    assert rows["operator bytes"]["status"] == "open" and "of another" in rows["operator bytes"]["missing next"]


def test_promotion_is_a_recorded_decision(store, capsys):
    words = ("promote", "projection/columns-128", "--by", "a person", "--reason", "faster on every night")
    assert run(*words, store=store) == 1
    assert "has not passed operator bytes" in capsys.readouterr().err
    assert run(*words, "--despite-open", store=store) == 0
    capsys.readouterr()
    _, rows = status_of(capsys, store, "projection/columns-128")
    assert rows["user decision"]["status"] == "passed" and "promote by a person" in rows["user decision"]["evidence"]
    assert (
        run("promote", "projection/columns-128", "--by", "b", "--reason", "wait", "--decision", "hold", store=store)
        == 0
    )
    with Reader.open(store) as reader:
        assert [d.decision for d in reader.decisions()] == ["promote", "hold"]
        assert len(json.loads(reader.decisions()[0].evidence_json)) == 13


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{not json}", "line 1 is not JSON"),
        ("[1]", "line 1 is not a JSON object"),
        ('{"gate": "contract", "status": "passed"}', "line 1 has no subject"),
        ('{"status": "passed", "subject": "a"}', "line 1 has no gate"),
        ('{"gate": "contract", "subject": "a", "status": "fine"}', "status 'fine' is none of"),
    ],
)
def test_a_bad_probe_line_stores_nothing(store, tmp_path, capsys, text, complaint):
    file = tmp_path / "bad.jsonl"
    file.write_text(text)
    assert run("probe", "import", str(file), store=store) == 1
    assert complaint in capsys.readouterr().err
    assert counts(store)["probe"] == 0
