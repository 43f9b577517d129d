"""`campaign serve` over a real socket: pages, a campaign that runs, hostile names, foreign hosts and origins."""

from __future__ import annotations

import html
import http.client
import json
import re
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlencode

import pytest
import uvicorn

from campaigns.order import blocks
from campaigns.plan import Arm, CampaignPlan, Fixture, Mode, Role, ServerPlan
from campaigns.reasons import Reason
from campaigns.records import CampaignStatus, Failure
from campaigns.remarks import Annotation
from campaigns.remarks import Mark as Mark_
from orchestrator.cli import main
from orchestrator.web.app import Pages, application
from orchestrator.web.charts import Mark, chart
from results.history.entries import Judged, history
from results.reading.summary import summarise
from results.store.reader import Reader
from results.store.writer import Store
from results.transfer.scripts import Script, Trajectory
from results.transfer.synthetic import CREATED, Driver

Answer = tuple[int, str, dict[str, str]]  # status, text, headers
HOSTILE = '"><img src=x onerror=alert(1)><script>alert(2)</script>'
PLAN = CampaignPlan(
    name=f"told {HOSTILE}",
    control=Arm("plain"),
    candidate=Arm(f"cand {HOSTILE}", (("projection", "columns-128"),)),
    fixtures=(Fixture(f"first {HOSTILE}", "{}", (0,)), Fixture("second", "{}", (7,))),
    server=ServerPlan("null", model=f"model {HOSTILE}"),
    startups=3,
    pairs=2,
    warmups=1,
)


def script(step: object, attempt: int) -> Script:
    ms = 16.0 if step.key.fixture == "second" or step.role is Role.CONTROL else 15.0  # type: ignore[attr-defined]
    return Script(Trajectory(30, 10, 19), ms)


@dataclass
class Site:
    store: Path
    port: int

    def ask(
        self, path: str, method: str = "GET", body: str | None = None, **headers: str
    ) -> tuple[int, str, dict[str, str]]:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            connection.request(method, path, body, sent)
            answer = connection.getresponse()
            return answer.status, answer.read().decode(), {k.lower(): v for k, v in answer.getheaders()}

    def page(self, path: str) -> str:
        status, text, _ = self.ask(path)
        assert status == 200, text
        return text


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    path = tmp_path / "store.sqlite"
    with Store.open(path) as store:
        for seed in range(2):
            Driver(store, replace(PLAN, seed=seed), script, samples=True).run()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        config = uvicorn.Config(application(path, port), log_level="error", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        yield Site(path, port)
        server.should_exit = True
        thread.join(60)


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attributes)))


def ids(site: Site) -> list[str]:
    return re.findall(r'name="id" value="(\w+)"', site.page("/"))


def every_page(site: Site) -> Iterator[tuple[str, str]]:
    one, other = ids(site)
    case = urlencode({"startup": 0, "fixture": PLAN.fixtures[0].id, "seed": 0, "repeat": 1})
    for path in (
        "/",
        "/history",
        f"/campaign/{one}",
        f"/campaign/{one}/report",
        f"/campaign/{one}/case?{case}",
        f"/campaign/{one}/stop",
        f"/compare?id={one}&id={other}",
        "/history?" + urlencode({"fixture": "second", "arm": "cand"}),
    ):
        yield path, site.page(path)


def test_every_page_and_no_name_becomes_markup(site: Site) -> None:
    before = site.store.read_bytes()
    for path, text in every_page(site):
        tags = Tags(text)
        scripts = [attributes for tag, attributes in tags.found if tag == "script"]
        assert all(attributes.get("src") == "/static/live.js" for attributes in scripts), path
        assert not [a for tag, a in tags.found if tag == "img" or any(name.startswith("on") for name in a)], path
        assert not [a for _, a in tags.found for name in ("src", "href") if "//" in (a.get(name) or "")], path
        assert HOSTILE not in text
    assert site.store.read_bytes() == before


def test_a_campaigns_page_has_the_answer_and_marks_that_tell(site: Site) -> None:
    [one, _] = ids(site)
    assert "there is nothing to stop" in site.page(f"/campaign/{one}/stop")
    text = html.unescape(site.page(f"/campaign/{one}"))
    assert "three startups, all 12 pairs exact" in text and "the evidence is indicative" in text
    assert text.count('<g class="mark') - text.count('aria-hidden="true"><g class="mark') == 12
    assert "startup 2, second seed 7 #1, E" in text and "/case?startup=1" in text


def test_filters_and_comparison(site: Site) -> None:
    one, other = ids(site)
    assert len(re.findall('name="id"', site.page("/?arm=projection"))) == 2
    assert "Nothing matches" in site.page("/?arm=nonesuch") and "Nothing matches" in site.page("/?since=2099")
    assert "Nothing matches" in site.page("/?verdict=slower")
    assert "Paired effects" in site.page(f"/compare?id={one}&id={other}")
    assert site.ask(f"/compare?id={one}")[0] == 404
    assert site.ask("/campaign/zzz")[0] == 404


def test_tags_notes_and_the_archive_on_the_pages(site: Site) -> None:
    one, other = ids(site)
    said = [(one, Mark_.TAG, "nightly"), (one, Mark_.NOTE, HOSTILE), (other, Mark_.ARCHIVE, "a bad riser")]
    with Store.open(site.store) as store:
        store.annotations([Annotation(name, CREATED, mark, text, "ann") for name, mark, text in said])
    assert ids(site) == [one, other], "a result cannot leave the list"
    with Store.open(site.store) as store:
        store.status(other, CampaignStatus.FAILED, "it was no result")
    assert ids(site) == [one]
    assert re.findall(r'name="id" value="(\w+)"', site.page("/?archived=yes")) == [one, other]
    assert re.findall(r'name="id" value="(\w+)"', site.page("/?tag=nightly")) == [one]
    assert "Nothing matches" in site.page("/?tag=nightl") and "Nothing matches" in site.page("/?baseline=nightly")
    page = site.page(f"/campaign/{one}")
    assert "tags: nightly" in page and html.escape(HOSTILE, quote=False)[:20] in page.replace("&#34;", '"')
    assert HOSTILE not in page


def test_a_long_list_has_pages(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = ids(site)
    monkeypatch.setattr("orchestrator.web.pages.PER_PAGE", 1)
    first = site.page("/?arm=projection")
    assert one in first and other not in first and 'rel="next" href="/?arm=projection&amp;page=2"' in first
    second = site.page("/?arm=projection&page=2")
    assert other in second and one not in second and 'rel="next"' not in second
    assert "Nothing matches" in site.page("/?page=3") and one in site.page("/?page=-1")


def test_what_is_remembered_is_what_would_be_computed(site: Site) -> None:
    """Rows that a new campaign changes (its startups tell of earlier ones' host) come anew; the others are the same."""
    memory = Judged()
    for seed in (5, 6):
        with Reader.open(site.store) as reader:
            for _ in range(2):
                assert history(reader, memory=memory).equals(history(reader))
        with Store.open(site.store) as store:
            Driver(store, replace(PLAN, seed=seed, mode=Mode.AA, candidate=PLAN.control), script).run()
    with Reader.open(site.store) as reader:
        name = reader.resolve("last")
        with Store.open(site.store) as store:
            store.failure(Failure(name, CREATED, Reason.OPERATOR, "a visitor", 0, 1))
        found = history(reader, memory=memory)
        assert found.equals(history(reader)) and int(found.n_admissible.iloc[-1]) == 4
    first, second = reversed(ids(site)[-2:])
    with Store.open(site.store) as store:
        store.failure(Failure(second, CREATED, Reason.OPERATOR, "a visitor", 0, 1))
    with Reader.open(site.store) as reader:
        told = summarise(reader, first, memory.effects)  # which the second, later one tells nothing
        assert told.judgement == summarise(reader, first).judgement
        assert history(reader, memory=memory).equals(history(reader)), "what a page did not read has still changed"


def test_a_store_of_an_older_version_is_copied_once_until_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "old.sqlite"
    shutil.copy(Path(__file__).parents[2] / "results" / "store" / "stores" / "0004.sqlite", path)
    made = Pages(path)
    with made.reader() as first, made.reader() as second:
        files = {r.connection.exec_driver_sql("PRAGMA database_list").first()[2] for r in (first, second)}  # type: ignore[index]
        assert len(files) == 1 and str(path) not in files
        path.touch()
        with made.reader() as third:
            assert third.resolve("last") == first.resolve("last")
            assert third.connection.exec_driver_sql("PRAGMA database_list").first()[2] not in files  # type: ignore[index]
    assert "released" in made.home({}, {})
    made.close()


def test_other_names_and_origins_get_nothing(site: Site) -> None:
    for name in ("evil.example", f"evil.example:{site.port}", "127.0.0.1", f"127.0.0.1:{site.port}.evil.example", ""):
        status, text, _ = site.ask("/", Host=name)
        assert status == 421 and "told" not in text
    assert site.ask("/", Origin="https://evil.example")[0] == 403
    assert site.ask("/", Origin="null")[0] == 403
    assert site.ask("/", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="cors")[0] == 403
    assert site.ask("/", Host=f"localhost:{site.port}", Origin=f"http://localhost:{site.port}")[0] == 200
    headers = site.ask("/")[2]
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert headers["cross-origin-resource-policy"] == "same-origin"


def token_of(site: Site, name: str) -> str:
    found = re.search(r'name="token" value="([^"]+)"', site.page(f"/campaign/{name}/stop"))
    assert found
    return found[1]


def test_a_running_campaign_is_told_as_it_goes_on_and_can_be_stopped(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    with Store.open(site.store) as store:
        plan = replace(PLAN, seed=9)
        driver = Driver(store, plan, script, samples=True)
        campaign = driver.campaign()
        name = campaign.campaign_id
        store.begin(campaign)
        store.status(name, CampaignStatus.RUNNING)
        folder = site.store.parent / name
        (folder / "startup-0-1").mkdir(parents=True)
        (folder / "startup-0-1" / "server.log").write_text("loading weights\n<b>ready</b>\n")
        driver.start(name, 0, 1)
        first, second = blocks(plan, 0)
        driver.block(name, first, 1)
        line = {"utc": time.time(), "event": "pair", "key": vars(first.keys[0]), "left_s": 42.4}
        assert main(["status", name, "--store", str(site.store)]) == 0
        assert "startup 1 of 3, known after the first pair; newest: starting" in capsys.readouterr().out
        (folder / "campaign.jsonl").write_text(json.dumps(line) + "\n" + '{"utc": 1, "eve')  # being written
        assert main(["status", name, "--store", str(site.store)]) == 0
        told = capsys.readouterr().out
        assert re.search(r"startup 1 of 3, about 42 s left; newest: pair startup 1, first ", told)
        assert told.endswith("  startup-0-1/server.log:\n    loading weights\n    <b>ready</b>\n")
        with closing(http.client.HTTPConnection("127.0.0.1", site.port, timeout=60)) as connection:
            connection.request("GET", f"/campaign/{name}/events")
            stream = connection.getresponse()
            assert stream.getheader("Content-Type", "").startswith("text/event-stream")
            panel = next_panel(stream)
            assert "2 of 12" in panel and "Not final" in panel and "&lt;b&gt;ready&lt;/b&gt;" in panel
            assert "MHz" in panel and "1 of 3" in panel
            driver.block(name, second, 1)
            assert "4 of 12" in next_panel(stream)
            refused, stop = site.ask(f"/campaign/{name}/stop", "POST", "token=guessed"), folder / "stop-after-block"
            assert refused[0] == 403 and not stop.exists()
            foreign = site.ask(f"/campaign/{name}/stop", "POST", f"token={token_of(site, name)}", Origin="http://a.b")
            assert foreign[0] == 403 and not stop.exists()
            form = urlencode({"token": token_of(site, name), "when": "block", "reason": "lunch"})
            assert site.ask(f"/campaign/{name}/stop", "POST", form)[0] == 303 and stop.read_text() == "lunch"
            store.status(name, CampaignStatus.HELD, "lunch")
            assert "held" in next_panel(stream)
            assert b"event: done" in stream.read()
    assert main(["status", name, "--store", str(site.store)]) == 0
    assert "newest:" not in capsys.readouterr().out
    assert "it is held because: lunch" in html.unescape(site.page(f"/campaign/{name}"))


def next_panel(stream: http.client.HTTPResponse) -> str:
    while line := stream.readline().decode():
        if line == "event: panel\n":
            text: str = json.loads(stream.readline().decode().removeprefix("data: "))
            return text
    raise AssertionError("the stream ended")


def test_a_store_that_is_moved_away_and_back(site: Site) -> None:
    away = site.store.with_suffix(".moved")
    site.store.rename(away)
    status, text, _ = site.ask("/")
    assert status == 404 and "there is no store at" in html.unescape(text) and "Traceback" not in text
    site.store.write_bytes(b"not a store at all" * 100)
    assert site.ask("/")[0] == 404
    away.replace(site.store)
    assert site.ask("/")[0] == 200


def test_a_chart_keeps_its_marks_inside_and_its_titles_escaped() -> None:
    drawn = chart([Mark(0, -90.0, "<b>"), Mark(1, 400.0, "b", low=-3.0, high=900.0)], ["a", "<i>"], 'l"', band=5.0)
    assert "<b>" not in drawn and "<i>" not in drawn and 'aria-label="l&#34;"' in drawn
    heights = [float(y) for y in re.findall(r'(?:cy|y1|y2)="([\d.]+)"', drawn)]
    assert min(heights) > 0 and max(heights) < 260
    assert chart([], [], "none") == ""
