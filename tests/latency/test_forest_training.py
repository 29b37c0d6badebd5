"""Training: what each sub-model learns from, that it repeats, and how far its tables are covered."""
import numpy as np
import pytest
from msgspec.structs import replace

from simulator.errors import InputErrors
from simulator.latency.forest import training as forest_training
from simulator.latency.forest.profiles import MAY_BE_ABSENT, Samples, read_samples, subject_of
from simulator.latency.forest.tables import EXTRAPOLATED, INTERPOLATED, MEASURED, coverage
from support.forest_profiles import (
    attention_rows,
    compute_rows,
    network_rows,
    parameters_for,
    write,
    write_profiles,
)
from support.small_models import DENSE, deploy

pytest.importorskip("sklearn", reason="needs scikit-learn")


def samples_in(folder, ways=None, **changes):
    """Return what is learnt from the profiles in a folder."""
    parameters = parameters_for(folder, **changes)
    files = {key: getattr(parameters, key) for key in
             ("compute_file", "attention_file", "all_reduce_file", "send_recv_file", "cpu_overhead_file")
             if getattr(parameters, key)}
    return read_samples(files, subject_of(parameters, deploy(**(ways or {}))))


def points(samples):
    return sorted(map(tuple, np.column_stack([samples.features, samples.times_ms]).tolist()))


# ---- samples

def test_operators_learn_from_tokens(tmp_path):
    found = samples_in(write_profiles(tmp_path))

    # mlp_act is the seventh: 7 us a token
    assert points(found["mlp_act"]) == [(tokens, 7 * tokens / 1000) for tokens in (1, 8, 16, 32, 64)]


def test_prompts_learn_from_context_and_tokens_squared(tmp_path):
    found = points(samples_in(write_profiles(tmp_path))["attn_prefill"])

    assert len(found) == 16
    assert (32.0, 256.0, 16 * 48 / 1e6) in found


def test_decodes_learn_from_sequences_and_context(tmp_path):
    found = points(samples_in(write_profiles(tmp_path))["attn_decode"])

    assert found == sorted((batch, context, batch * context / 1e6) for batch in (1, 2, 4) for context in (16, 32, 64))


def test_the_cache_learns_from_prompts_and_decodes_alike(tmp_path):
    found = points(samples_in(write_profiles(tmp_path))["attn_kv_cache_save"])

    assert len(found) == 16 + 9
    assert found[-1] == (64.0, 64 / 1e6) and (4.0, 4 / 1e6) in found


def test_rows_of_others_and_copies_are_left_out(tmp_path):
    rows = compute_rows()
    others = [rows[0] | {"n_embd": 128}, rows[0] | {"num_tensor_parallel_workers": 2}, rows[0]]
    write(tmp_path / "mlp.csv", rows + others)
    write(tmp_path / "attention.csv", attention_rows())

    assert len(samples_in(tmp_path)["add"].times_ms) == 5


def test_a_padded_vocabulary_stands_for_the_models(tmp_path):
    write(tmp_path / "mlp.csv", [row | {"vocab_size": size} for size in (1000, 1536, 2048) for row in compute_rows()])
    write(tmp_path / "attention.csv", attention_rows())

    # 1024 is not there; 1536 is the next
    assert len(samples_in(tmp_path)["add"].times_ms) == 5


@pytest.mark.parametrize("name", MAY_BE_ABSENT)
def test_norms_and_residuals_that_early_profiles_lack_take_no_time(tmp_path, name):
    column = f"time_stats.{name}.median"
    write(tmp_path / "attention.csv", attention_rows())
    for rows in ([{key: row[key] for key in row if key != column} for row in compute_rows()],
                 [row | {column: ""} for row in compute_rows()]):
        write(tmp_path / "mlp.csv", rows)

        assert not samples_in(tmp_path)[name].times_ms.any()


def test_all_reduces_learn_from_16_bit_tokens_of_their_own_number_of_ranks(tmp_path):
    write_profiles(tmp_path, tensor_parallel=2)
    path = write(tmp_path / "all_reduce.csv", network_rows("all_reduce", 2) + network_rows("all_reduce", 1)
                 + network_rows("all_reduce", 4, workers=4))

    found = samples_in(tmp_path, {"tensor_parallel": 2}, all_reduce_file=path)["all_reduce"]

    # 128 bytes / 64 wide / 2 bytes = 1 token
    assert points(found) == [(1.0, 128e-6), (8.0, 1024e-6), (64.0, 8192e-6)]


@pytest.mark.parametrize(("stages", "devices"), [(2, 2), (8, 1)])
def test_stages_that_fit_a_node_send_within_it(tmp_path, stages, devices):
    write_profiles(tmp_path)
    rows = [row | {"time_stats.send_recv.median": count} for count in (1, 2)
            for row in network_rows("send_recv", count)]
    parameters = parameters_for(tmp_path, send_recv_file=write(tmp_path / "send_recv.csv", rows))
    subject = subject_of(parameters, deploy(replace(DENSE, num_layers=8), pipeline_parallel=stages))

    # nodes of 4: two stages are inside, eight are not
    found = read_samples({"send_recv_file": parameters.send_recv_file}, subject)["send_recv"]
    assert set(found.times_ms) == {devices}


@pytest.mark.parametrize("spelling", [str.lower, str.upper])
def test_host_times_are_found_under_their_old_names_too(tmp_path, spelling):
    names = ("schedule_median", "sampler_e2e_median", "prepare_inputs_e2e_median", "process_model_outputs_median",
             "ray_comm_time_median")
    rows = [{spelling(name): batch + i for i, name in enumerate(names)}
            | {"model_name": "lab/dense", "batch_size": batch, "tensor_parallel_degree": 1} for batch in (8, 16)]
    path = write(tmp_path / "cpu.csv", rows)

    found = samples_in(write_profiles(tmp_path), cpu_overhead_file=path, cpu_overhead_model="lab/dense")

    assert points(found["schedule"]) == [(8, 8), (16, 16)]
    assert points(found["ray_comm_time"]) == [(8, 12), (16, 20)]


# ---- fitting

def trained(folder, **changes):
    return forest_training.train(samples_in(folder), parameters_for(folder, **changes))


def test_two_trainings_give_the_same_bytes(tmp_path):
    write_profiles(tmp_path)
    grid = {"num_estimators": [2, 4], "max_depth": [2, 8], "k_fold_cv_splits": 2}

    first, second = trained(tmp_path, **grid), trained(tmp_path, **grid)

    assert {name: table.tobytes() for name, table in first.arrays().items()} == {
        name: table.tobytes() for name, table in second.arrays().items()}


def test_one_sub_model_does_not_disturb_another(tmp_path):
    samples = samples_in(write_profiles(tmp_path))
    fewer = {name: samples[name] for name in samples if name != "attn_pre_proj"}

    whole = forest_training.train(samples, parameters_for(tmp_path, max_tokens=64))
    part = forest_training.train(fewer, parameters_for(tmp_path, max_tokens=64))

    assert np.array_equal(whole.decode, part.decode)


def test_seeds_matter(tmp_path):
    write_profiles(tmp_path)

    assert not np.array_equal(trained(tmp_path, training_seed=1).prefill, trained(tmp_path, training_seed=2).prefill)


def test_tables_reach_as_far_as_the_profiles_unless_told(tmp_path):
    write_profiles(tmp_path)

    found, told = trained(tmp_path), trained(tmp_path, max_tokens=100, max_batch_size=9, max_kv_tokens=65)

    # contexts 0, 16, ..., 64; 65 needs 80; 100 tokens round up to 104
    assert found.tokens["add"].shape == (65,) and found.decode.shape == (5, 5) and found.prefill.shape == (5, 65)
    assert told.tokens["add"].shape == (105,) and told.decode.shape == (10, 6) and told.prefill.shape == (6, 65)


def test_a_polynomial_finds_the_formula_behind_the_profile(tmp_path):
    write_profiles(tmp_path)

    found = trained(tmp_path, estimator="linear_regression", polynomial_degree=[1, 2],
                    polynomial_interaction_only=[True], k_fold_cv_splits=3)

    # batch x context ns; tokens x 9 us
    assert found.decode[3, 2] == pytest.approx(3 * 32 / 1e6)
    assert found.tokens["add"][40] == pytest.approx(0.36)


def test_pieces_give_what_asking_at_every_point_gives(tmp_path):
    from sklearn.ensemble import RandomForestRegressor
    random = np.random.default_rng(1)
    model = RandomForestRegressor(n_estimators=7, random_state=1).fit(
        np.column_stack([random.uniform(0, 100, 200), random.uniform(0, 50, 200) ** 2]), random.uniform(1, 2, 200))
    axes = np.arange(0.0, 120.0, 3.0), np.arange(60.0) ** 2

    found = forest_training._predict(model, axes)

    every = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    assert np.array_equal(found, model.predict(every).reshape(40, 60))


def test_the_score_is_the_mean_percentage_and_zeros_count_whole():
    class Model:
        def predict(self, features):
            return np.array([1.1, 0.0, 0.5, 2.0])

    # 10 %, 0 % (right about 0), 100 % (wrong about 0), 0 %
    found = forest_training._score(Model(), None, np.array([1.0, 0.0, 0.0, 2.0]))
    assert found == pytest.approx(-27.5)


def test_one_sample_is_too_few():
    samples = Samples(np.ones((1, 1)), np.ones(1))

    with pytest.raises(InputErrors, match="add: expected at least 2 samples in the profile, found 1"):
        forest_training._fit(samples, None, "add")


# ---- coverage

def test_entries_have_measurements_on_both_sides_or_are_extrapolated():
    # measured at 2 and 4 of 0..5
    found = coverage(np.array([[2.0], [4.0]]), (np.arange(6.0),))
    assert found.tolist() == [EXTRAPOLATED, EXTRAPOLATED, MEASURED, INTERPOLATED, MEASURED, EXTRAPOLATED]


def test_a_corner_that_was_not_measured_is_extrapolated():
    # (0, 2), (2, 0) and (0, 0): nothing is as large as (1, 1) in both features
    found = coverage(np.array([[0.0, 2.0], [2.0, 0.0], [0.0, 0.0]]), (np.arange(3.0), np.arange(3.0)))
    assert found.tolist() == [[MEASURED, INTERPOLATED, MEASURED],
                              [INTERPOLATED, EXTRAPOLATED, EXTRAPOLATED],
                              [MEASURED, EXTRAPOLATED, EXTRAPOLATED]]


def test_measurements_beside_the_entries_bound_them_too():
    # 0.5 and 9: entries 1 to 3 lie between, 0 does not
    found = coverage(np.array([[0.5], [9.0]]), (np.arange(4.0),))
    assert found.tolist() == [EXTRAPOLATED, INTERPOLATED, INTERPOLATED, INTERPOLATED]
