"""Import of users' modules, from the folder of the experiment first, then as usual in Python.

Several experiments of one process may each have a module of equal name in their folders. The imports of an experiment,
and of its modules, are resolved from its own folders first; a namesake from the folders of an earlier experiment is
removed from `sys.modules`, but stays alive through its classes.
"""
import os
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import module_from_spec
from types import ModuleType

# Folders of experiments that are not on Python's own path; they are at the end of sys.path, the last experiment's
# folders first.
_folders: list[str] = []
# Modules and packages that experiments named.
_named: set[str] = set()


def import_beside(name: str, search: Iterable[str]) -> ModuleType:
    """Import a module by its full name, from the folders `search` if one has it.

    A module in sys.modules under its name is kept, unless an earlier experiment brought it from another place. Any
    exception of the module is passed on.
    """
    folders, top = [os.path.abspath(folder) for folder in search], name.partition(".")[0]
    _put_first(folders)
    for each in [*_named, *filter(_is_beside_another, sys.modules)]:
        _forget_namesake(each, folders)
    _named.add(top)
    own = _find(top, folders)
    if own is not None and top not in sys.modules:
        _execute(own)
    return import_module(name)


def _put_first(folders: Sequence[str]) -> None:
    """Put these folders before the folders of other experiments in sys.path."""
    others = [folder for folder in _folders if folder not in folders]
    known = [folder for folder in sys.path if folder not in _folders]
    _folders[:] = [folder for folder in folders if folder not in known] + others
    sys.path[:] = known + _folders


def _find(top: str, folders: Sequence[str]) -> ModuleSpec | None:
    spec = PathFinder.find_spec(top, folders)
    return spec if spec is not None and spec.origin is not None else None


def _is_beside_another(name: str) -> bool:
    """Return whether a name is a top-level module in a folder that was searched for users' modules."""
    path = getattr(sys.modules[name], "__file__", None)
    if path is None or "." in name:
        return False
    folder, file = os.path.split(os.path.abspath(path))
    return (os.path.dirname(folder) if file.startswith("__init__.") else folder) in _folders


def _forget_namesake(top: str, folders: Sequence[str]) -> None:
    """Remove a module from sys.modules if these folders have another module of its name."""
    own, known = _find(top, folders), sys.modules.get(top)
    if own is None or known is None or getattr(known, "__file__", None) == own.origin:
        return
    for name in [each for each in sys.modules if each == top or each.startswith(f"{top}.")]:
        del sys.modules[name]


def _execute(spec: ModuleSpec) -> None:
    sys.modules[spec.name] = module = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[spec.name]
        raise
