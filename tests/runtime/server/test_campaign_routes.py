"""Arms, counters and identity of a live server."""

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
GENERATE = {"prompt": "Ida has 5 pears.", "max_tokens": 12, "seed": 3, "return_token_ids": True}


@pytest.fixture
def arm(server: Any) -> Any:
    def select(name: str, **schedules: str) -> Any:
        return server.ask("PUT", "/campaign/arm", {"name": name, "schedules": schedules})

    yield select
    select("default")


def hits(server: Any, operator: str) -> dict[str, int]:
    rows = server.ask("GET", "/campaign/counters").json["counters"]
    return {row["schedule"]: row["hits"] for row in rows if row["operator"] == operator and row["rank"] == 0}


def test_the_selected_arm_is_the_one_that_runs(server: Any, arm: Any) -> None:
    tokens = {}
    for name, other in (("columns-32", "columns-128"), ("columns-128", "columns-32")):
        read_back = arm(name, projection=name).json
        drafting = {"speculation": "dflash", "num_speculative_tokens": 7}
        assert read_back == {"name": name, "schedules": {"projection": name}} | drafting
        assert server.ask("GET", "/campaign/arm").json == read_back
        before = hits(server, "projection")
        answer = server.ask("POST", "/v1/completions", GENERATE).json
        after = hits(server, "projection")
        tokens[name] = answer["choices"][0]["token_ids"]
        assert after[name] > before.get(name, 0)
        assert after.get(other, 0) == before.get(other, 0)
    assert tokens["columns-32"] == tokens["columns-128"]


def test_a_refused_call_is_counted_with_its_reason(server: Any, arm: Any) -> None:
    """The schedule takes up to 16 rows: the prefill of 40 goes to the default, and the rounds do not."""

    def refused() -> int:
        rows = server.ask("GET", "/campaign/counters").json["refusals"]
        wanted = {"rank": 0, "operator": "norm", "schedule": "cpu-rows", "reason": "40 rows; 1 to 16"}
        return sum(row["calls"] for row in rows if row.items() >= wanted.items())

    arm("narrow", norm="cpu-rows")
    before, hits_before = refused(), hits(server, "norm")
    server.ask("POST", "/v1/completions", {"prompt": list(range(10, 50)), "max_tokens": 6, "ignore_eos": True})
    calls, after = refused() - before, hits(server, "norm")
    assert calls > 0 and after["cpu-rows"] > hits_before.get("cpu-rows", 0)
    assert after["separate"] - hits_before.get("separate", 0) == calls
    arm("default")
    server.ask("POST", "/v1/completions", {"prompt": list(range(10, 50)), "max_tokens": 6, "ignore_eos": True})
    assert refused() == before + calls  # nobody asked for it


def test_unknown_names_are_refused_and_change_nothing(server: Any, arm: Any) -> None:
    before = server.ask("GET", "/campaign/arm").json
    for schedules, name in (({"projection": "columns-3"}, "columns-3"), ({"projektion": "dense"}, "projektion")):
        refused = arm("wrong", **schedules)
        assert refused.status == 400 and name in refused.json["error"]["message"]
    assert server.ask("PUT", "/campaign/arm", {"schedules": {}}).status == 400
    assert server.ask("PUT", "/campaign/arm", {"name": "x", "schedules": {"projection": 3}}).status == 400
    assert server.ask("GET", "/campaign/arm").json == before


def test_an_arm_is_refused_while_a_request_runs(server: Any, arm: Any) -> None:
    events = server.events("/v1/completions", **{**GENERATE, "max_tokens": 900, "ignore_eos": True})
    next(events)
    assert arm("columns-32", projection="columns-32").status == 409
    assert hits(server, "projection"), "counters answer while a request runs"
    events.close()


def test_whoever_has_a_whole_answer_may_select_an_arm(server: Any, arm: Any) -> None:
    """The engine's last word about a request comes behind its last token, and behind a stop string a round later."""
    for turn in range(12):
        stop = {"stop": ["e"], "max_tokens": 60} if turn % 3 == 0 else {}
        if turn % 2:
            assert server.stream("/v1/completions", **{**GENERATE, **stop}).done
        else:
            assert server.ask("POST", "/v1/completions", {**GENERATE, **stop}).status == 200
        assert arm("default").status == 200


def test_identity_names_what_is_really_loaded(server: Any) -> None:
    identity = server.ask("GET", "/campaign/identity").json
    for process in identity["processes"]:
        fields = Path(f"/proc/{process['pid']}/stat").read_text().rpartition(")")[2].split()
        assert int(fields[19]) == process["start_ticks"]
    assert [p["role"] for p in identity["processes"]] == ["api", "engine"]
    assert identity["processes"][0]["pid"] == server.process.pid
    libraries = {row["path"]: row["sha256"] for row in identity["libraries"]}
    torch_library = next(path for path in libraries if path.endswith("libtorch_cpu.so"))
    safetensors = next(path for path in libraries if "safetensors" in path)
    assert libraries[safetensors] == hashlib.sha256(Path(safetensors).read_bytes()).hexdigest()
    assert all(len(sha256) == 64 for sha256 in libraries.values()), torch_library
    assert identity["versions"].keys() >= {"python", "torch"}
    assert identity["environment"]["OMP_NUM_THREADS"] == "1"
    assert (identity["max_model_len"], identity["block_size"], identity["tensor_parallel_size"]) == (1024, 8, 1)


def test_identity_hashes_follow_the_definition(server: Any) -> None:
    identity = server.ask("GET", "/campaign/identity").json
    model = ROOT / "runtime/checkpoints/nano"
    assert identity["weights_sha256"] == tree_hash(model, [model])
    assert identity["draft_weights_sha256"] == tree_hash(model / "drafter", [model / "drafter"])
    lines = "".join(
        f"{name}\0{hashlib.sha256((model / name).read_bytes()).hexdigest()}\n"
        for name in ("tokenizer.json", "tokenizer_config.json")
    )
    assert identity["tokenizer_sha256"] == hashlib.sha256(lines.encode()).hexdigest()


def test_the_api_process_never_loads_torch(server: Any) -> None:
    maps = Path(f"/proc/{server.process.pid}/maps").read_text()
    assert "libtorch" not in maps
    assert "libtorch" in Path(f"/proc/{server.worker_pids[0]}/maps").read_text()


def tree_hash(root: Path, folders: list[Path]) -> str:
    """The definition of docs/wire.md, written a second time."""
    lines = []
    for folder in folders:
        for parent, names, files in os.walk(folder):
            names[:] = [name for name in names if not name.startswith(".") and name != "__pycache__"]
            for file in files:
                path = Path(parent) / file
                if not file.startswith(".") and not file.endswith(".pyc"):
                    content = hashlib.sha256(path.read_bytes()).hexdigest()
                    lines.append(f"{path.relative_to(root).as_posix()}\0{content}\n")
    return hashlib.sha256("".join(sorted(lines)).encode()).hexdigest()


def test_a_profile_comes_with_the_rounds_where_it_is_asked_for(server: Any, arm: Any) -> None:
    arm("narrow", projection="columns-32")
    body = {**GENERATE, "max_tokens": 8, "ignore_eos": True, "return_round_details": True}
    plain = server.ask("POST", "/v1/completions", body).json
    profiled = server.ask("POST", "/v1/completions", {**body, "profile": True}).json
    assert profiled["choices"][0]["token_ids"] == plain["choices"][0]["token_ids"]
    assert "profile" not in plain["metrics"]
    profile = profiled["metrics"]["profile"]
    assert profile["rounds"] == len(profiled["metrics"]["rounds"]) - 1 and profile["clock"] == "host"
    told = {(time["piece"], time["operator"], time["schedule"]) for time in profile["times"]}
    assert {("draft", "projection", "columns-32"), ("verify", "projection", "columns-32"), ("", "", "")} <= told
    assert sum(time["total_ns"] for time in profile["times"]) == pytest.approx(profile["round_ns"], rel=1e-6)
    assert "profile" not in server.ask("POST", "/v1/completions", body).json["metrics"]
