"""Stores of scripted campaigns lie in memory where there is a place for it: their commits wait for no disk."""

import shutil
import tempfile
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")


@pytest.fixture(scope="module", autouse=True)
def fresh_stores(fresh_stores_remembered):
    pass


@pytest.fixture
def ram():
    folder = tempfile.mkdtemp(prefix="campaign-test-", dir=MEMORY if MEMORY.is_dir() else None)
    yield Path(folder)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def module_ram():
    folder = tempfile.mkdtemp(prefix="campaign-test-", dir=MEMORY if MEMORY.is_dir() else None)
    yield Path(folder)
    shutil.rmtree(folder, ignore_errors=True)


def pytest_addoption(parser):
    parser.addoption("--golden", action="store_true", help="write golden files anew")
