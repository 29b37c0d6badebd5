"""A user's class that answers nothing is refused when it is loaded, whatever it is written in."""
import re
import sys
import types
from pathlib import Path

import pytest

from simulator import registry
from simulator.errors import InputErrors
from simulator.extending import overrides

PACKAGE = Path(registry.__file__).parent
COMPILED = [kind for kind, question in overrides.QUESTIONS.items() if question.place is not None]
ALL_AS_BEFORE = [("admission", "always"), ("saturation", "never")]      # what their bases do is the policy
PYTHON = [kind for kind in overrides.QUESTIONS if overrides.python_base(kind) is not None]


@pytest.fixture
def told(monkeypatch):
    """Return what the refusal of a class says; None: it is taken."""
    def load(kind, chosen):
        module = types.ModuleType("my_lab")
        module.Mine = chosen
        monkeypatch.setitem(sys.modules, "my_lab", module)
        try:
            registry.load(kind, "my_lab:Mine")
        except InputErrors as errors:
            return str(errors)
        return None

    return load


def of_user(name, base, **members):
    """Return a class as if a user's module had defined it."""
    return type(name, (base,), members | {"__module__": "my_lab"})


def test_every_kind_has_its_question():
    assert set(overrides.QUESTIONS) == set(registry.KINDS)


@pytest.mark.parametrize("kind", COMPILED)
def test_place_is_that_of_the_method_in_the_header_of_the_base(kind):
    # in a table of virtual functions stand the cdef methods that are not final, as they are declared
    module, _, name = registry.KINDS[kind].base.partition(":")
    header = (PACKAGE.parent / (module.replace(".", "/") + ".pxd")).read_text()
    body = re.split(r"^\S", header.partition(f"cdef class {name}:\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    body = re.sub(r"@cython.final\n *cdef [^\n]*\n", "", body)
    methods = re.findall(r"^    cdef (?!readonly|public)[^#=\n]*?(\w+)\(", body, flags=re.MULTILINE)
    assert methods[overrides.QUESTIONS[kind].place] == overrides.QUESTIONS[kind].method


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in registry.KINDS
                                            for name in registry.KINDS[kind].entries
                                            if (kind, name) not in ALL_AS_BEFORE])
def test_every_built_in_answers_its_question(kind, name):
    base = registry.KINDS[kind].base and registry.imported(registry.KINDS[kind].base)
    assert overrides.fault_of(kind, registry.load(kind, name), base) is None


@pytest.mark.parametrize("kind", PYTHON)
def test_python_class_that_overrides_nothing_is_refused(told, kind):
    base, method = overrides.python_base(kind), overrides.QUESTIONS[kind].python_method
    title = registry.KINDS[kind].title
    assert told(kind, of_user("Mine", base)) == f'"my_lab:Mine" is no {title}: it overrides no {method}'
    misspelt = of_user("Mine", base, **{f"{method}s": lambda self: None})
    assert told(kind, misspelt).endswith(f"it overrides no {method}; is {method}s meant to be it?")
    assert told(kind, of_user("Mine", base, **{method: lambda self, *_: None})) is None


@pytest.mark.parametrize("kind", COMPILED)
def test_python_class_cannot_answer_for_a_compiled_base(told, kind):
    base, method = registry.imported(registry.KINDS[kind].base), overrides.QUESTIONS[kind].method
    python = overrides.python_base(kind)
    way = f"; subclass {python.__module__}.{python.__name__} and override " if python else "; write it in Cython"
    said = told(kind, of_user("Mine", base, **{method: lambda self: None}))
    assert f": a class in Python cannot override {method} of {base.__name__}, a C function{way}" in said


@pytest.mark.parametrize("kind", COMPILED)
def test_python_class_may_refine_a_built_in_that_answers(told, kind):
    built_in = next((cls for cls in (registry.load(kind, name) for name in registry.KINDS[kind].entries)
                     if cls.__flags__ & 1 << 10), None)         # Py_TPFLAGS_BASETYPE: not final
    assert built_in is None or told(kind, of_user("Mine", built_in)) is None


@pytest.mark.parametrize("kind", ["workload", "trace_format", "arrival", "length_distribution"])
def test_class_of_a_kind_without_a_base_needs_the_method(told, kind):
    method = overrides.QUESTIONS[kind].method
    misspelt = of_user("Mine", object, **{f"{method}x": lambda self: None})
    assert told(kind, misspelt).endswith(f"it overrides no {method}; is {method}x meant to be it?")
    assert told(kind, of_user("Mine", object, **{method: lambda self: None})) is None


def test_end_of_the_program_in_a_users_module_is_told_with_its_line(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", sys.path[:])
    (tmp_path / "my_exit.py").write_text("import sys\nsys.exit('no licence')\n")
    with pytest.raises(InputErrors) as caught:
        registry.load("router", "my_exit:Mine", [str(tmp_path)])
    assert str(caught.value) == (
        f'cannot import "my_exit:Mine": SystemExit: no licence, line 2 of {tmp_path}/my_exit.py')


# Kinds of compiled classes that a run asks -> the test that an answer which their base does not allow is refused.
DOORS = {
    "router": "tests/engine/test_doors.py", "admission": "tests/engine/test_doors.py",
    "filter": "tests/engine/test_doors.py",
    "saturation": "tests/engine/test_doors.py", "rescheduler": "tests/engine/test_doors.py",
    "decider": "", "scorer": "", "scheduler": "", "latency": "", "collective": "", "kv_eviction": "",
}   # without one: every number that C can return is an answer, or the base itself looks at it


def test_every_compiled_question_has_a_door():
    """A new kind in the registry has to say where its answers are looked at."""
    asked = {kind for kind in registry.KINDS if overrides.QUESTIONS[kind].place is not None}

    assert asked == DOORS.keys()
    for kind, file in DOORS.items():
        if file:
            source = (Path(__file__).parents[1] / file).with_name("compiled") / "wild_answers.pyx"
            assert f"({registry.KINDS[kind].base.partition(':')[2]}):" in source.read_text()
