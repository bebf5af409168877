"""What every test of data needs."""

import pytest


@pytest.fixture(autouse=True)
def cache_folder(tmp_path_factory, monkeypatch):
    """A cache of the test's own: nothing of the user's is read or written."""
    place = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("STEERFORMER_CACHE", str(place))
    return place
