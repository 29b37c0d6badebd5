"""Files, the files they extend, and overrides."""
import os

import pytest

from simulator.config.layers import read_layers
from simulator.config.load import load_experiment


def data_of(*arguments):
    return read_layers(*arguments).data


def test_extended_file_gives_defaults_key_by_key(write):
    write("seed = 1\n[engine]\nblock_size = 8\nmax_num_seqs = 4\n", "base.toml")
    write('extends = "base.toml"\n[engine]\nblock_size = 32\n')
    assert data_of("a.toml") == {"seed": 1, "engine": {"block_size": 32, "max_num_seqs": 4}}


def test_chain_of_extended_files_is_relative_to_each_of_them(write):
    write("seed = 1\nname = 'base'", "deep/base.toml")
    write('extends = "base.toml"\nseed = 2', "deep/middle.toml")
    write('extends = "deep/middle.toml"')
    assert data_of("a.toml") == {"seed": 2, "name": "base"}


def test_lists_are_replaced_not_merged(write):
    write("x = [1, 2, 3]", "base.toml")
    write('extends = "base.toml"\nx = [4]')
    assert data_of("a.toml") == {"x": [4]}


def test_circle_of_extends_is_refused(write, faults):
    write('extends = "b.toml"')
    write('extends = "sub/../a.toml"', "b.toml")
    assert faults(read_layers, "a.toml") == ["b.toml: extends: a circle: a.toml -> b.toml -> a.toml"]


@pytest.mark.parametrize(("text", "message"), [
    ('extends = "none.toml"', 'a.toml: extends: no file "none.toml"'),
    ("extends = 3", "a.toml: extends: expected the path of a TOML file"),
    ('extends = ""', "a.toml: extends: expected the path of a TOML file"),
    ("x = ", "a.toml:1:5: "),
    ("[a\nb = 1", "a.toml:1:3: "),
    ("x = 1\nx = 2", "a.toml:2:6: "),
    (b"a = 1\nb = '\xff'", "a.toml:2: not UTF-8: byte 0xff"),
    ("x = " + "[" * 5000, "a.toml: nested too deeply"),
    (".".join("x" * 5000) + " = 1", "a.toml: nested too deeply"),
])
def test_file_that_cannot_be_read_is_told_with_its_place(write, faults, text, message):
    (told,) = faults(read_layers, write(text))
    assert told == message or (message.endswith(": ") and told.startswith(message))     # tomli chose the words


def test_number_of_thousands_of_digits_is_refused(write, faults):
    (message,) = faults(read_layers, write("x = " + "9" * 5000))
    assert message.startswith("a.toml: Exceeds the limit")


def test_absent_file_is_refused(write, faults):
    write()
    assert faults(read_layers, "b.toml") == ["b.toml: No such file or directory"]
    assert faults(read_layers, os.curdir) == [".: Is a directory"]


def test_syntax_fault_of_an_extended_file_names_that_file(write, faults):
    write("x = ", "base.toml")
    (told,) = faults(read_layers, write('extends = "base.toml"'))
    assert told.startswith("base.toml:1:5: ")


@pytest.mark.parametrize(("text", "value"), [
    ("seed=3", {"seed": 3}),
    ("a.b = 1.5", {"a": {"b": 1.5}}),
    ("a.b.c=true", {"a": {"b": {"c": True}}}),
    ("a.b=[1, 2]", {"a": {"b": [1, 2]}}),
    ("a={b = 1}", {"a": {"b": 1}}),
    ('a.b="x y"', {"a": {"b": "x y"}}),
    ("model.name=llama-3.1-8b", {"model": {"name": "llama-3.1-8b"}}),
    ("workload.path=../t=1.csv", {"workload": {"path": "../t=1.csv"}}),
    ("a=inf", {"a": float("inf")}),
    ("a=", {"a": ""}),
    ('"odd key".x=1', {"odd key": {"x": 1}}),
])
def test_override_is_toml_and_a_bare_word_is_text(write, text, value):
    assert data_of(write(""), [text]) == value


def test_later_override_wins_and_tables_merge(write):
    name = write("[engine]\nblock_size = 8\nmax_num_seqs = 4\n")
    assert data_of(name, ["engine.block_size=16", "engine.block_size=32"]) == {
        "engine": {"block_size": 32, "max_num_seqs": 4}}


def test_overrides_from_python_are_values(write):
    assert data_of(write("seed = 1"), {"seed": 2, "engine.max_num_seqs": 64}) == {
        "seed": 2, "engine": {"max_num_seqs": 64}}


@pytest.mark.parametrize(("override", "message"), [
    ("seed", "--set: 'seed': expected SECTION.KEY=VALUE"),
    ("a..b=1", '--set: "a..b": expected SECTION.KEY'),
    ("=1", '--set: "": expected SECTION.KEY'),
    ("a=1\nb=2", None),
    ("a.b=[1, 2", "--set: a.b: Unclosed array"),
    ("extends=b.toml", "--set: extends: cannot be overridden"),
    ("a=\udcff", "--set: 'a=\\udcff': expected SECTION.KEY=VALUE"),
])
def test_override_that_is_no_assignment_is_refused(write, faults, override, message):
    if message is None:     # a value cannot smuggle in a second key
        assert data_of(write(""), [override]) == {"a": "1\nb=2"}
    else:
        assert faults(read_layers, write(""), [override]) == [message]


def test_fault_names_the_layer_that_says_it(load, write, faults):
    write("engine.max_num_seq = 3", "base.toml")
    text = """
        extends = "base.toml"
        engine = {block_size = 0, num_gpu_blocks = 9, max_model_len = 9}
        latency.backend = "linear"
        workload = {type = "trace", path = "t"}
    """
    assert faults(load, "slo.ttft=3", text=text) == [
        "a.toml: engine.block_size: expected an integer from 1 to 1048576, found 0",
        "base.toml: engine.max_num_seq: unknown key; did you mean max_num_seqs?",
        "--set: slo.ttft: unknown key; did you mean ttft_ms?",
    ]


def test_relative_path_is_relative_to_the_file_that_mentions_it(write, tmp_path):
    write("""
        output.directory = "out"
        workload = {type = "trace", path = "t.csv"}
        latency.backend = "linear"
        engine = {num_gpu_blocks = 9, max_model_len = 9}
    """, "deep/base.toml")
    write('extends = "../deep/base.toml"\noutput.directory = "../mine"', "other/a.toml")

    experiment = load_experiment("other/a.toml")
    assert experiment.workload.parameters.path == str(tmp_path / "deep/t.csv")
    assert experiment.output.directory == str(tmp_path / "mine")


def test_relative_path_in_an_override_is_relative_to_the_current_folder(write, tmp_path):
    write("""
        workload.type = "trace"
        latency.backend = "linear"
        engine = {num_gpu_blocks = 9, max_model_len = 9}
    """, "deep/a.toml")
    experiment = load_experiment("deep/a.toml", ["workload.path=t.csv"])
    assert experiment.workload.parameters.path == str(tmp_path / "t.csv")


def test_name_defaults_to_that_of_the_file(load, write):
    assert load().name == "a"
    assert load("name=b").name == "b"
