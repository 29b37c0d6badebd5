"""The project's own files, and what they import."""
import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (".ci", "bench", "configs", "docs", "hardware", "models", "simulator", "tests", "tools")
CODE = (".py", ".pyx", ".pxd", ".pyi")
COMPILED = (".pyx", ".pxd")
TEXT = (*CODE, ".c", ".h", ".md", ".sh", ".toml", "")

_CYTHON_IMPORT = re.compile(r"\s*(?:from\s+(?P<origin>[\w.]+)\s+)?c?import\s+(?P<names>[(\w.,\s*]+)")


def folders():
    """Return every folder of the project that holds a file, caches and build products left out."""
    return sorted({path.parent for path in files("") if path.parent != ROOT})


def files(*suffixes, under=""):
    """Return the project's files with one of `suffixes` ("": all), in order."""
    return [path for path in _own_files(under) if path.name.endswith(suffixes)]


@cache
def _own_files(under):
    roots = [ROOT / under] if under else [ROOT / name for name in FOLDERS]
    found = [path for root in roots for path in root.rglob("*")]
    if not under:
        found += ROOT.glob("*")
    return sorted(path for path in found if path.is_file() and _is_own(path))


def _is_own(path):
    parts = path.relative_to(ROOT).parts
    generated = path.name == ".coverage" or ("simulator" in parts and path.suffix in {".so", ".c", ".html"})
    return not generated and not any(part.startswith(("__pycache__", ".pytest", ".ruff", ".bench")) for part in parts)


def name(path, line=None):
    """Return the path as messages show it: relative to the project, with a line number where given."""
    return str(path.relative_to(ROOT)) + (f":{line}" if line else "")


def signature(lines, start):
    """Return the function head that begins at `start`, comments taken out, to the end of its last line."""
    head, depth = [], 0
    for line in lines[start:]:
        code = line.split("#")[0].rstrip()
        head.append(code)
        depth += sum(map(code.count, "([{")) - sum(map(code.count, ")]}"))
        if depth == 0:
            break
    return "\n".join(head)


class Import(NamedTuple):
    path: Path
    line: int
    module: str         # absolute dotted name: simulator.core.clock
    item: str           # imported from it, or ""
    in_function: bool


def imports(path):
    """Return what a .py, .pyx or .pxd file imports and cimports."""
    found = _python_imports(path) if path.suffix in {".py", ".pyi"} else _cython_imports(path)
    return list(found)


def _python_imports(path):
    tree = ast.parse(path.read_text())
    inside = {
        id(node) for function in ast.walk(tree) if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(path, node.lineno, alias.name, "", id(node) in inside)
        elif isinstance(node, ast.ImportFrom):
            origin = _absolute(path, "." * node.level + (node.module or ""))
            for alias in node.names:
                yield Import(path, node.lineno, origin, alias.name, id(node) in inside)


def _cython_imports(path):
    lines = path.read_text().splitlines()
    for number, line in enumerate(lines, 1):
        match = _CYTHON_IMPORT.match(line) and _CYTHON_IMPORT.match(signature(lines, number - 1))
        if not match:
            continue
        indented = line[0].isspace()
        names = [part.split(" as ")[0].strip() for part in match["names"].strip("( ").split(",")]
        for item in filter(None, names):
            if match["origin"]:
                yield Import(path, number, _absolute(path, match["origin"]), item, indented)
            else:
                yield Import(path, number, item, "", indented)


def _absolute(path, module):
    level = len(module) - len(module.lstrip("."))
    if not level:
        return module
    package = path.relative_to(ROOT).parts[:-level]
    return ".".join([*package, *filter(None, [module.lstrip(".")])])
