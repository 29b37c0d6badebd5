"""The cheapest mix of pools."""
import pytest

from simulator.study.capacity.bounds import Bound, Bounds
from simulator.study.capacity.mix import GPUS, PRICE, Kind, choose, mixes_of, text_of
from simulator.study.capacity.verdict import Observation, Rules, weigh
from study.capacity.servers import SERVER, asked, written

# capacity 3.2/s at 4.0 an hour, 1.5/s at 1.5; one GPU each
KINDS = (Kind("a", 0, 8, 3.2, 4.0, 1), Kind("b", 0, 8, 1.5, 1.5, 1))
POOLS = """
[[pools]]
name = "quick"
replicas = 1
cost_per_hour = 4.0

[[pools]]
name = "slow"
replicas = 1
cost_per_hour = 1.5
latency = {base_us = 2000.0}
"""
MIX = """
[study]
kind = "capacity"
from = 10.0
to = 5000.0
rel_tol = 0.02

[[study.mix]]
pool = "quick"
replicas = {from = 0, to = 2}

[[study.mix]]
pool = "slow"
replicas = {from = 0, to = 4}

[study.slo]
"ttft_ms.p99" = {max = 10.0}

[study.statistics]
warmup = "none"
min_tail = 0.0
"""


def verdict_of(delays):
    rules = Rules(Bounds((Bound("delay", 1.0, True),)), max_seeds=len(delays))
    return weigh(1.0, [Observation(seed, {"delay": delay}) for seed, delay in enumerate(delays)], rules)


def carries(mix):
    """Pass a mix that carries 10/s by its replicas alone."""
    return verdict_of([0.5 if mix.bound_per_s >= 10 else 2.0])


def test_c6_the_cheapest_mix_and_the_next():
    tried = []
    chosen = choose(KINDS, 10.0, lambda mix: tried.append(mix) or carries(mix), factor=1.0)

    assert (chosen.answer.counts, chosen.answer.price_per_hour) == ((0, 7), 10.5)
    assert tried == [chosen.answer]             # whatever is cheaper is skipped by its bound
    after = [mix for mix in mixes_of(KINDS, 1.0, PRICE) if mix.bound_per_s >= 10][1]
    assert (after.counts, after.price_per_hour) == ((1, 5), 11.5)


def test_c6_the_fewest_gpus_of_the_lowest_price():
    chosen = choose(KINDS, 10.0, carries, factor=1.0, order=GPUS)

    # four GPUs: 4 a for 16.0, 3 a and 1 b for 13.5
    assert (chosen.answer.counts, chosen.answer.gpus, chosen.answer.price_per_hour) == ((3, 1), 4, 13.5)
    assert chosen.answer.bound_per_s == pytest.approx(11.1)


def test_a_factor_lets_cheaper_mixes_be_tried():
    chosen = choose(KINDS, 10.0, lambda mix: verdict_of([2.0 if mix.counts == (0, 6) else 0.5]), factor=1.15)

    # 6 b for 9.0: 1.15 x 9.0 = 10.35, tried, fails; 1 a and 4 b for 10.0: 1.15 x 9.2 = 10.58
    assert [mix.counts for mix, _ in chosen.verdicts] == [(0, 6), (1, 4)]
    assert chosen.undecided == []


def test_a_cheaper_mix_that_failed_by_its_mean_alone_is_kept():
    noisy, quiet = verdict_of([0.5, 2.0]), verdict_of([0.5, 0.5])
    chosen = choose(KINDS, 10.0, lambda mix: noisy if mix.counts == (0, 6) else quiet, factor=1.15)

    assert [mix.counts for mix in chosen.undecided] == [(0, 6)]


def test_where_no_mix_carries_the_load_there_is_no_answer():
    chosen = choose(KINDS, 100.0, carries)

    assert (chosen.answer, chosen.verdicts, chosen.num_skipped) == (None, [], 80)       # 9 x 9 less none at all


def test_a_mix_in_words():
    assert text_of(mixes_of(KINDS, 1.0, PRICE)[0], KINDS) == "1 x b"


def test_pools_are_mixed_for_the_load_of_the_experiment(tmp_path, capsys):
    # One at a time: 1,000/s of quick, 500/s of slow. For 900/s, two slow ones (3.0) are cheaper than a quick one (4.0).
    status, content = asked(written(tmp_path, SERVER.replace("rate_per_s = 500.0", "rate_per_s = 900.0") + POOLS + MIX),
                            tmp_path / "out")

    assert status == 0
    assert content["answer"]["replicas"] == {"quick": 0, "slow": 2} and content["answer"]["price_per_hour"] == 3.0
    assert [kind["capacity_per_s"] for kind in content["kinds"]] == pytest.approx([1000, 500], rel=0.03)
    assert "2 x slow: 2 GPUs, 3 per hour, at 900 requests/s" in capsys.readouterr().out


def test_the_fewest_gpus_may_be_asked_for(tmp_path):
    text = SERVER.replace("rate_per_s = 500.0", "rate_per_s = 900.0") + POOLS + MIX
    _, content = asked(written(tmp_path, text), tmp_path / "out", "--set", 'study.mix_order="gpus"')

    assert content["answer"]["replicas"] == {"quick": 1, "slow": 0}


def test_a_factor_of_one_skips_what_only_pooling_could_carry(tmp_path):
    # 1,050/s: two slow ones have 1,000; times 1.15 they are tried, and fail
    text = SERVER.replace("rate_per_s = 500.0", "rate_per_s = 1050.0") + POOLS + MIX
    tried, skipped = (asked(written(tmp_path, text), tmp_path / "out", "--set", f"study.mix_factor={factor}")[1]
                      for factor in (1.15, 1.0))

    assert tried["answer"]["replicas"] == skipped["answer"]["replicas"] == {"quick": 0, "slow": 3}
    assert [each["replicas"]["slow"] for each in tried["probes"]] == [2, 0, 3]
    assert skipped["skipped"] > tried["skipped"]


def test_a_mix_needs_a_load(tmp_path, capsys):
    text = SERVER.replace("rate_per_s = 500.0", 'ramp = "linear", start_rate_per_s = 1.0, end_rate_per_s = 2.0')

    assert asked(written(tmp_path, text + POOLS + MIX), tmp_path / "out") == (2, None)
    assert "study.mix: expected workload.arrival.rate_per_s, the load" in capsys.readouterr().err


def test_a_load_beyond_all_mixes_ends_with_3(tmp_path, capsys):
    text = SERVER.replace("rate_per_s = 500.0", "rate_per_s = 9000.0") + POOLS + MIX

    assert asked(written(tmp_path, text), tmp_path / "out")[0] == 3
    assert "no mix carries 9000 requests/s" in capsys.readouterr().out
