"""Measurements read from CSV, and every way in which such a file can be wrong."""
import gzip

import numpy as np
import pytest

from simulator.core.csv_columns import ProfileCsv
from simulator.errors import InputErrors
from simulator.latency.forest.model import Forest
from support.forest_profiles import attention_rows, compute_rows, parameters_for, write, write_profiles
from support.small_models import deploy


def file_of(tmp_path, text, name="t.csv"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def faults(call, *given):
    with pytest.raises(InputErrors) as caught:
        call(*given)
    return list(caught.value.faults)


def test_columns_are_numbers(tmp_path):
    found = ProfileCsv(file_of(tmp_path, "a,b\n1,0.5\n2,1e-3\n"))

    assert found.numbers("a").tolist() == [1.0, 2.0] and found.numbers("b").tolist() == [0.5, 0.001]


def test_packed_files_hold_the_same(tmp_path):
    packed = file_of(tmp_path, gzip.compress(b"a\n1\n2\n"), "t.csv.gz")

    assert ProfileCsv(packed).numbers("a").tolist() == [1.0, 2.0]


def test_rows_that_repeat_are_dropped_unless_kept(tmp_path):
    path = file_of(tmp_path, "a,b\n1,2\n1,2\n1,3\n")

    assert (len(ProfileCsv(path)), len(ProfileCsv(path, keep_copies=True))) == (2, 3)


def test_rows_are_picked_by_value_whatever_its_spelling(tmp_path):
    found = ProfileCsv(file_of(tmp_path, "n,gated,t\n8,True,1\n8.0,True,2\n8,False,3\n9,True,4\n"))

    assert found.where(n=8, gated=True).numbers("t").tolist() == [1.0, 2.0]


def test_empty_cells_are_nan_where_allowed(tmp_path):
    found = ProfileCsv(file_of(tmp_path, "a,b\n1,\n2,nan\n"))

    assert np.isnan(found.numbers("b", may_be_empty=True)).all()


def test_a_missing_file_is_told(tmp_path):
    path = tmp_path / "no.csv"

    assert faults(ProfileCsv, path) == [f"{path}: cannot be read: No such file or directory"]


@pytest.mark.parametrize(("text", "told"), [
    ("", "expected a line of column names and rows, found 0 lines"),
    ("a,b\n", "expected a line of column names and rows, found 1 lines"),
    (b"a\n\xff\n", "is no text in UTF-8: byte 2"),
    ('a,b\n1,"2\n', "2: is no CSV"),
    ("a,b\n1,2\n3\n", "3: expected 2 cells, as the first line has, found 1"),
    ("a,a\n1,2\n", "1: a: two columns of this name"),
])
def test_what_is_no_table_is_told(tmp_path, text, told):
    path = file_of(tmp_path, text)

    (fault,) = faults(ProfileCsv, path)

    assert fault.startswith(f"{path}:") and told in fault


@pytest.mark.parametrize("raw", [
    gzip.compress(b"a\n1\n")[:-6], b"no gzip", gzip.compress(b"a\n1\n" * 99)[:-20] + b"?" * 20])
def test_a_damaged_archive_is_told(tmp_path, raw):
    path = file_of(tmp_path, raw, "t.csv.gz")

    (fault,) = faults(ProfileCsv, path)

    assert fault.startswith(f"{path}: cannot be read: ")


@pytest.mark.parametrize("cell", ["x", "-1", "inf", "nan", "", "1;5"])
def test_what_is_no_time_is_told_with_line_and_column(tmp_path, cell):
    path = file_of(tmp_path, f"a,b\n1,1\n1,{cell}\n")

    assert faults(ProfileCsv(path).numbers, "b") == [f'{path}:3: b: expected a finite number >= 0, found "{cell}"']


def test_many_faults_are_summed_up(tmp_path):
    path = file_of(tmp_path, "a,b\n" + "".join(f"{i},x\n" for i in range(30)))

    told = faults(ProfileCsv(path).numbers, "b")

    assert len(told) == 21 and told[-1] == f"{path}: b: 10 more faults like these"


def test_a_missing_column_is_told_with_the_nearest(tmp_path):
    path = file_of(tmp_path, "num_token\n1\n")

    assert faults(ProfileCsv(path).numbers, "num_tokens") == [
        f"{path}:1: num_tokens: no such column; did you mean num_token?"]


def test_a_value_that_no_row_holds_is_told_with_those_there_are(tmp_path):
    path = file_of(tmp_path, "n,tp\n8,1\n8,2\n9,4\n")

    with pytest.raises(InputErrors) as caught:
        ProfileCsv(path).where(n=8, tp=4)

    assert caught.value.faults == (f"{path}: tp: no row holds 4; found 1, 2 (wanted beside it: n = 8)",)


# ---- through the backend

def test_a_bad_time_in_a_profile_is_told(tmp_path):
    write_profiles(tmp_path)
    rows = compute_rows()
    rows[2]["time_stats.mlp_act.median"] = ""
    write(tmp_path / "mlp.csv", rows)

    assert faults(Forest, parameters_for(tmp_path), deploy()) == [
        f'{tmp_path / "mlp.csv"}:4: time_stats.mlp_act.median: expected a finite number >= 0, found ""']


def test_a_profile_of_another_model_is_told(tmp_path):
    write_profiles(tmp_path, tensor_parallel=2)

    told = faults(Forest, parameters_for(tmp_path), deploy())

    assert len(told) == 2 and all("num_tensor_parallel_workers: no row holds 1; found 2" in each for each in told)


def test_a_profile_without_prompts_is_told(tmp_path):
    write_profiles(tmp_path)
    write(tmp_path / "attention.csv", [row for row in attention_rows() if row["prefill_chunk_size"] == 0])

    assert faults(Forest, parameters_for(tmp_path), deploy()) == [
        f"{tmp_path / 'attention.csv'}: prefill_chunk_size: no row of this model holds one != 0"]
