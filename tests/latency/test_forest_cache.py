"""Tables are kept under a key of all they depend on; what is damaged is trained again."""
import gzip

import numpy as np
import pytest

from simulator.errors import InputErrors
from simulator.latency.forest import cache as forest_cache
from simulator.latency.forest.cache import tables_of
from simulator.latency.forest.model import Forest
from support.forest_profiles import compute_rows, parameters_for, write, write_profiles
from support.small_models import deploy

pytest.importorskip("sklearn", reason="needs scikit-learn")


@pytest.fixture
def trainings(monkeypatch):
    """Return a list that grows with each training."""
    made, train = [], forest_cache.train
    monkeypatch.setattr(forest_cache, "train", lambda *given: made.append(1) or train(*given))
    return made


def same(one, other):
    return {name: table.tobytes() for name, table in one.arrays().items()} == {
        name: table.tobytes() for name, table in other.arrays().items()}


def test_tables_are_trained_once(tmp_path, trainings):
    parameters = parameters_for(write_profiles(tmp_path))

    first, path = tables_of(parameters, deploy())
    second, again = tables_of(parameters, deploy())

    assert len(trainings) == 1 and path == again and same(first, second)


def test_two_trainings_write_the_same_bytes(tmp_path):
    folders = [tmp_path / name for name in ("a", "b")]

    files = [tables_of(parameters_for(write_profiles(tmp_path), cache_directory=str(folder)), deploy())[1]
             for folder in folders]

    assert files[0].read_bytes() == files[1].read_bytes()


@pytest.mark.parametrize("change", [
    {"training_seed": 7}, {"num_estimators": [4]}, {"max_tokens": 32}, {"kv_granularity_tokens": 32},
    {"max_depth": [4]}, {"k_fold_cv_splits": 3}])
def test_what_changes_tables_changes_the_key(tmp_path, trainings, change):
    write_profiles(tmp_path)

    paths = {tables_of(parameters_for(tmp_path, **given), deploy())[1] for given in ({}, change)}

    assert len(paths) == len(trainings) == 2


@pytest.mark.parametrize("change", [
    {"num_training_jobs": 2}, {"outside": "error"}, {"nccl_cpu_launch_overhead_us": 1.0}, {"polynomial_degree": [1]},
    {"attention_decode_batching_overhead_fraction": 0.0}])
def test_what_does_not_change_tables_does_not_change_the_key(tmp_path, trainings, change):
    write_profiles(tmp_path)

    paths = {tables_of(parameters_for(tmp_path, **given), deploy())[1] for given in ({}, change)}

    assert len(paths) == len(trainings) == 1


def test_the_key_is_of_contents_not_of_names(tmp_path, trainings):
    write_profiles(tmp_path)
    packed = tmp_path / "other.csv.gz"
    packed.write_bytes(gzip.compress((tmp_path / "mlp.csv").read_bytes()))
    tables_of(parameters_for(tmp_path), deploy())

    tables_of(parameters_for(tmp_path, compute_file=str(packed)), deploy())
    assert len(trainings) == 1

    write(tmp_path / "mlp.csv", compute_rows(tokens=(1, 8, 16, 32, 128)))
    tables_of(parameters_for(tmp_path), deploy())
    assert len(trainings) == 2


@pytest.mark.parametrize("damage", [
    lambda raw, number: b"", lambda raw, number: b"not HDF5", lambda raw, number: raw[:len(raw) // 2],
    lambda raw, number: raw.replace(number, np.float64(1.0).tobytes())], ids=["empty", "foreign", "cut", "one number"])
def test_a_damaged_file_is_trained_again(tmp_path, trainings, damage):
    parameters = parameters_for(write_profiles(tmp_path))
    tables, path = tables_of(parameters, deploy())
    raw = path.read_bytes()
    number = tables.decode[-1, -1].tobytes()
    assert number in raw
    path.write_bytes(damage(raw, number))

    again, _ = tables_of(parameters, deploy())

    assert len(trainings) == 2 and same(tables, again) and path.read_bytes() == raw


def test_a_damaged_file_is_told_of_once(tmp_path):
    parameters = parameters_for(write_profiles(tmp_path))
    path = Forest(parameters, deploy()).cache_file
    with open(path, "w") as file:
        file.write("not HDF5")

    told = [note for note in Forest(parameters, deploy()).warnings() if "made again" in note]

    assert told == [f"forest: {path}: was damaged, or made from other inputs; it was made again"]
    assert not any("made again" in note for note in Forest(parameters, deploy()).warnings())


def test_a_file_under_another_key_is_not_believed(tmp_path):
    _, path = tables_of(parameters_for(write_profiles(tmp_path)), deploy())

    assert forest_cache.read_tables(path, "another key") is None


def test_a_folder_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    parameters = parameters_for(write_profiles(tmp_path), cache_directory=str(tmp_path / "file"))

    with pytest.raises(InputErrors, match=r"latency\.cache_directory: .*file cannot be written"):
        tables_of(parameters, deploy())


def test_no_half_written_file_stays(tmp_path):
    tables_of(parameters_for(write_profiles(tmp_path)), deploy())

    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".h5"]


def test_a_backend_reads_what_train_has_kept(tmp_path, trainings):
    parameters = parameters_for(write_profiles(tmp_path))
    seen = []

    path = Forest.train(parameters, deploy(), progress=seen.append)
    model = Forest(parameters, deploy())

    assert len(trainings) == 1 and model.cache_file == path
    assert {"attn_decode", "attn_prefill", "mlp_act"} <= set(seen)
    assert model.predict(decode=[16]) > 0


def test_a_long_training_is_announced(tmp_path, caplog):
    write_profiles(tmp_path)

    Forest(parameters_for(tmp_path), deploy())
    assert not caplog.records

    Forest(parameters_for(tmp_path, num_estimators=[2, 3], k_fold_cv_splits=2), deploy())
    assert "training 12 sub-models from 2 candidates each" in caplog.text


def test_missing_profiles_are_told_together():
    with pytest.raises(InputErrors) as caught:
        Forest(Forest.Parameters(), deploy(tensor_parallel=2))

    assert caught.value.faults == tuple(
        f"latency.{key}: missing; the forest backend needs this profile"
        for key in ("compute_file", "attention_file", "all_reduce_file"))


def test_unreadable_profiles_are_told_together(tmp_path):
    with pytest.raises(InputErrors) as caught:
        Forest(parameters_for(tmp_path), deploy())

    assert caught.value.faults == tuple(
        f"{tmp_path / name}: cannot be read: No such file or directory" for name in ("mlp.csv", "attention.csv"))
