"""The store keeps what it was given: round trips, hashes, attempts, one writer, and refusals in one sentence."""

import os
import shutil
import sqlite3
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy.exc import IntegrityError

from campaigns.errors import IdentityMismatch, StoreUnreadable, UsageError
from campaigns.order import blocks, pair_keys
from campaigns.plan import Arm, CampaignPlan, Fixture, PairKey, Role, ServerPlan
from campaigns.reasons import Reason
from campaigns.records import CampaignStatus, Failure, Process, Round, StartupEnd, StartupStatus
from campaigns.remarks import Decision, Probe, Score
from results.reading.frames import requests
from results.store.hashing import row_sha256
from results.store.place import DEFAULT
from results.store.reader import Reader
from results.store.verify import Tally, verify
from results.store.writer import Store, schema
from results.transfer.scripts import Script, Trajectory
from results.transfer.synthetic import Driver

ROOT = Path(__file__).parents[3]
PLAN = CampaignPlan(
    name="unit",
    control=Arm("control", (("projection", "columns-128"),)),
    candidate=Arm("candidate", (("projection", "columns-32"),)),
    fixtures=(Fixture("alpha", "{}", (0,)), Fixture("beta", "{}", (7,))),
    server=ServerPlan("null"),
    startups=2,
    pairs=2,
    warmups=1,
)


def script(step, attempt):
    return Script(Trajectory(30, 9, 19), 16.0 if step.role is Role.CONTROL else 15.5, token_seed=len(step.key.fixture))


@pytest.fixture
def path(ram):
    return ram / "store.sqlite"


def run(path, plan=PLAN, scripts=script):
    with Store.open(path) as store:
        return Driver(store, plan, scripts, samples=True).run()


def test_every_fact_comes_back_as_it_was_written(path):
    with Store.open(path) as store:
        driver = Driver(store, PLAN, script)
        written = []
        keep = store.request
        store.request = lambda request: (written.append(request), keep(request))
        campaign_id = driver.run()
        key = PairKey(0, "alpha", 0, 1)
        end = StartupEnd(StartupStatus.FAILED, "2026-01-01", Reason.SURVIVORS, "left over", (Process(7, 9),))
        failure = Failure(campaign_id, "2026-01-01", Reason.STALL, "silent for 3 s", 1, 2, key)
        score = Score(campaign_id, key, Role.CANDIDATE, "2026-01-01", "gsm8k", "1", "{}", "passed", "[1]")
        probe = Probe("2026-01-01", "operator", "attention/scalar", "passed", "00" * 32, '{"checks": 65}')
        decision = Decision("2026-01-02", "projection/columns-32", "promote", "a person", "faster", "[]")
        store.startup_end(campaign_id, 0, 2, end)
        store.failure(failure)
        store.scores([score])
        store.probes([probe])
        store.decision(decision)
    with Reader.open(path) as reader:
        assert [stored.request for stored in reader.requests(campaign_id)] == written
        assert len(written) == 2 * 2 * (2 * 1 + 2 * 2)
        assert reader.campaign(campaign_id) == driver.campaign()
        assert [p.key for p in reader.pairs(campaign_id)] == list(pair_keys(PLAN))
        assert reader.failures(campaign_id) == [failure]
        assert reader.scores(campaign_id) == [score]
        assert reader.probes() == [probe]
        assert reader.decisions() == [decision]
        first = reader.lives(campaign_id)[0]
        assert first.startup.processes == (Process(1001, 6001, "server"),)
        assert first.startup.calibration == driver.calibration
        assert first.end == StartupEnd(StartupStatus.COMPLETE, driver.created_utc)
        assert reader.status(campaign_id) is CampaignStatus.COMPLETE


@pytest.mark.parametrize("count", [0, 1, 59, 60, 61, 150])
def test_rounds_come_back_whole_however_many_statements_they_took(path, count):
    with Store.open(path) as store:
        driver = Driver(store, PLAN, script)
        campaign = driver.campaign()
        store.begin(campaign)
        block = blocks(PLAN, 0)[0]
        request = driver.request(campaign.campaign_id, block.steps[0], 1, store.block(campaign.campaign_id, block, 1))
        rounds = tuple(Round(i, "spec", 10**9 + i, 3, i % 7 == 0, emitted=i % 8) for i in range(1, count + 1))
        store.request(replace(request, rounds=rounds, n_rounds=count))
    with Reader.open(path) as reader:
        (stored,) = reader.requests(campaign.campaign_id)
        assert stored.request.rounds == rounds and stored.request.token_ids == request.token_ids
        assert not [finding for finding in verify(reader, campaign.campaign_id, Tally()) if "round" in finding.what]


def test_a_fact_of_no_campaign_is_refused_and_leaves_nothing(path):
    with Store.open(path) as store:
        driver = Driver(store, PLAN, script)
        campaign = driver.campaign()
        request = driver.request(campaign.campaign_id, blocks(PLAN, 0)[0].steps[0], 1, 1)
        for record, fact in ((store.request, request), (store.failure, Failure("none", "", Reason.STALL, "silent"))):
            with pytest.raises(IntegrityError, match="FOREIGN KEY"):
                record(fact)
        store.begin(campaign)
        store.request(request)
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT count(*) FROM request").fetchone() == (1,)
        assert connection.execute("SELECT count(*) FROM round").fetchone() == (len(request.rounds),)


def test_every_row_carries_the_hash_of_itself(path):
    run(path)
    connection = sqlite3.connect(path)
    connection.row_factory = sqlite3.Row
    checked = 0
    for table in schema.metadata.sorted_tables:
        if "row_sha256" in table.c:
            for row in connection.execute(f"SELECT * FROM {table.name}"):
                assert row["row_sha256"] == row_sha256(dict(row)), table.name
                checked += 1
    assert checked > 50
    connection.close()


def test_a_null_column_of_a_later_revision_leaves_old_hashes_valid():
    row = {"campaign_id": "a", "message": "b"}
    assert row_sha256(row) == row_sha256({**row, "added_later": None, "id": 3})
    assert row_sha256(row) != row_sha256({**row, "message": "c"})


def test_text_that_has_no_utf8_form_is_kept_escaped(path):
    with Store.open(path) as store:
        driver = Driver(store, PLAN, script)
        campaign_id = driver.run()
        [step, *_] = blocks(PLAN, 0)[0].steps
        odd = driver.request(campaign_id, replace(step, order_in_pair=-1), 9, 9)
        store.request(replace(odd, text="half \ud83d a pair", tool_calls_json="nul \0 inside"))
    with Reader.open(path) as reader:
        [*_, last] = reader.requests(campaign_id)
        assert last.request.text == "half \\ud83d a pair"
        assert last.request.tool_calls_json == "nul \0 inside"


def test_a_newer_block_attempt_supersedes_the_older_and_resume_repeats_the_block(path):
    with Store.open(path) as store:
        driver = Driver(store, PLAN, script)
        campaign = driver.campaign()
        store.begin(campaign)
        driver.start(campaign.campaign_id, 0, 1)
        first, second = blocks(PLAN, 0)
        driver.block(campaign.campaign_id, first, 1)
        driver.block(campaign.campaign_id, second, 1, stop_after=5)  # warm-ups and one pair and a half: killed here
        before = store.recorded(campaign.campaign_id)
        assert before.holds(first) and not before.holds(second)
        assert before.next_startup_attempt(0) == 2 and before.next_block_attempt(second) == 2
        assert before.next_block_attempt(blocks(PLAN, 1)[0]) == 1
        driver.life(campaign.campaign_id, 0, 2, (second,))
        after = store.recorded(campaign.campaign_id)
        assert after.holds(first) and after.holds(second)
        assert after.startup_attempts == {0: 2}
        driver.life(campaign.campaign_id, 1, 1, blocks(PLAN, 1))
        whole = store.recorded(campaign.campaign_id)
        assert store.recorded(campaign.campaign_id, 0) == after, "one startup of two, as if it were alone"
        other = store.recorded(campaign.campaign_id, 1)
        assert other.pairs == whole.pairs - after.pairs and other.startup_attempts == {1: 1}
        assert {**after.block_attempts, **other.block_attempts} == whole.block_attempts
    with Reader.open(path) as reader:
        stored = list(reader.requests(campaign.campaign_id))
        first_life = [s for s in stored if s.request.startup == 0]
        old = [s for s in first_life if s.request.key.fixture == "beta" and s.request.block_attempt == 1]
        assert len(old) == 5 and all(s.superseded for s in old)
        assert sum(s.superseded for s in stored) == 5


def test_the_warmups_of_a_server_life_belong_to_no_block_and_are_never_superseded(path):
    plan = replace(PLAN, corpus="frozen", pairs=1, warmups=2)
    with Store.open(path) as store:
        campaign_id = Driver(store, plan, script).run()
        store.block(campaign_id, blocks(plan, 0)[0], 2)  # its requests are superseded, the life's warm-ups are not
    with Reader.open(path) as reader:
        stored = list(reader.requests(campaign_id))
        superseded = {s.request_id for s in stored if s.superseded}
        assert len(superseded) == 2 and sum(s.request.block_attempt == 0 for s in stored) == 8
        frame = requests(reader, campaign_id)
        assert set(frame[frame.superseded].request_id) == superseded
        view = reader.connection.exec_driver_sql("SELECT request_id FROM v_request WHERE superseded")
        assert {row[0] for row in view} == superseded


def test_an_opened_block_without_requests_holds_nothing(path):
    with Store.open(path) as store:
        campaign_id = Driver(store, PLAN, script).run()
        block = blocks(PLAN, 0)[0]
        assert store.recorded(campaign_id).holds(block)
        assert store.block(campaign_id, block, 2) == 2
        assert not store.recorded(campaign_id).holds(block)


def test_facts_are_inserted_once(path):
    with Store.open(path) as store:
        driver = Driver(store, PLAN, script)
        campaign_id = driver.run()
        step = blocks(PLAN, 0)[0].steps[0]
        again = driver.request(campaign_id, step, 1, 1)
        with pytest.raises(Exception, match="UNIQUE"):
            store.request(again)
        rounds = sqlite3.connect(path).execute("SELECT count(*) FROM round").fetchone()
    assert rounds == (10 * 2 * 2 * 6,)  # the refused request left nothing behind


def test_the_same_campaign_may_begin_again_and_another_may_not_take_its_name(path):
    with Store.open(path) as store:
        driver = Driver(store, PLAN, script)
        campaign = driver.campaign()
        store.begin(campaign)
        store.begin(campaign)
        with pytest.raises(IdentityMismatch, match="begun with configuration"):
            store.begin(replace(campaign, config_sha256="0" * 64))


def test_prompts_are_recorded_at_first_use_and_held_to(path):
    with Store.open(path) as store:
        assert store.prompt_hashes("c", "t", "x", {"a": "1", "b": "2"}) is None
        assert store.prompt_hashes("c", "t", "x", {"a": "1", "new": "3"}) is None
        assert store.prompt_hashes("c", "other", "x", {"b": "9"}) is None
        assert store.prompt_hashes("c", "t", "x", {"before": "7", "a": "8", "b": "9", "after": "7"}) == "a"
        assert store.prompt_hashes("c", "t", "x", {"before": "0", "after": "0"}) is None, "a refusal recorded nothing"


def test_two_processes_write_different_campaigns_and_never_the_same(path):
    with Store.open(path) as store:
        driver = Driver(store, PLAN, script)
        campaign = driver.campaign()
        store.begin(campaign)
        code = f"""
            from pathlib import Path
            from tests_of_store import PLAN, script
            from results.store.writer import Store
            from results.transfer.synthetic import Driver
            with Store.open(Path({str(path)!r})) as store:
                print(Driver(store, PLAN, script, run_number=2).run())
                store.begin(Driver(store, PLAN, script).campaign())
        """
        done = child(code)
        assert len(done.stdout.strip()) == 12, done.stderr
        assert "StoreUnwritable" in done.stderr and f"being written by process {os.getpid()}" in done.stderr
    with Store.open(path) as store:
        store.begin(campaign)  # the lock went with the writer
    assert not list(path.parent.glob("*.writer"))


PRELUDE = f"""
import importlib.util, sys
spec = importlib.util.spec_from_file_location("tests_of_store", {__file__!r})
sys.modules["tests_of_store"] = module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
"""


def child(code):
    """Python in another process, with this file importable as `tests_of_store`."""
    command = [sys.executable, "-c", PRELUDE + textwrap.dedent(code)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT)


def test_threads_of_one_driver_read_and_write_without_ending_each_others_transactions(path):
    """Startups side by side ask what others wrote while these write: one connection, one after the other."""
    threads, turns = 4, 60
    with Store.open(path) as store:
        campaign = Driver(store, PLAN, script).campaign()
        store.begin(campaign)

        def one_startup(startup):
            for attempt in range(1, turns + 1):
                store.identity(campaign.campaign_id, startup, attempt, "warm", {"pid": attempt})
                told = store.warm_identities(campaign.campaign_id)
                assert [row[1] for row in told if row[0] == startup] == list(range(1, attempt + 1))
                assert not store.recorded(campaign.campaign_id, startup).pairs

        with ThreadPoolExecutor(threads) as pool:
            assert list(pool.map(one_startup, range(threads))) == [None] * threads
        assert len(store.warm_identities(campaign.campaign_id)) == threads * turns


def test_a_new_store_is_waited_for_while_another_process_makes_it(path):
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")  # before the log's mode: whoever would change it is refused without a wait
        done = threading.Timer(0.2, other.execute, ("ROLLBACK",))
        done.start()
        with Store.open(path):
            done.join()


def test_eight_writers_at_once_lose_nothing(path):
    done = child(f"""
        import multiprocessing
        from pathlib import Path
        from tests_of_store import PLAN, script
        from results.store.writer import Store
        from results.transfer.synthetic import Driver
        def write(number):
            with Store.open(Path({str(path)!r})) as store:
                Driver(store, PLAN, script, run_number=number).run()
        fork = multiprocessing.get_context("fork")
        children = [fork.Process(target=write, args=(n,)) for n in range(8)]
        for process in children: process.start()
        for process in children: process.join()
        print([process.exitcode for process in children])
    """)
    assert done.stdout.strip() == str([0] * 8), done.stderr
    with Reader.open(path) as reader:
        assert len(reader.campaigns()) == 8
        assert all(len(reader.recorded(c.campaign_id).pairs) == 8 for c in reader.campaigns())


@pytest.mark.parametrize("limit", ["pages", pytest.param("file size", marks=pytest.mark.acceptance)])
def test_a_full_disk_is_one_sentence_and_loses_nothing_committed(path, limit):
    campaign_id = run(path)
    code = f"""
        import resource, sys
        from pathlib import Path
        from tests_of_store import PLAN, script
        from results.store.writer import Store
        from results.transfer.scripts import Script, Trajectory
        from results.transfer.synthetic import Driver
        path = Path({str(path)!r})
        store = Store.open(path)
        if {limit!r} == "pages":
            store._engine.raw_connection().cursor().execute("PRAGMA max_page_count = 60")
        else:
            resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
        big = lambda step, attempt: Script(Trajectory(15000, 5000, 9999), 16.0)
        try:
            Driver(store, PLAN, big, run_number=2).run()
        finally:
            store.close()
    """
    failed = child(code)
    assert failed.returncode == 1
    sentence = failed.stderr.strip().splitlines()[-1]
    assert sentence.startswith("campaigns.errors.StoreUnwritable: the store") and "committed before is kept" in sentence
    with Reader.open(path) as reader:
        assert len(reader.recorded(campaign_id).pairs) == 8
    assert sqlite3.connect(path).execute("PRAGMA integrity_check").fetchone() == ("ok",)


def as_nobody(code):
    """Root ignores mode bits: the child gives up its uid first."""
    drop = "import os\nif os.getuid() == 0:\n    os.setgid(65534); os.setuid(65534)\n"
    return subprocess.run(
        [sys.executable, "-c", "import results.store.reader, results.store.writer\n" + drop + textwrap.dedent(code)],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )


@pytest.fixture
def read_only_folder(tmp_path):
    """A store in a folder that its reader may not write to; outside pytest's own, which only the owner may enter."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="campaign-test-") as name:
        folder = Path(name)
        run(folder / "store.sqlite")
        folder.chmod(0o555)
        (folder / "store.sqlite").chmod(0o444)
        yield folder
        folder.chmod(0o755)


def test_a_read_only_store_is_refused_by_the_writer_and_read_by_the_reader(read_only_folder):
    path = read_only_folder / "store.sqlite"
    refused = as_nobody(f"""
        from pathlib import Path
        results.store.writer.Store.open(Path({str(path)!r}))
    """)
    sentence = refused.stderr.strip().splitlines()[-1]
    assert "StoreUnwritable" in sentence and "not writable" in sentence and "--store" in sentence
    read = as_nobody(f"""
        from pathlib import Path
        from results.store.reader import Reader
        with Reader.open(Path({str(path)!r})) as reader:
            print(len(reader.recorded(reader.resolve("last")).pairs))
    """)
    assert read.stdout.strip() == "8", read.stderr


def begin(store, run_number):
    campaign = Driver(store, PLAN, script, run_number=run_number).campaign()
    store.begin(campaign)
    return campaign.campaign_id


def test_ids_may_be_abbreviated_while_unique(path):
    with Store.open(path) as store:
        ids = [begin(store, n) for n in range(20)]
    with Reader.open(path) as reader:
        assert reader.resolve("last") == ids[-1]
        assert reader.resolve(ids[3]) == ids[3]
        shared = next(a[0] for a in ids for b in ids if a != b and a[0] == b[0])
        with pytest.raises(UsageError, match="could be any of"):
            reader.resolve(shared)
        with pytest.raises(UsageError, match="no campaign is named 'zzz'"):
            reader.resolve("zzz")


def test_a_missing_or_foreign_file_is_one_fault_for_readers_and_writers(path, tmp_path):
    with pytest.raises(UsageError, match="no store at"):
        Reader.open(path)
    foreign = tmp_path / "foreign.sqlite"
    connection = sqlite3.connect(foreign)
    connection.execute("CREATE TABLE other (x)")
    connection.commit()
    connection.close()
    text = tmp_path / "notes.txt"
    text.write_text("not a database at all, but long enough to be looked at" * 40)
    for file in (foreign, text):
        before = file.read_bytes()
        for opener in (Reader.open, Store.open):
            with pytest.raises(UsageError, match="is not a store of campaigns: name another file with --store"):
                opener(file)
        assert file.read_bytes() == before


def test_a_folder_that_is_not_there_is_not_made(tmp_path, monkeypatch):
    for path, said in ((tmp_path / "typo" / "c.sqlite", "there is no folder"), (tmp_path, "is a folder: name a file")):
        with pytest.raises(UsageError, match=said):
            Store.open(path)
    assert not list(tmp_path.iterdir())
    monkeypatch.chdir(tmp_path)
    Store.open(DEFAULT).close()
    assert DEFAULT.is_file()


@pytest.mark.parametrize("kept", [0.1, 0.9])
def test_a_damaged_store_is_a_sentence(path, kept):
    """Whether SQLite meets the damage when it opens the file, or later."""
    with Store.open(path) as store:
        campaign_id = Driver(store, PLAN, script).run()
    content = path.read_bytes()
    pages = [content[i : i + 4096] for i in range(0, len(content), 4096)]
    for number in range(int(kept * len(pages)), len(pages)):
        pages[number] = bytes(4096)
    path.write_bytes(b"".join(pages))
    with pytest.raises(StoreUnreadable, match="is damaged"), Reader.open(path) as reader:
        list(reader.requests(campaign_id))


def test_the_reader_sees_what_the_writer_committed_while_it_writes(path):
    with Store.open(path) as store:
        driver = Driver(store, PLAN, script)
        campaign = driver.campaign()
        store.begin(campaign)
        driver.start(campaign.campaign_id, 0, 1)
        driver.block(campaign.campaign_id, blocks(PLAN, 0)[0], 1)
        with Reader.open(path) as reader:
            assert len(reader.recorded(campaign.campaign_id).pairs) == 2
            driver.block(campaign.campaign_id, blocks(PLAN, 0)[1], 1)
        with Reader.open(path) as reader:
            assert len(reader.recorded(campaign.campaign_id).pairs) == 4


def test_closing_folds_the_log_into_the_file(path, tmp_path):
    campaign_id = run(path)
    assert not path.with_name("store.sqlite-wal").exists()
    copy = tmp_path / "copy" / "store.sqlite"
    copy.parent.mkdir()
    shutil.copy(path, copy)
    with Reader.open(copy) as reader:
        assert len(reader.recorded(campaign_id).pairs) == 8
