"""Databases for the tests."""

import braiddb
import pytest


@pytest.fixture
def path(tmp_path):
    return tmp_path / "db"


@pytest.fixture
def db(path):
    with braiddb.open(path, durability="buffered") as db:
        yield db
