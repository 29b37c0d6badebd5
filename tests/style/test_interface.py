"""The public face: typed, described, light to import."""
import ast
import inspect
import re
import subprocess
import sys
from functools import cache
from importlib import import_module

import simulator
from style.sources import ROOT, files, imports, name, signature

PUBLIC = ("run", "load_results")
HEAVY = ("h5py", "tqdm", "asyncio", "pandas", "matplotlib")     # imported where they are used, never at start-up
MAX_SUMMARY = 80


@cache
def summaries():
    """Return path, line and first docstring line ("" for none) of each public class and function."""
    found = []
    for path in files(".py", under="simulator"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                found.append((path, node.lineno, (ast.get_docstring(node) or "").partition("\n")[0]))
    for path in files(".pyx", under="simulator"):
        lines = path.read_text().splitlines()
        for number, line in enumerate(lines):
            if re.match(r"(?:def|class|cdef class) +[a-zA-Z]", line):
                body = number + signature(lines, number).count("\n") + 1
                opened = re.findall(r'^\s*"""(.*?)(?:"""|$)', lines[body]) or [""]
                found.append((path, number + 1, opened[0]))
    return found


def test_the_public_functions_are_typed_and_described():
    for function in (getattr(simulator, label) for label in PUBLIC):
        signature = inspect.signature(function)
        untyped = [p.name for p in signature.parameters.values() if p.annotation is inspect.Parameter.empty]
        assert not untyped
        assert signature.return_annotation is not inspect.Signature.empty
        assert inspect.getdoc(function)


def test_the_stub_of_the_package_is_up_to_date():
    # The package imports its face late, which type checkers cannot follow; the stub tells them where it lives.
    found = {link.item: link.module for link in imports(ROOT / "simulator/__init__.pyi")}

    assert {*found, "__version__", "API_VERSION"} == set(simulator.__all__)
    assert all(getattr(import_module(found[label]), label) is getattr(simulator, label) for label in found)
    assert (ROOT / "simulator/py.typed").exists()


def test_compiled_functions_and_classes_are_described():
    wrong = [name(path, line) for path, line, summary in summaries() if path.suffix == ".pyx" and not summary]
    assert not wrong, "\n".join(wrong)


def test_descriptions_open_with_a_short_line():
    wrong = [f"{name(path, line)}: {len(summary)} columns: {summary}" for path, line, summary in summaries()
             if len(summary) > MAX_SUMMARY]
    assert not wrong, "\n".join(wrong)


def test_importing_the_package_loads_nothing_heavy():
    code = f"import simulator, sys; print(*sorted(set({HEAVY}) & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert result.stdout.split() == []


def is_command_line(path):
    """Say whether a file speaks to the user: the command line and the commands it hands over to."""
    return path.name in {"cli.py", "__main__.py"} or "def add_arguments(" in path.read_text()


def test_only_the_command_line_prints_and_exits():
    pattern = re.compile(r"\bprint\(|\bsys\.exit\(|\braise SystemExit|\bos\._exit\(")
    wrong = [f"{name(path, number)}: {line.strip()}"
             for path in files(".py", ".pyx", under="simulator") if not is_command_line(path)
             for number, line in enumerate(path.read_text().splitlines(), 1) if pattern.search(line)]
    assert not wrong, "\n".join(wrong)
