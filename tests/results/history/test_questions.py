"""The twelve questions of docs/history.md are answered as they stand there, and every column has a meaning."""

import math
import re
import shutil
from pathlib import Path

import pytest

from campaigns.errors import UsageError
from campaigns.plan import Arm, CampaignPlan, Fixture, Role, ServerPlan
from campaigns.reasons import Reason
from orchestrator.cli import main
from results.history.entries import history
from results.history.meanings import ANEW, CAMPAIGNS, MEANINGS, schema, unit
from results.history.query import query
from results.store.reader import Reader
from results.store.writer import Store
from results.transfer.scripts import Script, Trajectory
from results.transfer.synthetic import Driver

DOCS = Path(__file__).parents[3] / "docs" / "history.md"
QUESTIONS = dict(re.findall(r"\*\*([^*]+)\*\*\n\n```sql\n(.+?)```", DOCS.read_text(), re.DOTALL))
PLAN = CampaignPlan(
    name="asked",
    control=Arm("a"),
    candidate=Arm("b", (("projection", "columns-32"),)),
    fixtures=(Fixture("f", "{}", (0,)), Fixture("g", "{}", (1,))),
    server=ServerPlan("null"),
    startups=3,
    pairs=4,
    warmups=1,
)


@pytest.fixture(scope="module")
def store(module_ram):
    def script(step, attempt):
        key, candidate = step.key, step.role is Role.CANDIDATE
        bad = (key.startup, key.fixture, key.repeat) == (1, "g", 2) and candidate
        odd = (key.startup, key.fixture, key.repeat) == (0, "f", 1) and candidate
        made = Script(Trajectory(30, 10, 19), 14.4 if candidate else 16.0, token_seed=9 if odd else 1)
        return made if not bad else made.__class__(**vars(made) | {"admissible": False, "reasons": (Reason.CACHE_HIT,)})

    path = module_ram / "store.sqlite"
    with Store.open(path) as writer:
        Driver(writer, PLAN, script, samples=True).run()
    return path


@pytest.fixture
def reader(store):
    with Reader.open(store) as opened:
        yield opened


def test_there_are_twelve():
    assert len(QUESTIONS) == 12


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_is_answered_as_it_stands(question, reader):
    answer = query(reader, QUESTIONS[question])
    assert answer.rows and all(len(row) == len(answer.header) for row in answer.rows)
    assert all(any(row[i] is not None for row in answer.rows) for i in range(len(answer.header) - 2)), answer


def test_some_answers_are_right(reader):
    def of(start):
        [question] = [sql for name, sql in QUESTIONS.items() if name.startswith(start)]
        return query(reader, question).rows

    assert [(row[1], row[2], row[4]) for row in of("First divergences")] == [(0, "f", 1)]
    assert [(row[1], row[2]) for row in of("Exclusions")] == [(reason, 1) for _, reason, _ in of("Exclusions")]
    assert "cache-hit" in {row[1] for row in of("Exclusions")}
    assert {row[:2] for row in of("Effect per schedule")} == {("projection", "columns-32")}
    assert all(math.isclose(row[4], -10.0, abs_tol=0.2) for row in of("Effect per schedule"))
    assert {row[4] for row in of("Restart") if row[1] == "f" and row[3] == "candidate"} == {2}


def test_v_campaign_says_what_history_says_and_changes_nothing(reader, store):
    before = store.read_bytes()
    rows = query(reader, "SELECT fixture_id, verdict, effect_pct FROM V_Campaign ORDER BY 1").rows
    assert rows == query(reader, "SELECT fixture_id, verdict, effect_pct FROM v_campaign ORDER BY 1").rows
    told = history(reader)
    assert [row[:2] for row in rows] == list(zip(told.fixture, told.verdict, strict=True))
    assert [row[2] for row in rows] == pytest.approx(list(told.effect_pct))
    assert store.read_bytes() == before


def test_every_column_has_a_meaning_and_no_meaning_is_left_over(reader):
    rows = schema(reader.connection)
    assert not [row[:3] for row in rows if not row[5]]
    assert set(MEANINGS) == {row[2] for row in rows}
    assert {row[0] for row in rows} >= {"v_request", "v_pair", CAMPAIGNS, "request", "campaign"}
    assert (unit("ttft_ms"), unit("power_mw"), unit("ready_s"), unit("arm"), unit("ns")) == ("ms", "mW", "s", "", "ns")


def test_a_table_and_its_views_share_their_names(reader):
    """Where a view renames a column for reports, it has the table's name as well, with the same value."""
    columns: dict[str, set[str]] = {}
    for table, _, column, *_ in schema(reader.connection):
        columns.setdefault(table, set()).add(column)
    for view in ("v_request", "v_round", "v_pair", "v_startup", "v_effect"):
        renamed = {new: old for old, new in ANEW.items() if new in columns[view]}
        assert set(renamed.values()) <= columns[view], view
        same = " AND ".join(f"{new} IS {old}" for new, old in renamed.items() if new != "exact_level")
        assert (
            query(reader, f"SELECT count(*), sum({same}) FROM {view}").rows[0]
            == query(reader, f"SELECT count(*), count(*) FROM {view}").rows[0]
        ), view
    assert {"device_uuids", "processes", "reason"} <= columns["v_startup"]
    joined = "SELECT count(*) FROM pair JOIN v_pair USING (campaign_id, startup, fixture, seed, repeat, exactness)"
    assert query(reader, joined).rows[0][0] > 0


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT fixture FROM v_campaign", "no such column: fixture; did you mean fixture_id?"),
        ("SELECT p.startup_index FROM pair p", "no such column: p.startup_index; did you mean startup?"),
        ("SELECT efect_pct FROM v_campaign", "did you mean effect_pct?"),
        ("SELECT 1 FROM v_pairs", "no such table: v_pairs; did you mean v_pair?"),
        ("SELECT zzz FROM pair", "no such column: zzz);"),
    ],
)
def test_a_wrong_name_is_told_the_right_one(store, sql, said):
    with Reader.open(store) as reader, pytest.raises(UsageError) as told:
        query(reader, sql)
    assert said in str(told.value)


WRITING = (
    *("VACUUM INTO '/tmp/never.sqlite'", "VACUUM", "ATTACH '/tmp/never.sqlite' AS other", "PRAGMA user_version = 3"),
    *("CREATE TEMP TABLE t(a)", "CREATE TEMP VIEW v AS SELECT 1", "BEGIN IMMEDIATE", "SAVEPOINT s", "REINDEX"),
    *("SELECT 1; SELECT 2", "SELECT 1; DROP TABLE pair", "-- a\nDELETE FROM pair", "/* a */ DELETE FROM pair"),
    "WITH x AS (SELECT 'a' AS a) INSERT INTO baseline(name) SELECT a FROM x",
    *("EXPLAIN DELETE FROM pair", "SELECT load_extension('x')", "SELECT * FROM pragma_user_version"),
)
READING = (
    "-- a\nSELECT 1",
    "/* a */ SELECT 1;",
    "WITH x AS (SELECT 1 AS a) SELECT a FROM x",
    "EXPLAIN SELECT 1",
    "VALUES (1)",
)


@pytest.mark.parametrize("sql", WRITING)
def test_what_would_do_more_than_read_is_refused_for_that(reader, sql):
    with pytest.raises(UsageError, match=r"^the query may only read: write one SELECT$"):
        query(reader, sql)


@pytest.mark.parametrize("sql", READING)
def test_what_reads_is_answered(reader, sql):
    assert query(reader, sql).rows


def test_schema_on_the_command_line(store, capfd, tmp_path):
    copy = tmp_path / "store.sqlite"
    shutil.copy(store, copy)
    assert main(["query", "--schema", "v_pair", "--store", str(copy)]) == 0
    assert "candidate over control; negative is faster" in capfd.readouterr().out
    assert main(["query", "--schema", "v_par", "--store", str(copy)]) == 1
    assert "did you mean v_pair?" in capfd.readouterr().err
    assert main(["query", "--store", str(copy)]) == 1
    assert main(["query", "SELECT x'c0ffee' AS h", "--store", str(copy), "--format", "csv"]) == 0
    assert capfd.readouterr().out == "h\nc0ffee\n"
