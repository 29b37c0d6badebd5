"""Type stubs of compiled modules name what is there: no more, no less."""
import ast
import inspect
from dataclasses import fields, is_dataclass
from importlib import import_module

import msgspec
import pytest

from simulator import registry
from style.sources import ROOT, files, name

STUBS = [path for path in files(".pyi", under="simulator") if path.name != "__init__.pyi"]
STUBBED_KINDS = ("scheduler", "latency", "router", "scorer", "admission")
FACES = {"simulator.scheduling.python_scheduler", "simulator.latency.python_model", "simulator.routing.python_router",
         "simulator.routing.scoring.python", "simulator.admission.python_admission"}


def module_of(stub):
    return import_module(".".join(stub.relative_to(ROOT).with_suffix("").parts))


def public(names):
    return {each for each in names if not each.startswith("_")}


def members(body):
    """Return the public names that the body of a class or module in a stub declares."""
    found = set()
    for node in body:
        if isinstance(node, ast.AnnAssign):
            found.add(node.target.id)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
    return public(found)


def attributes(kind):
    """Return the public names that a class has of itself."""
    own = set(vars(kind))
    if is_dataclass(kind):
        own |= {field.name for field in fields(kind)}
    if issubclass(kind, msgspec.Struct):
        own |= set(kind.__struct_fields__)
    return public(own)


def parameters(function):
    """Return (name, kind, has a default) of each parameter of a function, or of its definition in a stub."""
    if callable(function):
        return [(each.name, str(each.kind), each.default is not each.empty)
                for each in inspect.signature(function).parameters.values()]
    text = ast.unparse(ast.FunctionDef(function.name, function.args, [ast.Pass()], [], lineno=0))
    bare = ast.parse(text)
    for argument in ast.walk(bare):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    namespace = {}
    exec(compile(bare, "stub", "exec"), namespace)
    return parameters(namespace[function.name])


def classes(stub):
    return [node for node in ast.parse(stub.read_text()).body if isinstance(node, ast.ClassDef)]


def test_every_public_compiled_base_has_a_stub():
    bases = {registry.KINDS[kind].base.partition(":")[0] for kind in STUBBED_KINDS}

    assert bases | FACES <= {module_of(stub).__name__ for stub in STUBS}


@pytest.mark.parametrize("stub", STUBS, ids=name)
def test_stub_names_the_classes_of_its_module(stub):
    module = module_of(stub)
    there = {label for label, value in vars(module).items()
             if isinstance(value, type) and value.__module__ == module.__name__}

    assert members(ast.parse(stub.read_text()).body) == public(there)


@pytest.mark.parametrize("stub", STUBS, ids=name)
def test_stub_names_the_public_attributes_of_each_class(stub):
    for node in classes(stub):
        kind = getattr(module_of(stub), node.name)
        assert members(node.body) == attributes(kind), node.name
        assert [ast.unparse(base).rpartition(".")[2] for base in node.bases] == [
            base.__name__ for base in kind.__bases__ if base is not object], node.name


@pytest.mark.parametrize("stub", STUBS, ids=name)
def test_stub_gives_each_method_its_parameters(stub):
    for node in classes(stub):
        kind = getattr(module_of(stub), node.name)
        for method in node.body:
            if isinstance(method, ast.FunctionDef) and method.name != "__init__":
                decorators = {ast.unparse(each) for each in method.decorator_list}
                there = inspect.getattr_static(kind, method.name)
                assert ("property" in decorators) == inspect.isgetsetdescriptor(there), method.name
                if not decorators:
                    assert parameters(method) == parameters(there), method.name
