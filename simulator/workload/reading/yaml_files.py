"""Read YAML, which needs a package that is not installed with the simulator."""
from pathlib import Path
from typing import Any

from simulator.errors import InputErrors, MissingExtra
from simulator.workload.reading.files import check_text, read_bytes

INSTALL = "pip install 'simulator[blis]'"


def read_yaml(path: str | Path) -> Any:
    """Return what a file holds: dicts, lists, texts, numbers.

    Raises
    ------
    MissingExtra
        PyYAML is not installed.
    InputErrors
        The file cannot be read, is no YAML, or says a key twice.
    """
    try:
        import yaml  # an extra
    except ImportError:
        raise MissingExtra([f"{path}: reading YAML needs PyYAML: install it with {INSTALL}"]) from None
    data = read_bytes(path)
    check_text(path, data)
    loader = yaml.SafeLoader(data)
    try:
        node = loader.get_single_node()
        twice = _said_twice(node)
        if twice is not None:
            raise InputErrors([f'{path}:{twice.start_mark.line + 1}: the key "{twice.value}" stands there twice'])
        return None if node is None else loader.construct_document(node)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        raise InputErrors([f"{path}{line}: no YAML: {getattr(error, 'problem', None) or error}"]) from None
    finally:
        loader.dispose()


def _said_twice(node: Any) -> Any:
    """Return the node of a key that its mapping has twice; None: there is none."""
    if node is None or isinstance(node.value, str):
        return None
    if not node.value or not isinstance(node.value[0], tuple):
        return next(filter(None, map(_said_twice, node.value)), None)
    seen = set()
    for key, value in node.value:
        name = key.value if isinstance(key.value, str) else None
        if name in seen and name is not None:
            return key
        seen.add(name)
        found = _said_twice(value)
        if found is not None:
            return found
    return None
