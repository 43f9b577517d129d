"""Tests of the store have every one of theirs made by the migrations."""

import pytest


@pytest.fixture(scope="module", autouse=True)
def fresh_stores():
    pass
