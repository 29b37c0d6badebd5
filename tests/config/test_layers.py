"""Files, the files they extend, and overrides."""
import os
from pathlib import Path

import numpy as np
import pytest

from simulator.config.layers import Layers, Source, read_layers
from simulator.config.load import load_experiment


def data_of(*arguments):
    return read_layers(*arguments).data


BASE = """
engine = {num_gpu_blocks = 9, max_model_len = 9}
latency = {backend = "linear", base_us = 3.0, resolution_us = 1.0, host = {iteration_us = 5.0}}
[workload]
type = "synthetic"
num_requests = 3
arrival = {process = "gamma", rate_per_s = 2.0, cv = 3.0}
prompt_tokens = {distribution = "uniform", min = 3, max = 5}
output_tokens = {distribution = "constant", tokens = 5}
"""


def test_choice_of_a_higher_layer_drops_keys_that_only_the_former_class_knows(write):
    write(BASE, "base.toml")
    name = write('extends = "base.toml"\nlatency.backend = "roofline"')
    assert data_of(name)["latency"] == {"backend": "roofline", "resolution_us": 1.0, "host": {"iteration_us": 5.0}}
    assert data_of("base.toml", {"latency.backend": "roofline"})["latency"] == data_of(name)["latency"]


def test_choice_in_a_table_of_a_chosen_class_drops_keys_too(write):
    name = write(BASE)
    workload = data_of(name, {"workload.arrival.process": "poisson", "workload.prompt_tokens.distribution": "lognormal",
                              "workload.prompt_tokens.mean": 4})["workload"]
    assert workload["arrival"] == {"process": "poisson", "rate_per_s": 2.0}
    assert workload["prompt_tokens"] == {"distribution": "lognormal", "min": 3, "max": 5, "mean": 4}
    assert workload["output_tokens"] == {"distribution": "constant", "tokens": 5}


def test_another_type_of_workload_drops_the_tables_of_the_former(write):
    name = write(BASE + "max_requests = 3\n")      # a key of no synthetic workload: a slip, which is to be told
    assert data_of(name, {"workload": {"type": "trace", "path": "t.csv"}})["workload"] == {
        "type": "trace", "path": "t.csv", "max_requests": 3}


def test_key_that_no_class_knows_is_refused_also_after_another_choice(write, faults):
    name = write(BASE.replace("base_us", "bas_us"))
    (told,) = faults(load_experiment, name, ["latency.backend=roofline", "model.name=llama-3.1-8b",
                                             "hardware.name=h100-sxm-80gb"])
    assert told.startswith("a.toml: latency.bas_us: unknown key")


def test_overrides_are_one_layer_in_which_a_choice_drops_nothing(write, faults):
    told = faults(load_experiment, write(BASE), ["latency.per_sequence_us=1", "latency.backend=roofline"], "--set")
    assert told[0].startswith("--set: latency.per_sequence_us: unknown key")


def test_same_choice_keeps_everything(write):
    assert data_of(write(BASE), {"latency.backend": "linear"})["latency"]["base_us"] == 3.0


def test_class_that_was_chosen_by_default_is_a_former_class_too(write):
    name = write("latency = {mtp = 3}\nworkload.arrival = {rate_per_s = 1}")
    assert data_of(name, ["latency.backend=linear"])["latency"]["mtp"] == 3


def test_bytes_that_mark_the_order_of_bytes_are_ignored(write):
    assert data_of(write(b"\xef\xbb\xbfseed = 3\n")) == {"seed": 3}


@pytest.mark.parametrize(("value", "plain"), [
    (np.int64(4), 4), (np.float64(0.5), 0.5), (np.bool_(False), False), (np.str_("x"), "x"),
    (Path("a/b.csv"), "a/b.csv"), ((1, np.int32(2)), [1, 2]), (np.array([1.5, 2.5]), [1.5, 2.5]),
    ({"a": {"b": Path("c")}}, {"a": {"b": "c"}})])
def test_overrides_from_python_become_what_toml_holds(write, value, plain):
    read = data_of(write(""), {"x": value})["x"]
    assert read == plain
    assert type(read) is type(plain)


def test_no_overrides_and_one_text_are_overrides(write):
    name = write("seed = 1")
    assert data_of(name, None) == {"seed": 1}
    assert data_of(name, "seed=2") == {"seed": 2}


def test_fault_of_an_override_from_python_does_not_speak_of_the_command_line(write, faults):
    assert faults(read_layers, write(""), {"a..b": 1}) == ['overrides: "a..b": expected SECTION.KEY']
    assert faults(read_layers, write(""), ["seed"]) == ["overrides: 'seed': expected SECTION.KEY=VALUE"]


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
    assert faults(read_layers, os.curdir) == [".: a folder, expected a TOML file"]


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
        assert faults(read_layers, write(""), [override], "--set") == [message]


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


def test_lists_of_the_caller_stay_as_they_are():
    pools = [{"name": "one", "topology": {"tensor_parallel": 1}}]
    layers = Layers(Source("a.toml", ""))
    layers.add({"pools": pools, "latency": {"backend": "linear"}}, Source("b.toml", ""))

    layers.data["pools"][0]["latency"] = dict(layers.data["latency"])      # as `resolve` completes pools

    assert pools == [{"name": "one", "topology": {"tensor_parallel": 1}}]
