"""Names and messages of anybody, on every face: what commands a terminal or turns a line round is shown, not obeyed."""

import json
import re

import pytest

from campaigns.plan import Arm, CampaignPlan, Fixture, Role, ServerPlan
from campaigns.printable import json_text, one_line, printable
from campaigns.reasons import Reason
from campaigns.records import CampaignStatus, Failure
from campaigns.remarks import Annotation, Mark
from orchestrator.cli import main
from orchestrator.web.app import Pages
from results.store.writer import Store
from results.transfer.scripts import Script, Trajectory
from results.transfer.synthetic import CREATED, Driver

EVIL = "\x1b[2J\x07\r\u202egnp\x85\u2028\n| x | y | $a_{ \\d \x9b31m\t\u2066"
COMMANDS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
PLAN = CampaignPlan(
    f"name{EVIL}",
    Arm(f"control{EVIL}"),
    Arm(f"candidate{EVIL}", ((f"operator{EVIL}", f"schedule{EVIL}"),)),
    (Fixture(f"fixture{EVIL}", "{}", (0,)), Fixture("context-1024", "{}", (0,)), Fixture("context-2048", "{}", (0,))),
    ServerPlan("null"),
    startups=3,
    pairs=2,
    warmups=1,
)


def script(step, attempt):
    candidate = step.role is Role.CANDIDATE
    return Script(Trajectory(30, 10, 19), 15.0 if candidate else 16.0, token_seed=int(candidate and step.key.repeat))


@pytest.fixture(scope="module")
def made(module_ram):
    path = module_ram / "store.sqlite"
    ids = []
    with Store.open(path) as store:
        for number in (1, 2):
            driver = Driver(store, PLAN, script, {f"key{EVIL}": f"value{EVIL}"}, run_number=number, samples=True)
            driver.run()
            ids.append(driver.campaign().campaign_id)
            store.failure(Failure(ids[-1], CREATED, Reason.STALL, f"it said {EVIL}", 0, 1))
            store.status(ids[-1], CampaignStatus.FAILED, f"because {EVIL}")
            store.annotations([Annotation(ids[-1], CREATED, m, f"text{EVIL}", EVIL) for m in (Mark.TAG, Mark.NOTE)])
    return path, ids


FACES = (
    *(f"report last --format {form}" for form in ("md", "html", "csv", "json", "jsonl", "github", "junit")),
    *(f"history --format {form}" for form in ("table", "md", "csv", "json", "jsonl")),
    *("report last --all-quantiles", "status", "status last", "status --format md", "trend context-1024"),
)


@pytest.mark.parametrize("face", FACES)
def test_no_face_lets_a_command_through(made, capsys, face):
    assert main([*face.split(), "--store", str(made[0])]) in (0, 2)
    told = capsys.readouterr()
    assert "name" in told.out + told.err or "candidate" in told.out
    assert not COMMANDS.search(told.out + told.err)
    if not face.endswith(("csv", "html")):
        assert not re.search(r"^\| x", told.out, re.MULTILINE)  # no line of a table ends inside a name
    if face.endswith("json"):
        assert EVIL in str(json.loads(told.out)) or repr(EVIL)[1:-1] in str(json.loads(told.out))


def test_comparisons_questions_and_complaints(made, capsys):
    path, ids = made
    for words in (["compare", *ids], ["query", "SELECT fixture FROM pair"], ["history", "--name", f"no{EVIL}"]):
        main([*words, "--store", str(path)])
    told = capsys.readouterr()
    assert "fixture\\x1b[2J" in told.out and "--name no\\x1b[2J" in told.err
    assert not COMMANDS.search(told.out + told.err)


def test_figures_and_pages(made, capsys, tmp_path):
    path, ids = made
    for ending in ("svg", "png"):
        figure = tmp_path / f"figure.{ending}"
        assert main(["trend", f"fixture{EVIL}", "--figure", str(figure), "--store", str(path)]) == 0
    assert not COMMANDS.search((tmp_path / "figure.svg").read_text()) and "Glyph" not in capsys.readouterr().err
    pages = Pages(path)
    key = {"fixture": f"fixture{EVIL}", "seed": "0", "repeat": "0", "startup": "0"}
    shown = [
        *(pages.home({}, {}), pages.history({}, {}), pages.compare(ids)),
        *(pages.campaign({}, {"id": ids[0]}), pages.case(key, {"id": ids[0]})),
    ]
    pages.close()
    assert all("\\u202egnp" in page and not COMMANDS.search(page) for page in shown)


def test_what_is_left_alone():
    text = "naïve 日本語 👩‍💻 a\tb\nשלום"
    assert printable(text) == text
    assert one_line("  a \n\n b\r\nc\rd") == "  a b c\\rd"
    assert json.loads(json_text({EVIL: EVIL})) == {EVIL: EVIL} and not COMMANDS.search(json_text(EVIL))
