"""What can be chosen by name is there, described, and loaded when it is asked for."""
import ast
import itertools
import subprocess
import sys

import msgspec
import pytest
from msgspec import inspect

from simulator import registry
from simulator.config.experiment import Experiment
from simulator.config.fields import alternatives, bare, element_of, is_struct, node_of, table_of
from simulator.errors import InputErrors

ENTRIES = [(kind, name) for kind, entry in registry.KINDS.items() for name in entry.entries]


def structs_in(struct):
    yield struct
    for field in table_of(struct).fields:
        for option in alternatives(field.hint):
            if is_struct(option):
                yield from structs_in(bare(option))


def parameters(kind, name):
    return registry.parameters_of(registry.load(kind, name))


@pytest.mark.parametrize(("kind", "name"), ENTRIES)
def test_every_name_leads_to_a_class_with_described_frozen_parameters(kind, name):
    for struct in structs_in(parameters(kind, name)):
        assert struct.__struct_config__.frozen
        assert struct.__doc__
        for field in table_of(struct).fields:
            assert field.description, f"{struct.__name__}.{field.name}"


def test_every_key_of_the_experiment_is_described():
    for struct in structs_in(Experiment):
        for field in table_of(struct).fields:
            assert field.description, f"{struct.__name__}.{field.name}"


def choosers():
    """Return every Struct whose table chooses a class, with the names it chooses from."""
    roots = [Experiment, *(parameters(kind, name) for kind, name in ENTRIES)]
    found = {struct for root in roots for struct in structs_in(root) if table_of(struct).kind is not None}
    return [(struct, table_of(struct).kind) for struct in found]


def test_keys_of_a_chosen_class_do_not_hide_keys_of_the_table_that_chooses_it():
    for struct, kind in choosers():
        own = {field.name for field in table_of(struct).fields}
        assert registry.KINDS[kind].key in own
        for name in registry.KINDS[kind].entries:
            chosen = {field.name for field in table_of(parameters(kind, name)).fields}
            assert not own & chosen, f"{struct.__name__}, {kind} {name}"


def test_nor_do_keys_of_a_class_that_this_one_chooses():
    def check(struct, outer=frozenset()):
        own, kind = {field.name for field in table_of(struct).fields}, table_of(struct).kind
        assert not own & outer, struct.__name__
        for name in registry.KINDS[kind].entries if kind else ():
            check(parameters(kind, name), own | outer)

    for struct, _ in choosers():
        check(struct)


def test_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(InputErrors, match=r'^no latency backend "rofline"; did you mean roofline\?$'):
        registry.load("latency", "rofline")


def test_registry_imports_no_policy():
    code = "import sys, simulator.registry; print([name for name in sys.modules if name.startswith('simulator.')])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert ast.literal_eval(shown) == ["simulator.not_built", "simulator.errors", "simulator.extending",
                                       "simulator.extending.user_modules", "simulator.registry"]


@pytest.fixture
def user_module(tmp_path, monkeypatch):
    """Write a user's module; return its folder."""
    monkeypatch.setattr(sys, "path", sys.path[:])

    def write(text, name="my_policies"):
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)
        return str(tmp_path)

    return write


TEXT = """from simulator.latency.python_model import PythonLatencyModel
class Mine(PythonLatencyModel):
    number = {}
    def batch_us(self, batch):
        return 1.0
"""


@pytest.mark.parametrize(("name", "files"), [
    ("namesakes:Mine", {"namesakes.py": TEXT}),
    ("namesakes.inner:Mine", {"namesakes/__init__.py": "", "namesakes/inner.py": TEXT}),
    ("namesakes:Mine", {"namesakes.py": "from neighbours import Mine", "neighbours.py": TEXT}),
    ("namesakes:Mine", {"namesakes.py": "import shown\nfrom neighbours import Mine", "neighbours.py": TEXT,
                        "shown/__init__.py": ""})])
def test_of_two_modules_of_one_name_the_one_beside_the_experiment_is_taken(name, files, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    folders = [tmp_path / str(number) for number in (1, 2)]
    for (file, text), number in itertools.product(files.items(), (1, 2)):
        path = folders[number - 1] / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.format(number))

    found = [registry.load("latency", name, [str(folders[number - 1])]).number for number in (1, 2, 2, 1)]

    for each in ("namesakes", "namesakes.inner", "neighbours", "shown"):
        sys.modules.pop(each, None)
    assert found == [1, 2, 2, 1]


def test_a_module_that_an_earlier_experiment_did_not_name_is_not_taken_from_its_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    for number in (1, 2):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "second.py").write_text(TEXT.format(number))
    (tmp_path / "1" / "first.py").write_text(TEXT.format(1))

    registry.load("latency", "first:Mine", [str(tmp_path / "1")])
    assert registry.load("latency", "second:Mine", [str(tmp_path / "2")]).number == 2
    assert sys.modules.pop("first") is not sys.modules.pop("second")


def test_class_of_a_user_is_found_in_the_given_folder(user_module):
    folder = user_module("from simulator.latency.python_model import PythonLatencyModel\n"
                         "class Greedy(PythonLatencyModel):\n    Parameters = None\n    def batch_us(self, shape): ...")
    chosen = registry.load("latency", "my_policies:Greedy", [folder])
    assert chosen.__name__ == "Greedy"
    assert registry.parameters_of(chosen) is registry.NoParameters
    sys.modules.pop("my_policies")


@pytest.mark.parametrize(("text", "name", "message"), [
    ("", "no_such_module:X",
     "cannot import \"no_such_module:X\": ModuleNotFoundError: No module named 'no_such_module'"),
    ("1 / 0", "broken_a:X", 'cannot import "broken_a:X": ZeroDivisionError: division by zero'),
    ("x = ", "broken_b:X", 'cannot import "broken_b:X": SyntaxError: invalid syntax (broken_b.py, line 1)'),
    ("", "broken_c:X", "cannot import \"broken_c:X\": AttributeError: module 'broken_c' has no attribute 'X'"),
    ("X = 3", "broken_d:X", '"broken_d:X" is not a class'),
    ("class X: pass", "broken_f:X",
     '"broken_f:X" is no scheduler: expected a subclass of simulator.scheduling.base.Scheduler'),
    ("from simulator.scheduling.base import Scheduler\nclass X(Scheduler):\n    Parameters = 3", "broken_e:X",
     '"broken_e:X": its Parameters is not a msgspec.Struct'),
])
def test_class_of_a_user_that_cannot_be_used_is_refused_in_one_line(user_module, text, name, message):
    module = name.partition(":")[0]
    folder = user_module(text, module if module.startswith("broken") else "unused")
    with pytest.raises(InputErrors) as caught:
        registry.load("scheduler", name, [folder])
    assert caught.value.faults == (message,)


def test_keys_of_a_users_class_are_read_by_its_parameters(user_module, tmp_path):
    from simulator.config.load import load_experiment

    user_module("""
import msgspec
from simulator.latency.python_model import PythonLatencyModel
class Fixed(PythonLatencyModel):
    def batch_us(self, shape):
        return self.parameters.duration_us
    class Parameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
        duration_us: float = 3.0
""", "my_latency")
    file = tmp_path / "a.toml"
    file.write_text("""
        latency = {backend = "my_latency:Fixed", duration_us = 5}
        engine = {max_model_len = 10, num_gpu_blocks = 10}
        workload = {type = "trace", path = "t.csv"}
    """)
    experiment = load_experiment(file)
    assert msgspec.structs.asdict(experiment.latency.parameters) == {"duration_us": 5.0}
    with pytest.raises(InputErrors, match=r"latency.duration: unknown key; did you mean duration_us\?"):
        load_experiment(file, ["latency.duration=3"])
    sys.modules.pop("my_latency")


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, name in ENTRIES if registry.KINDS[kind].base])
def test_every_built_in_is_what_is_asked_of_users(kind, name):
    assert issubclass(registry.load(kind, name), registry.imported(registry.KINDS[kind].base))


def test_error_of_a_users_class_names_it_and_the_line(user_module):
    folder = user_module("""
from simulator.latency.python_model import PythonLatencyModel
class Divides(PythonLatencyModel):
    def batch_us(self, shape):
        return shape.num_chunks / 0
class Forgets(PythonLatencyModel):
    def batch_us(self, shape):
        pass
""", "my_faults")
    told = []
    models = [registry.load("latency", f"my_faults:{name}", [folder])() for name in ("Divides", "Forgets")]
    for model in models:
        with pytest.raises((ZeroDivisionError, TypeError)) as caught:
            model.predict([(1, 0)])
        told.append(registry.blame(caught.value))
    assert told == [
        f'"my_faults:Divides", line 5 of {folder}/my_faults.py, raised ZeroDivisionError: division by zero',
        '"my_faults:Forgets", raised TypeError: Forgets.batch_us: expected a number of microseconds, found None']
    sys.modules.pop("my_faults")


def test_error_of_the_program_blames_nobody():
    with pytest.raises(ZeroDivisionError) as caught:
        _ = 1 / 0
    assert registry.blame(caught.value) is None


def integers_in(hint):
    for option in alternatives(hint):
        if element_of(option) is not None:
            yield from integers_in(element_of(option))
        elif isinstance(node_of(option), inspect.IntType):
            yield node_of(option)


def test_every_integer_has_a_largest_value():
    # C has no larger ones: what no declaration bounds ends in an OverflowError, or is cut
    roots = [Experiment, *(parameters(kind, name) for kind, name in ENTRIES)]
    unbounded = [f"{struct.__name__}.{field.name}" for root in roots for struct in structs_in(root)
                 for field in table_of(struct).fields for node in integers_in(field.hint) if node.le is None]
    assert unbounded == []
