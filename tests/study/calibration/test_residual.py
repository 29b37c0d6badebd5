"""A residual of iterations: a planted truth is found, cross-validated, and told where it does not hold."""
import json

import numpy as np
import pytest

import simulator
from simulator import cli
from simulator.config.load import load_experiment
from simulator.errors import InputErrors
from simulator.study.calibration.data import read_steps_of
from simulator.study.calibration.residual import chosen, errors_of, fit_residual, noise_of
from simulator.study.calibration.residual_fit import STRAIGHT, bent, fitted, ramps
from simulator.study.calibration.step_batches import batch_of, priced

pytest.importorskip("scipy", reason="the extra `fit`")

# Llama-3.1-8B on an H100 by the roofline: the prior. The truth is planted on it.
SERVER = """
model = {name = "llama-3.1-8b"}
hardware = {name = "h100-sxm-80gb"}
engine = {max_model_len = 32768, num_gpu_blocks = 20000, max_num_batched_tokens = 2048, max_num_seqs = 128}
latency = {backend = "roofline", host = {defaults = "none"}}
"""
COLUMNS = ("start_s", "duration_s", "num_sequences", "num_prefills", "prefill_tokens", "decode_tokens",
           "context_tokens")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("server")
    (folder / "server.toml").write_text(SERVER)
    (folder / "run.toml").write_text('extends = "server.toml"\nworkload = {type = "synthetic", num_requests = 1, '
                                     'arrival = {process = "constant", rate_per_s = 1.0}, prompt_tokens = '
                                     '{distribution = "constant", value = 8}, output_tokens = {distribution = '
                                     '"constant", value = 2}}\n')
    return folder


def batches(rng, count, most_sequences, most_context, most_prompt=2048):
    """Return counts of random iterations: one of ten computes a chunk beside the decodes."""
    decodes = rng.integers(1, most_sequences, count)
    chunks = np.where(rng.random(count) < 0.1, rng.integers(16, most_prompt, count), 0)
    kv = chunks + (decodes * np.exp(rng.uniform(np.log(100), np.log(most_context), count))).astype(int)
    return decodes, chunks, kv


def log_of(folder, name, rng, counts, truth, noise=0.05):
    """Write steps.csv of iterations that take `truth` of prior and counts, with noise; return what they truly take."""
    decodes, chunks, kv = counts
    (folder / name).mkdir(exist_ok=True)
    path = folder / name / "steps.csv"

    def write(durations_s):
        starts = np.concatenate([[0.0], np.cumsum(durations_s)[:-1]])
        rows = zip(starts, durations_s, decodes + (chunks > 0), (chunks > 0) * 1, chunks, decodes, kv, strict=True)
        path.write_text("\n".join([",".join(COLUMNS), *(",".join(map(str, row)) for row in rows)]) + "\n")

    write(np.ones(len(decodes)))
    prior_us = priced(read_steps_of(path, False), experiment(folder)).prior_us
    true_us = truth(prior_us, decodes + (chunks > 0), chunks, kv)
    write(true_us * 1e-6 * np.exp(noise * rng.standard_normal(len(decodes))))
    return true_us


def experiment(folder, **overrides):
    return load_experiment(folder / "run.toml", overrides)


def planted(prior_us, sequences, chunks, kv):
    """Return 20 % less than the prior for kernels, 2 ms of host, 15 us a sequence, dearer contexts and chunks."""
    return 0.8 * prior_us + 2000.0 + 15.0 * sequences + 0.004 * kv + 3.0 * np.minimum(chunks, 512)


@pytest.fixture(scope="module")
def found(server):
    """The residual of a log of 4,000 iterations."""
    rng = np.random.default_rng(5)
    log_of(server, "hour", rng, batches(rng, 4000, 64, 4000), planted)
    return fit_residual([priced(read_steps_of(server / "hour/steps.csv", False), experiment(server))],
                        experiment(server), "iteration", 4.0)


def predicted(found, folder, name):
    log = priced(read_steps_of(folder / name / "steps.csv", False), experiment(folder))
    return found.table.predicted_us(log.prior_us, log.counts), found.table.weights(log.counts)


@pytest.mark.slow
def test_a_planted_truth_is_found_within_three_percent_inside(server, found):
    rng = np.random.default_rng(6)
    true_us = log_of(server, "again", rng, batches(rng, 3000, 64, 4000), planted)
    predicted_us, weights = predicted(found, server, "again")
    errors = errors_of(predicted_us, true_us)

    assert errors.mape < 0.01 and abs(errors.of_sum) < 0.005       # noise of 5 % evens out; 3 % are asked for
    assert (weights == 1.0).mean() > 0.9
    left_out, noise = found.table.fit["left_out"], found.table.fit["noise"]
    assert left_out["inside"]["mape"] == pytest.approx(0.04, abs=0.004)     # 5 % of noise: 0.8 x 5 % in the mean
    assert found.table.fit["prior"]["mape"] > 0.08
    assert noise is None or noise["mape"] < 0.06


@pytest.mark.slow
def test_another_shape_of_load_is_within_eight_percent(server, found):
    rng = np.random.default_rng(7)
    true_us = log_of(server, "longer", rng, batches(rng, 3000, 110, 8000, 1024), planted)
    predicted_us, weights = predicted(found, server, "longer")

    assert errors_of(predicted_us, true_us).mape < 0.08
    assert 0.05 < (weights < 1.0).mean() < 0.6                      # up to twice the sequences and the contexts


@pytest.mark.slow
def test_far_outside_the_prior_is_left_alone(server, found):
    rng = np.random.default_rng(8)
    log_of(server, "far", rng, (np.full(50, 120), np.zeros(50, int), np.full(50, 120 * 32_000)), planted)
    predicted_us, weights = predicted(found, server, "far")
    prior_us = priced(read_steps_of(server / "far/steps.csv", False), experiment(server)).prior_us

    assert (weights == 0.0).all() and (predicted_us == prior_us).all()


@pytest.mark.slow
def test_an_equal_log_gives_an_equal_file(server, found):
    again = fit_residual([priced(read_steps_of(server / "hour/steps.csv", False), experiment(server))],
                         experiment(server), "iteration", 4.0)
    assert again == found


@pytest.mark.slow
def test_times_never_fall_with_the_counts_inside(found):
    def us(prefill, sequences, kv):
        prior_us = 3000.0 + 2.0 * prefill + 10.0 * sequences + 0.001 * kv
        return found.table.predicted_us(np.array([prior_us]), np.array([[prefill, sequences, kv]], float))[0]

    for ladder in ([(0, n, 32_000) for n in range(8, 64)], [(0, 32, kv) for kv in range(8000, 60_000, 1000)]):
        assert (np.diff([us(*each) for each in ladder]) >= 0).all()


@pytest.mark.slow
def test_the_command_writes_a_file_that_runs_name(server, tmp_path, capsys):
    rng = np.random.default_rng(9)
    for name in ("w7", "w8"):
        log_of(server, name, rng, batches(rng, 4000, 64, 4000), planted)
    (server / "study.toml").write_text('extends = "server.toml"\n[study]\nkind = "calibrate"\n'
                                       'measured = ["w7", "w8"]\nheld_out = ["w8"]\nresidual = {}\n')
    assert cli.main(["calibrate", str(server / "study.toml"), "--level", "steps", "--out", str(tmp_path)]) == 0
    said = capsys.readouterr()
    content = json.loads((tmp_path / "calibration.json").read_text())

    assert "calibration.json, pairs.csv, steps.json, calibrated.toml in" in said.out
    assert "blocks left out in turn" in said.out and "loads left out" in said.out
    assert content["held_out"]["step"]["request_level"]["mape"] < 0.05
    assert content["residual"]["file"] == "steps.json" and content["transfers"]
    (tmp_path / "run.toml").write_text(
        'extends = "calibrated.toml"\n[workload]\ntype = "synthetic"\nnum_requests = 40\n'
        'arrival = {process = "constant", rate_per_s = 30.0}\n'
        'prompt_tokens = {distribution = "constant", value = 900}\n'
        'output_tokens = {distribution = "constant", value = 60}\n')
    fast, slow = (simulator.run(tmp_path / "run.toml", {"engine.fast_forward": each}) for each in (True, False))
    assert (fast.requests == slow.requests).all()
    assert fast.summary["latency"]["residual"] == slow.summary["latency"]["residual"]
    assert fast.summary["latency"]["residual"]["measured"]


def test_too_few_iterations_are_refused(server):
    rng = np.random.default_rng(1)
    log_of(server, "one", rng, batches(rng, 1, 8, 400), planted)
    with pytest.raises(InputErrors, match="1 iteration to fit a residual to: expected 50 or more"):
        fit_residual([priced(read_steps_of(server / "one/steps.csv", False), experiment(server))], experiment(server),
                     "iteration", 4.0)


def test_iterations_of_warming_up_are_left_out_and_counted(server):
    rng = np.random.default_rng(2)
    log_of(server, "cold", rng, batches(rng, 400, 16, 400), lambda prior_us, sequences, chunks, kv: np.where(
        np.arange(len(prior_us)) < 6, 20.0, 1.2) * prior_us)
    found = fit_residual([priced(read_steps_of(server / "cold/steps.csv", False), experiment(server))],
                         experiment(server), "iteration", 4.0)

    assert found.table.fit["iterations"] == 394
    assert any("6 of the first 50 iterations took more than 2 times" in note for note in found.notes)
    assert found.table.fit["fitted"]["of_sum"] == pytest.approx(0.0, abs=0.01)


def test_a_short_log_is_not_cross_validated_and_says_so(server):
    rng = np.random.default_rng(3)
    log_of(server, "short", rng, batches(rng, 60, 16, 400), lambda prior_us, *_: 1.3 * prior_us)
    found = fit_residual([priced(read_steps_of(server / "short/steps.csv", False), experiment(server))],
                         experiment(server), "iteration", 4.0)

    assert found.table.fit["left_out"] == {} and "fewer than four blocks" in found.notes[-1]
    assert found.table.fit["fitted"]["mape"] < 0.06


def test_a_latency_model_far_off_is_held_at_the_bound_and_named(server):
    rng = np.random.default_rng(4)
    log_of(server, "off", rng, batches(rng, 200, 16, 400), lambda prior_us, *_: 9.0 * prior_us)
    found = fit_residual([priced(read_steps_of(server / "off/steps.csv", False), experiment(server))],
                         experiment(server), "iteration", 4.0)

    assert any("200 of 200 iterations lie at the bound of their ratio to the latency model, 4" in note
               for note in found.notes)


def test_counts_that_are_missing_are_refused_by_name(server):
    (server / "bare").mkdir(exist_ok=True)
    (server / "bare/steps.csv").write_text("duration_s,num_sequences,prefill_tokens,decode_tokens\n0.01,2,0,2\n")
    with pytest.raises(InputErrors, match="context_tokens: not measured, nor the used share of the KV cache"):
        priced(read_steps_of(server / "bare/steps.csv", False), experiment(server))


def test_the_used_share_of_the_cache_stands_in_for_tokens(server):
    (server / "share").mkdir(exist_ok=True)
    (server / "share/steps.csv").write_text(
        "duration_s,num_sequences,prefill_tokens,decode_tokens,kv_cache_usage\n0.01,2,0,2,0.01\n")
    log = priced(read_steps_of(server / "share/steps.csv", False), experiment(server))

    # 20,000 blocks of 16 tokens, of which one is the null block or not: 1 % of 320,000
    assert log.counts.tolist() == [[0.0, 2.0, 3200.0]]
    assert "the used share of 320,000 tokens" in log.notes[0]


def test_logs_of_several_versions_are_not_mixed(server, tmp_path, capsys):
    rng = np.random.default_rng(9)
    for name, version in (("old", "0.32.0"), ("new", "0.33.0")):
        log_of(server, name, rng, batches(rng, 100, 16, 400), planted)
        (server / name / "dataset.toml").write_text(f'engine = "vLLM"\nversion = "{version}"\n')
    (server / "mixed.toml").write_text('extends = "server.toml"\n[study]\nkind = "calibrate"\n'
                                       'measured = ["old", "new"]\nlevel = "steps"\nresidual = {}\n')
    assert cli.main(["calibrate", str(server / "mixed.toml"), "--out", str(tmp_path / "out")]) == 2
    assert "logs of several versions: old: vLLM 0.32.0, new: vLLM 0.33.0; fit one at a time" in capsys.readouterr().err


def test_straight_lines_win_unless_curves_are_better():
    one, other = ({"inside": errors_of(np.array([1.0 + each]), np.array([1.0]))} for each in (0.100, 0.099))

    assert chosen({"straight": one, "supple": other}) == "straight"
    assert chosen({"straight": one, "supple": {"inside": errors_of(np.array([1.05]), np.array([1.0]))}}) == "supple"
    assert chosen({"straight": {}}) is None


def test_a_batch_divides_sums_evenly():
    assert batch_of(2, 101, 3, 1101, -1) == ([(51, 0), (50, 0)], [334, 333, 333])
    assert batch_of(1, 100, 0, 500, -1) == ([(100, 400)], [])               # nothing decodes: the rest was before
    assert batch_of(1, 100, 2, 500, 250) == ([(100, 250)], [75, 75])
    assert batch_of(0, 0, 2, 1, -1) == ([], [1, 1])


def test_curves_are_sums_of_ramps():
    assert ramps(np.array([0.0, 5.0, 30.0]), np.array([0.0, 10.0, 20.0])).tolist() == [[0, 0], [5, 0], [10, 20]]
    assert bent(np.array([0.0] + [1.0] * 50 + [2.0] * 50 + [2.1] * 9 + [4.0] * 50)).tolist() == [0.0, 1.0, 2.0, 4.0]
    counts = np.column_stack([np.zeros(200), np.arange(1, 201), np.zeros(200)])
    true_us = 1000.0 + 20.0 * np.minimum(counts[:, 1], 50.0)
    prior_us = np.full(200, 1000.0)
    lines, curves = (fitted(prior_us, counts, true_us, each) for each in (STRAIGHT, 0.001))

    def at(form, count):
        return form.scale * 1000.0 + form.constant_us + np.interp(count, *map(np.array, (
            form.curves[1].knots, form.curves[1].added_us)))
    assert at(curves, 200) == pytest.approx(2000.0, rel=0.02) and at(curves, 25) == pytest.approx(1500.0, rel=0.05)
    assert at(lines, 25) > 1600.0                                           # a line cannot bend


def test_the_noise_of_equal_iterations_is_that_of_their_medians(server):
    rng = np.random.default_rng(5)
    counts = (np.full(300, 4), np.zeros(300, int), np.full(300, 4000))
    log_of(server, "noise", rng, counts, lambda prior_us, *_: prior_us, noise=0.1)
    found = noise_of(priced(read_steps_of(server / "noise/steps.csv", False), experiment(server)))

    assert found.iterations == 300 and found.mape == pytest.approx(0.08, abs=0.01)      # sqrt(2 / pi) x 10 %
