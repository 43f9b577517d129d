"""Native libraries: reproducible builds, and every library that must not be loaded."""

from __future__ import annotations

import json
import multiprocessing
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kernels import build
from kernels.errors import KernelError
from kernels.native import building, library, specification, toolkit
from kernels.native.building import BuildError
from kernels.native.library import (
    DuplicateLibrary,
    ForeignLibrary,
    LibraryError,
    MissingLibrary,
    NativeError,
    StaleLibrary,
    TamperedLibrary,
    call,
    load,
)
from kernels.native.specification import BuildSpec

ARCH = "x86-64-v3"
HEADERS = ("include/abi.h", "include/answer.h")
needs_compiler = pytest.mark.skipif(toolkit.cxx() is None, reason="no g++ here")
pytestmark = needs_compiler

SOURCE = """
#include "abi.h"
#include "answer.h"
EXPORT int ENTRY(revision)(void) { return REVISION; }
EXPORT int ENTRY(run)(int x) { return x == 0 ? 0 : ANSWER; }
"""


@pytest.fixture
def csrc(tmp_path, monkeypatch):
    """A source tree of one small schedule, in place of the project's."""
    folder = tmp_path / "csrc"
    (folder / "include").mkdir(parents=True)
    shutil.copy(specification.CSRC / "include" / "abi.h", folder / "include" / "abi.h")
    (folder / "include" / "answer.h").write_text("#define ANSWER 7\n")
    (folder / "small.cpp").write_text(SOURCE)
    monkeypatch.setattr(specification, "CSRC", folder)
    return folder


def spec(schedule: str, revision: int = 2, *flags: str) -> BuildSpec:
    return BuildSpec("toy", schedule, revision, "c++", ("small.cpp",), HEADERS, ("-DREVISION=2", *flags))


def test_building_twice_gives_the_same_bytes(csrc, tmp_path):
    first, second = tmp_path / "one", tmp_path / "another" / "deeper"
    for root in (first, second):
        assert building.ensure(spec("twice"), ARCH, root) == "built"
    found = [building.read_manifest(spec("twice"), ARCH, root) for root in (first, second)]
    assert found[0] == found[1]
    assert building.verify(spec("twice"), ARCH, first) == "reproduced"


def test_the_manifest_hashes_all_that_went_in(csrc, tmp_path):
    building.ensure(spec("manifest"), ARCH, tmp_path)
    manifest = json.loads((tmp_path / ARCH / "toy_manifest.json").read_text())
    assert manifest["sources"] == {"small.cpp": specification.sha256_file(csrc / "small.cpp")}
    assert set(manifest["headers"]) == set(HEADERS)
    assert "-DREVISION=2" in manifest["flags"] and f"-march={ARCH}" in manifest["flags"]
    assert manifest["toolkit"]["name"] == "g++" and len(manifest["toolkit"]["sha256"]) == 64
    assert manifest["library_sha256"] == specification.sha256_file(tmp_path / ARCH / "toy_manifest.so")
    assert (manifest["revision"], manifest["arch"], manifest["executed_by_this_project"]) == (2, ARCH, True)


@pytest.mark.parametrize("change", ["source", "header", "flag", "revision"])
def test_anything_that_goes_in_changes_the_identity(csrc, change):
    before = spec("identity").sha256()
    changed = spec("identity", 3) if change == "revision" else spec("identity", 2, *["-DX"] * (change == "flag"))
    for name in {"source": ["small.cpp"], "header": ["include/answer.h"]}.get(change, []):
        (csrc / name).write_text((csrc / name).read_text() + "// changed\n")
    assert changed.sha256() != before


def test_verification_names_a_stale_library(csrc, tmp_path):
    building.ensure(spec("stale"), ARCH, tmp_path)
    (csrc / "include" / "answer.h").write_text("#define ANSWER 8\n")
    said = building.verify(spec("stale"), ARCH, tmp_path)
    assert said.startswith("stale: ") and "toy_stale.so" in said and said.endswith("kernels.build toy/stale")


def test_without_a_compiler_what_lies_there_is_verified_and_the_rest_skipped(csrc, tmp_path, monkeypatch, capsys):
    built, never = spec("kept"), spec("never")
    monkeypatch.setattr(build, "specs", lambda: (replace(built, archs=(ARCH,)), replace(never, archs=(ARCH,))))
    with pytest.raises(SystemExit, match="nothing was verified"):
        build.main(["--verify", "--root", str(tmp_path)])
    capsys.readouterr()
    building.ensure(built, ARCH, tmp_path)
    assert build.main(["--verify", "--root", str(tmp_path)]) == 0
    assert [line.split(maxsplit=2)[2] for line in capsys.readouterr().out.splitlines()] == ["reproduced", build.UNBUILT]
    monkeypatch.setattr(toolkit, "toolkit_for", lambda language, arch: None)
    assert build.main(["--verify", "--root", str(tmp_path)]) == 0
    assert build.SKIPPED in capsys.readouterr().out
    assert build.main(["--verify", "--root", str(tmp_path), "toy/never"]) == 1
    path = building.library_path(built, ARCH, tmp_path)
    path.write_bytes(path.read_bytes()[:-1])
    assert build.main(["--verify", "--root", str(tmp_path)]) == 1 and "altered" in capsys.readouterr().err


def test_a_current_library_is_left_alone_and_a_changed_one_rebuilt(csrc, tmp_path):
    building.ensure(spec("again"), ARCH, tmp_path)
    assert building.ensure(spec("again"), ARCH, tmp_path) == "current"
    (csrc / "include" / "answer.h").write_text("#define ANSWER 8\n")
    assert building.ensure(spec("again"), ARCH, tmp_path) == "built"


def test_loads_and_calls(csrc, tmp_path):
    building.ensure(spec("calls"), ARCH, tmp_path)
    loaded = load(spec("calls"), ARCH, tmp_path)
    assert loaded.revision == 2 and loaded.sha256 == specification.sha256_file(loaded.path)
    entry = loaded.entry("run", [__import__("ctypes").c_int])
    call(entry, 0)
    with pytest.raises(NativeError, match="toy_calls_run returned 7"):
        call(entry, 1)
    with pytest.raises(ForeignLibrary, match="exports no toy_calls_gone"):
        loaded.entry("gone", [])


def test_a_missing_library_is_named(csrc, tmp_path):
    with pytest.raises(MissingLibrary, match=r"toy_absent\.so has no file: run `python -m kernels.build`"):
        load(spec("absent"), ARCH, tmp_path)


def test_a_library_without_a_manifest_is_refused(csrc, tmp_path):
    building.ensure(spec("bare"), ARCH, tmp_path)
    (tmp_path / ARCH / "toy_bare.json").unlink()
    with pytest.raises(MissingLibrary, match=r"toy_bare\.so has no manifest"):
        load(spec("bare"), ARCH, tmp_path)


@pytest.mark.parametrize(
    "text", [b"{", b"[1]", b'"x"', b"3", b"\xff"], ids=["cut", "list", "string", "number", "bytes"]
)
def test_a_manifest_that_is_no_object_is_none(csrc, tmp_path, text):
    building.ensure(spec("scrawl"), ARCH, tmp_path)
    building.manifest_path(spec("scrawl"), ARCH, tmp_path).write_bytes(text)
    with pytest.raises(MissingLibrary, match=r"toy_scrawl\.so has no manifest"):
        load(spec("scrawl"), ARCH, tmp_path)
    assert (
        building.verify(spec("scrawl"), ARCH, tmp_path)
        == "missing: build it first, with python -m kernels.build toy/scrawl"
    )


@pytest.mark.parametrize("damage", ["truncated", "patched"])
def test_altered_bytes_are_refused(csrc, tmp_path, damage):
    name = f"damage-{damage}"
    building.ensure(spec(name), ARCH, tmp_path)
    path = building.library_path(spec(name), ARCH, tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-100] if damage == "truncated" else whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(TamperedLibrary, match=rf"toy_damage_{damage}\.so has sha256"):
        load(spec(name), ARCH, tmp_path)
    assert building.verify(spec(name), ARCH, tmp_path) == "altered after it was built"
    assert building.ensure(spec(name), ARCH, tmp_path) == "built"
    load(spec(name), ARCH, tmp_path)


def test_a_library_of_older_sources_is_refused(csrc, tmp_path):
    building.ensure(spec("old"), ARCH, tmp_path)
    (csrc / "small.cpp").write_text(SOURCE + "// a later version\n")
    with pytest.raises(StaleLibrary, match="built from other sources"):
        load(spec("old"), ARCH, tmp_path)


def test_a_library_of_an_older_revision_is_refused(csrc, tmp_path):
    """The source still exports 2, the schedule asks for 3."""
    building.ensure(spec("revision", 3), ARCH, tmp_path)
    with pytest.raises(StaleLibrary, match="is revision 2 of toy_revision, revision 3 is required"):
        load(spec("revision", 3), ARCH, tmp_path)


def test_another_schedules_library_is_refused(csrc, tmp_path):
    for name in ("own", "other"):
        building.ensure(spec(name), ARCH, tmp_path)
    for suffix in ("so", "json"):
        shutil.copy(tmp_path / ARCH / f"toy_other.{suffix}", tmp_path / ARCH / f"toy_own.{suffix}")
    with pytest.raises(ForeignLibrary, match="is of toy_other for x86-64-v3, not of toy_own"):
        load(spec("own"), ARCH, tmp_path)


def test_a_library_that_exports_other_names_is_refused(csrc, tmp_path):
    (csrc / "small.cpp").write_text(SOURCE.replace("ENTRY(revision)", "someone_elses_revision"))
    building.ensure(spec("symbols"), ARCH, tmp_path)
    with pytest.raises(ForeignLibrary, match="is no library of toy_symbols"):
        load(spec("symbols"), ARCH, tmp_path)


def test_a_second_file_of_the_same_name_is_refused(csrc, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    for root in (first, second):
        building.ensure(spec("twin"), ARCH, root)
    load(spec("twin"), ARCH, first)
    with pytest.raises(DuplicateLibrary, match=r"already maps .*first.*toy_twin\.so, so .*second"):
        load(spec("twin"), ARCH, second)


def test_a_library_replaced_after_it_was_mapped_is_refused(csrc, tmp_path):
    building.ensure(spec("replaced"), ARCH, tmp_path)
    load(spec("replaced"), ARCH, tmp_path)
    (csrc / "include" / "answer.h").write_text("#define ANSWER 9\n")
    building.ensure(spec("replaced"), ARCH, tmp_path)
    with pytest.raises(DuplicateLibrary, match="deleted"):
        load(spec("replaced"), ARCH, tmp_path)


def test_every_refusal_is_one_kind_of_error():
    kinds = (MissingLibrary, TamperedLibrary, ForeignLibrary, StaleLibrary, DuplicateLibrary)
    assert all(issubclass(kind, LibraryError) for kind in kinds)


def test_a_source_that_does_not_compile_says_so_and_leaves_the_old_library(csrc, tmp_path):
    building.ensure(spec("broken"), ARCH, tmp_path)
    kept = building.library_path(spec("broken"), ARCH, tmp_path).read_bytes()
    (csrc / "small.cpp").write_text("#error nobody can build this\n")
    with pytest.raises(BuildError, match="nobody can build this"):
        building.ensure(spec("broken"), ARCH, tmp_path)
    assert building.library_path(spec("broken"), ARCH, tmp_path).read_bytes() == kept
    assert [path.name for path in (tmp_path / ARCH).iterdir() if path.is_dir()] == []


def test_without_a_compiler_the_sentence_names_the_remedy(csrc, tmp_path, monkeypatch):
    monkeypatch.setattr(toolkit, "cxx", lambda: None)
    with pytest.raises(BuildError, match=r"toy_none needs g\+\+, which this machine does not"):
        building.ensure(spec("none"), ARCH, tmp_path)
    absent = replace(spec("none"), language="cuda", archs=("sm_12345",))
    with pytest.raises(BuildError, match="an nvcc that knows sm_12345"):
        building.ensure(absent, "sm_12345", tmp_path)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("exit 3", "--version` fails: .* non-zero exit status 3; mend that compiler"),
        ("true", "--version` prints nothing; mend that compiler"),
        ('test "$1" = --version && echo "g++ 1"; true', "does not compile with g\\+\\+ 1:\nexit status 0, no library"),
        ('test "$1" = --version && echo "g++ 1" && exit 0; exit 4', "with g\\+\\+ 1:\nexit status 4, no library"),
    ],
    ids=["refuses", "mute", "idle", "fails-in-silence"],
)
def test_a_compiler_that_does_not_work_is_named(csrc, tmp_path, monkeypatch, body, words):
    (tmp_path / "g++").write_text(f"#!/bin/sh\n{body}\n")
    (tmp_path / "g++").chmod(0o755)
    monkeypatch.setattr(toolkit, "cxx", lambda: toolkit.describe("g++", str(tmp_path / "g++")))
    with pytest.raises(KernelError, match=words):
        building.ensure(spec("ill"), ARCH, tmp_path)


def test_a_compiler_that_never_ends_is_named(csrc, tmp_path, monkeypatch):
    monkeypatch.setattr(building, "COMPILE_LIMIT_S", 0.001)
    with pytest.raises(BuildError, match=r"does not compile within 0\.001 s"):
        building.ensure(spec("endless"), ARCH, tmp_path)


@pytest.mark.parametrize("place", ["x86-64-v3", "x86-64-v3/toy_shut.lock", "x86-64-v3/toy_shut.so"])
def test_a_folder_that_cannot_be_written_to_is_named(csrc, tmp_path, place):
    """Permissions stop nobody who is root: here a file or a folder stands in the way."""
    blocked = tmp_path / place
    blocked.parent.mkdir(parents=True, exist_ok=True)
    blocked.write_text("") if place == ARCH else blocked.mkdir()
    with pytest.raises(BuildError, match=rf"toy_shut: .*{place}.*; .*{ARCH} must be writable"):
        building.ensure(spec("shut"), ARCH, tmp_path)


def test_only_what_nobody_named_is_skipped_without_a_compiler(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(toolkit, "cxx", lambda: None)
    monkeypatch.setattr(toolkit, "nvcc", lambda arch: None)
    assert build.main(["selection", "--root", str(tmp_path)]) == 0
    assert capsys.readouterr().out.count(build.SKIPPED) == 4
    for words in ([], ["--verify"]):
        assert build.main(["selection/cpu-scan", "--root", str(tmp_path), *words]) == 1
    told = capsys.readouterr()
    assert "needs g++" in told.err and not told.out


def test_a_library_that_is_there_needs_no_compiler(csrc, tmp_path, monkeypatch):
    building.ensure(spec("carried"), ARCH, tmp_path)
    monkeypatch.setattr(toolkit, "cxx", lambda: None)
    assert building.ensure(spec("carried"), ARCH, tmp_path) == "current"
    (csrc / "include" / "answer.h").write_text("#define ANSWER 9\n")
    with pytest.raises(BuildError, match=r"needs g\+\+"):
        building.ensure(spec("carried"), ARCH, tmp_path)


def _ensure_and_load(arguments):
    root, folder = arguments
    specification.CSRC = folder
    state = building.ensure(spec("crowd"), ARCH, root)
    return state, load(spec("crowd"), ARCH, root).sha256


def test_concurrent_builds_build_once(csrc, tmp_path):
    with multiprocessing.get_context("fork").Pool(4) as pool:
        found = pool.map(_ensure_and_load, [(tmp_path, csrc)] * 4)
    assert sorted(state for state, _ in found) == ["built", "current", "current", "current"]
    assert len({sha256 for _, sha256 in found}) == 1


def test_a_builder_that_dies_leaves_no_lock(csrc, tmp_path):
    code = (
        "import os, sys\nfrom pathlib import Path\nfrom kernels.native.building import locked\n"
        "from kernels.native.specification import BuildSpec\n"
        "spec = BuildSpec('toy', 'killed', 2, 'c++', (), ())\n"
        "with locked(spec, 'x86-64-v3', Path(sys.argv[1])): os._exit(9)"
    )
    root = Path(__file__).parents[2]
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=root, check=False).returncode == 9
    assert building.ensure(spec("killed"), ARCH, tmp_path) == "built"


def test_devices_meet_their_library():
    cuda = BuildSpec("toy", "device", 1, "cuda", ())
    assert cuda.archs == ("sm_90a",)
    assert cuda.arch_for("sm_90") == "sm_90a" and cuda.arch_for("sm_80") is None
    cxx = spec("device")
    assert cxx.arch_for("x86-64-v4") == ARCH and cxx.arch_for("aarch64") is None
    with pytest.raises(MissingLibrary, match="not built for aarch64, only for x86-64-v3"):
        library.native(cxx, "aarch64")


def test_the_command_builds_verifies_and_rejects_unknown_names(tmp_path, capsys):
    assert build.main(["selection/cpu-scan", "--root", str(tmp_path)]) == 0
    assert build.main(["selection/cpu-scan", "--root", str(tmp_path), "--verify"]) == 0
    assert "reproduced" in capsys.readouterr().out
    library_file = tmp_path / ARCH / "selection_cpu_scan.so"
    library_file.write_bytes(library_file.read_bytes() + b"x")
    assert build.main(["selection/cpu-scan", "--root", str(tmp_path), "--verify"]) == 1
    with pytest.raises(SystemExit, match="no native schedule 'selection/quick'"):
        build.main(["selection/quick"])


def test_other_architectures_are_built_on_request_alone(monkeypatch):
    portable = replace(spec("portable"), language="cuda", archs=("sm_90a",), also=specification.PORTABLE)
    monkeypatch.setattr(build, "specs", lambda: (portable, spec("plain")))
    assert build.work_list([], None) == [(portable, "sm_90a"), (spec("plain"), ARCH)]
    assert build.work_list([], "sm_80") == [(portable, "sm_80")]
    assert portable.arch_for("sm_80") is None, "what was never run is never loaded"
    with pytest.raises(BuildError, match="no schedule named here is built for sm_61"):
        build.work_list([], "sm_61")


def test_no_schedule_limits_registers_by_a_flag_that_launch_bounds_overrule():
    """`-maxrregcount` did nothing beside `__launch_bounds__`: a schedule with it was its parent under another name."""
    for each in build.specs():
        sources = "".join((specification.CSRC / name).read_text() for name in each.sources)
        assert "__launch_bounds__" not in sources or not any("maxrregcount" in flag for flag in each.flags), each.name
