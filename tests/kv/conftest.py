"""Compile the Python faces of the KV caches once."""
from pathlib import Path

import pytest

from support.faces import build_face


@pytest.fixture(scope="session")
def kv_face(tmp_path_factory):
    """Return the module built from kv_face.pyx."""
    return build_face(Path(__file__).with_name("kv_face.pyx"), tmp_path_factory.mktemp("kv_face"))


@pytest.fixture(scope="session")
def radix_face(tmp_path_factory):
    """Return the module built from radix_face.pyx."""
    return build_face(Path(__file__).with_name("radix_face.pyx"), tmp_path_factory.mktemp("radix_face"))


@pytest.fixture(scope="session")
def host_tree_face(tmp_path_factory):
    """Return the module built from host_tree_face.pyx."""
    return build_face(Path(__file__).with_name("host_tree_face.pyx"), tmp_path_factory.mktemp("host_tree_face"))
