"""What a server is started with."""

from __future__ import annotations

from orchestrator.servers.serving import disclosed, server_environment


def test_threads_are_set_on_a_cpu_unless_the_launcher_did() -> None:
    device = {"CUDA_VISIBLE_DEVICES": ""}
    assert server_environment({}, device, 3) == {"OMP_NUM_THREADS": "3", "MKL_NUM_THREADS": "3", **device}
    assert server_environment({"OMP_NUM_THREADS": "9"}, device, 3)["OMP_NUM_THREADS"] == "9"
    assert server_environment({"PATH": "/bin"}, {"CUDA_VISIBLE_DEVICES": "GPU-1"}, None) == {
        "PATH": "/bin",
        "CUDA_VISIBLE_DEVICES": "GPU-1",
    }


def test_the_lease_decides_what_is_visible() -> None:
    assert server_environment({"CUDA_VISIBLE_DEVICES": "0,1"}, {"CUDA_VISIBLE_DEVICES": "GPU-1"}, None) == {
        "CUDA_VISIBLE_DEVICES": "GPU-1"
    }


def test_secrets_are_not_recorded() -> None:
    shown = disclosed({"HF_TOKEN": "a", "AWS_SECRET_ACCESS_KEY": "b", "OPENAI_API_KEY": "c", "PATH": "/bin"})
    assert [value for value in shown.values() if value in "abc"] == []
    assert shown["PATH"] == "/bin" and shown.keys() == {"AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "OPENAI_API_KEY", "PATH"}
