"""The export to MLflow, read again by MLflow's own client. `pip install 'dflash2-campaigns[mlflow]'` brings it."""

import importlib.util
import sys

import pytest

from campaigns.judging.statistics import percent
from orchestrator.cli import main
from results.reading.summary import summarise
from results.store.reader import Reader
from results.store.writer import Store
from results.transfer.synthetic import Driver
from tests.results.reports.test_report import PLAN, script


@pytest.fixture
def store(ram):
    with Store.open(ram / "store.sqlite") as store:
        name = Driver(store, PLAN, script).run()
    return ram / "store.sqlite", name


def test_without_the_extra_it_is_named(store, ram, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    where = ["--store", str(store[0]), "--output", str(ram / "mlflow.db")]
    assert main(["export", "last", "--format", "mlflow", *where]) == 1
    assert "pip install 'dflash2-campaigns[mlflow]'" in capsys.readouterr().err
    assert not (ram / "mlflow.db").exists()


@pytest.mark.acceptance
@pytest.mark.skipif(importlib.util.find_spec("mlflow") is None, reason="the extra mlflow is not installed")
@pytest.mark.filterwarnings("ignore")  # MLflow's own
def test_mlflow_reads_what_the_report_says(store, tmp_path, capsys):
    from mlflow import MlflowClient

    path, name = store
    file = tmp_path / "mlflow.db"
    words = ["export", "last", "--format", "mlflow", "--store", str(path), "--output", str(file)]
    assert main(words) == 0
    assert main(words) == 1 and "replace its run with --force" in capsys.readouterr().err
    assert main([*words, "--force"]) == 0
    client = MlflowClient(f"sqlite:///{file}")
    [experiment] = [e for e in client.search_experiments() if e.name == PLAN.name]
    [run] = client.search_runs([experiment.experiment_id])
    with Reader.open(path) as reader:
        summary = summarise(reader, name)
    metrics = run.data.metrics
    for group in summary.groups:
        key = group.id.replace("/", "_")
        assert metrics[f"effect_pct/{key}"] == percent(group.judgement.effect)
        assert metrics[f"candidate_ms/{key}"] == group.candidate.level_ms
        steps = client.get_metric_history(run.info.run_id, f"startup_effect_pct/{key}")
        assert {m.step: m.value for m in steps} == {s: percent(m) for s, m in group.judgement.startup_medians.items()}
    assert run.info.status == "FINISHED" and run.data.tags["campaign_id"] == name
    assert run.data.params["candidate"] == PLAN.candidate.name
    assert {a.path for a in client.list_artifacts(run.info.run_id)} == {"report.md", "report.html", "report.json"}
    assert not list(tmp_path.glob("mlruns"))
