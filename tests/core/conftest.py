"""Compile the Python faces of the structures once."""
from pathlib import Path

import pytest

from support.faces import build_face


@pytest.fixture(scope="session")
def core_face(tmp_path_factory):
    """Return the module built from core_face.pyx."""
    return build_face(Path(__file__).with_name("core_face.pyx"), tmp_path_factory.mktemp("core_face"))
