"""Reader of YAML, which needs a package that is not installed with the simulator."""
from pathlib import Path
from typing import Any

from simulator.errors import InputErrors, MissingExtra
from simulator.workload.reading.files import check_text, read_bytes

MAX_NODES = 10**7               # a specification of 100,000 clients has 2 million
INSTALL = "pip install 'simulator[blis]'"


def read_yaml(path: str | Path) -> Any:
    """Return the content of a file: dicts, lists, texts, numbers.

    Raises
    ------
    MissingExtra
        PyYAML is not installed.
    InputErrors
        The file cannot be read, is no YAML, or has a key twice.
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
        if _size_of(node, {}) > MAX_NODES:
            raise InputErrors([f"{path}: its aliases stand for more than {MAX_NODES:,} values; write them out"])
        twice = _said_twice(node, set())
        if twice is not None:
            raise InputErrors([f'{path}:{twice.start_mark.line + 1}: the key "{twice.value}" stands there twice'])
        return None if node is None else loader.construct_document(node)
    except RecursionError:
        raise InputErrors([f"{path}: no YAML: lists and mappings lie too deep inside each other"]) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        raise InputErrors([f"{path}{line}: no YAML: {getattr(error, 'problem', None) or error}"]) from None
    finally:
        loader.dispose()


def _size_of(node: Any, sizes: dict[int, int]) -> int:
    """Return the number of values in a node with its aliases written out; above the limit if it contains itself.

    sizes : of the nodes done so far, by identity.
    """
    if node is None or isinstance(node.value, str):
        return 1
    if id(node) not in sizes:
        sizes[id(node)] = MAX_NODES + 1         # until its size is known
        parts = [part for entry in node.value for part in (entry if isinstance(entry, tuple) else (entry,))]
        sizes[id(node)] = 1 + sum(_size_of(part, sizes) for part in parts)
    return sizes[id(node)]


def _said_twice(node: Any, known: set[int]) -> Any:
    """Return the node of a duplicate key in a mapping; None: there is none.

    known : identities of nodes without duplicates.
    """
    if node is None or isinstance(node.value, str) or id(node) in known:
        return None
    known.add(id(node))
    if not node.value or not isinstance(node.value[0], tuple):
        return next(filter(None, (_said_twice(each, known) for each in node.value)), None)
    seen = set()
    for key, value in node.value:
        name = key.value if isinstance(key.value, str) else None
        if name in seen and name is not None:
            return key
        seen.add(name)
        found = _said_twice(value, known)
        if found is not None:
            return found
    return None
