"""Fixtures of the data tests."""

import pytest


@pytest.fixture(autouse=True)
def cache_folder(tmp_path_factory, monkeypatch):
    """An empty cache for each test, so that the user's cache is neither read nor written."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("STEERFORMER_CACHE", str(folder))
    return folder
