"""Compile the examples in compiled/ once; views with filled caches."""
import sys
from pathlib import Path

import pytest

from support.compiled import built
from support.filled_view import FilledView

SOURCES = sorted(Path(__file__).with_name("compiled").glob("*.pyx"))


@pytest.fixture(scope="session")
def compiled(tmp_path_factory):
    """Return the folder with the built modules, which can be imported."""
    folder = tmp_path_factory.mktemp("compiled_routing")
    built(SOURCES, folder)
    yield folder
    sys.path.remove(str(folder))


@pytest.fixture
def filled_view():
    """Return a function that makes a view of so many replicas with caches {(replica, row): blocks}."""
    def make(num_replicas, cached):
        view = FilledView(num_replicas)
        view.cached = cached
        return view
    return make
