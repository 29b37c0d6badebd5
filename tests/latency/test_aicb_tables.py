"""Reading per-layer tables, and what is said of those that cannot be read."""
import math

import numpy as np
import pytest

from simulator.errors import InputErrors
from simulator.latency.aicb.tables import Layout, file_name, model_in, read_layout, read_table

HEADER = "layer_id\tlayer_name\tcomp_time\tcomm_size\n"
ROWS = "0\tattention\t100\t8\n0\tmlp\t50\t8\n1\tattention\t110\t8\n1\tmoe\t70.5\t24\n"
LAYOUT = Layout("M-1", 8, 4, 1, 8, "decode")


def read(tmp_path, text):
    path = tmp_path / file_name(LAYOUT, 2, 100)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_table(path, 2, 100)


def faults(tmp_path, text):
    with pytest.raises(InputErrors) as caught:
        read(tmp_path, text)
    return [fault.replace(str(tmp_path / file_name(LAYOUT, 2, 100)), "T") for fault in caught.value.faults]


@pytest.mark.parametrize("text", [HEADER + ROWS, ROWS, (HEADER + ROWS).replace("\n", "\r\n"), "\ufeff" + HEADER + ROWS])
def test_a_table_is_read_with_and_without_a_header(tmp_path, text):
    table = read(tmp_path, text)

    # attention, mlp, moe of each layer; a component that a layer does not have is no number
    np.testing.assert_array_equal(table.compute_ns, [[100, 50, math.nan], [110, math.nan, 70.5]])
    np.testing.assert_array_equal(table.comm_bytes, [[8, 8, math.nan], [8, math.nan, 24]])
    assert (table.batch_size, table.sequence_length, table.source) == (2, 100, "")


def test_a_header_may_order_the_columns_and_name_the_source(tmp_path):
    table = read(tmp_path, "source\tcomm_size\tcomp_time\tlayer_name\tlayer_id\nsynthetic: x\t8\t100\tmlp\t0\n")

    assert (table.compute_ns[0, 1], table.comm_bytes[0, 1], table.source) == (100, 8, "synthetic: x")


@pytest.mark.parametrize(("text", "expected"), [
    ("", ["T: the file is empty"]),
    (HEADER, ["T: there is no row below the header"]),
    (b"\xff\xfe", ["T: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"]),
    ("layer_name,comp_time,comm_size\nattention,1,0\n", [
        'T:1: expected 4 cells separated by tabs, found "layer_name,comp_time,comm_size"']),
    ("layer_id\tlayer_name\tcomp_times\tcomm_size\n0\tmlp\t1\t0\n", [
        'T:1: unknown column "comp_times"; did you mean comp_time?', "T:1: column comp_time is missing"]),
    (HEADER + "0\tattention\t1\n", ["T:2: expected 4 cells separated by tabs, found 3"]),
    ("0\tattention\tx\t0\n", ['T:1: comp_time: expected a number from 0 to 1e+15, found "x"']),
    (HEADER + "0\tattention\t-1\tnan\n", [
        'T:2: comp_time: expected a number from 0 to 1e+15, found "-1"',
        'T:2: comm_size: expected a number from 0 to 1e+15, found "nan"']),
    ("-1\tattention\t1\t0\n", ['T:1: layer_id: expected an integer from 0 to 9999, found "-1"']),
    ("0\tattn\t1\t0\n", ['T:1: layer_name: expected one of attention, mlp, moe, found "attn"']),
    ("0\tmlp\t1\t0\n0\tmlp\t1\t0\n", ["T:2: layer_id: mlp of layer 0 is on line 1 already"]),
    ("0\tmlp\t1\t0\n2\tmlp\t1\t0\n", ["T: layer_id: layer 1 is missing"]),
])
def test_a_corrupt_table_is_refused_by_file_line_and_column(tmp_path, text, expected):
    assert faults(tmp_path, text) == expected


def test_many_faults_are_counted(tmp_path):
    found = faults(tmp_path, "0\tmlp\t1\n" * 30)

    assert len(found) == 21
    assert found[-1] == "T: 10 more faults like these"


def test_names_say_what_a_table_is_of():
    assert file_name(LAYOUT, 2, 100) == "vidur-M-1-world_size8-tp4-pp1-ep8-bs2-seq100-decode.csv"


def test_a_layout_has_all_its_tables_by_batch_size_and_length(tmp_path):
    for size, length in [(2, 30), (1, 200), (1, 100)]:
        (tmp_path / file_name(LAYOUT, size, length)).write_text(ROWS)
    (tmp_path / file_name(LAYOUT._replace(expert_parallel=4), 1, 1)).write_text("not read")

    tables = read_layout(tmp_path, LAYOUT)

    assert [(table.batch_size, table.sequence_length) for table in tables] == [(1, 100), (1, 200), (2, 30)]


def test_tables_that_are_missing_are_named_with_those_there_are(tmp_path):
    (tmp_path / file_name(LAYOUT, 1, 100)).write_text(ROWS)

    with pytest.raises(InputErrors) as caught:
        read_layout(tmp_path, LAYOUT._replace(world_size=16))

    assert str(caught.value) == (
        f"{tmp_path}: no table of M-1, world_size 16, tp 4, pp 1, ep 8, decode; "
        "it has M-1, world_size 8, tp 4, pp 1, ep 8, decode")


def test_the_faults_of_all_tables_are_told(tmp_path):
    for length in (1, 2):
        (tmp_path / file_name(LAYOUT, 1, length)).write_text("")

    with pytest.raises(InputErrors) as caught:
        read_layout(tmp_path, LAYOUT)

    assert len(caught.value.faults) == 2


def test_a_folder_that_is_not_there_and_a_name_that_says_nothing(tmp_path):
    with pytest.raises(InputErrors, match="no such folder"):
        read_layout(tmp_path / "none", LAYOUT)
    (tmp_path / "vidur-M.csv").write_text(ROWS)
    with pytest.raises(InputErrors, match=r"vidur-M.csv: expected a name such as vidur-MODEL-"):
        read_layout(tmp_path, LAYOUT)


def test_the_only_model_of_a_folder_need_not_be_named(tmp_path):
    (tmp_path / file_name(LAYOUT, 1, 1)).write_text(ROWS)
    assert model_in(tmp_path, None) == "M-1"

    with pytest.raises(InputErrors, match='no tables of model "M-2"; did you mean M-1'):
        model_in(tmp_path, "M-2")
    (tmp_path / file_name(LAYOUT._replace(model="N"), 1, 1)).write_text(ROWS)
    with pytest.raises(InputErrors, match="has tables of M-1, N; name one as table_model"):
        model_in(tmp_path, None)
