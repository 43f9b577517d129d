"""CUDA libraries compile, come out the same twice, load without a device, and export what their schedules call."""

from __future__ import annotations

import pytest

from kernels import build
from kernels.native import building, library, toolkit

ARCH = "sm_90a"
SPECS = [spec for spec in build.specs() if spec.language == "cuda"]

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.skipif(toolkit.toolkit_for("cuda", ARCH) is None, reason=f"no nvcc that knows {ARCH}"),
]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_builds_twice_alike_and_loads(spec, tmp_path):
    assert building.ensure(spec, ARCH, tmp_path) == "built"
    assert building.verify(spec, ARCH, tmp_path) == "reproduced"
    loaded = library.load(spec, ARCH, tmp_path)
    assert loaded.revision == spec.revision
    assert loaded.entry("run", ()) is not None


def test_every_cuda_schedule_is_built_for_hopper():
    assert len(SPECS) >= 12 and all(ARCH in spec.archs for spec in SPECS)
