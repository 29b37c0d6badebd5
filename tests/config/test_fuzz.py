"""Whatever the file holds, the answer is an experiment or a list of faults, never a traceback."""
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import tomli
import tomli_w
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.cli import DONE, INPUT_FAULT, main

CONFIGS = Path(__file__).parents[2] / "configs"
TEXTS = [(CONFIGS / name).read_bytes() for name in ("quickstart.toml", "linear.toml", "azure_conv.toml")]

SCALARS = st.one_of(
    st.none().map(lambda _: {}), st.booleans(), st.integers(), st.floats(), st.datetimes(), st.dates(), st.times(),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
    st.sampled_from(["vllm", "a:B", ":", "os:path", "linear", "../x"]))
KEYS = st.sampled_from(["process", "distribution", "type", "name", "parameters", "", "a b", "\n"])
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=5)


def check(path):
    output, diagnostics = StringIO(), StringIO()
    with redirect_stdout(output), redirect_stderr(diagnostics):
        status = main(["validate", str(path)])
    lines = diagnostics.getvalue().splitlines()
    assert "Traceback" not in diagnostics.getvalue()
    if status == DONE:
        assert not lines
        assert tomli.loads(output.getvalue())
    else:
        assert status == INPUT_FAULT, lines
        assert not output.getvalue()
        assert lines
        assert all(": " in line for line in lines)


@given(text=st.sampled_from(TEXTS), edits=st.lists(st.tuples(
    st.floats(0, 1, exclude_max=True), st.integers(0, 3), st.binary(max_size=3)), min_size=1, max_size=4))
@settings(max_examples=150, deadline=None, derandomize=True)
def test_file_with_changed_bytes_is_read_or_refused(text, edits, tmp_path_factory):
    for where, cut, put in edits:
        at = int(where * len(text))
        text = text[:at] + put + text[at + cut:]
    path = tmp_path_factory.mktemp("fuzz") / "a.toml"
    path.write_bytes(text)
    check(path)


@st.composite
def changed_tables(draw):
    table = tomli.loads(draw(st.sampled_from(TEXTS)).decode())
    for _ in range(draw(st.integers(1, 4))):
        inner = table
        while tables := [each for each in inner.values() if isinstance(each, dict)]:
            if draw(st.booleans()):
                break
            inner = draw(st.sampled_from(tables))
        keys = st.sampled_from([*inner, "extends", "host", "speculative", "max_num_seqs"])
        inner[draw(keys)] = draw(VALUES)
    return table


@given(table=changed_tables())
@settings(max_examples=150, deadline=None, derandomize=True)
def test_file_with_changed_values_is_read_or_refused(table, tmp_path_factory):
    path = tmp_path_factory.mktemp("fuzz") / "a.toml"
    path.write_text(tomli_w.dumps(table), encoding="utf-8")
    check(path)


@given(override=st.text(max_size=30) | st.tuples(
    st.sampled_from(["seed", "engine.policy", "latency.backend", "workload", "a.b"]),
    st.text(max_size=20)).map("=".join))
@settings(max_examples=150, deadline=None, derandomize=True)
def test_override_of_any_text_is_read_or_refused(override):
    diagnostics = StringIO()
    with redirect_stdout(StringIO()), redirect_stderr(diagnostics):
        status = main(["validate", str(CONFIGS / "linear.toml"), f"--set={override}"])
    assert status in (DONE, INPUT_FAULT), diagnostics.getvalue()
