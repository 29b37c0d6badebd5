"""Each candidate at its own largest rate, found as `capacity` finds it."""
import csv

import pytest

import simulator
from simulator.study.sweep.bench import leaves
from simulator.study.sweep.segments import read_all

# One server, 1 ms a request, is an M/D/1 queue: mean TTFT is 1 + rho / (2 (1 - rho)) ms, 2 ms at 666.67 requests/s.
CAPACITY = (('extends = "base.toml"', 'extends = "linear.toml"'),
            ('layouts = ["aggregated", "disaggregated"]', 'load = "capacity"\nrel_tol = 0.02\nmax_seeds = 3'),
            ('output_throughput_per_gpu = "max"\ntokens_per_s_per_user = "max"', 'rate = "max"\ngpus = "min"'),
            ('"topology.tensor_parallel" = [1, 2]\n"engine.max_num_seqs" = [8, 64]', '"topology.replicas" = [1, 2, 3]'))
BOUNDS = '[study.slo]\n"ttft_ms.mean" = {max = 2.0}\n'


def rows_of(path):
    with open(path) as stream:
        return list(csv.DictReader(stream))


@pytest.fixture
def capacities(study, tune, tmp_path):
    """Run such a study with 2,000 requests; return what `tune` does, and the rows of its ranking."""
    linear = tmp_path / "linear.toml"

    def run(*options, out="out", pairs=(), requests=2000):
        linear.write_text(linear.read_text().replace("= 400", f"= {requests}"))
        status, told = tune(study(*CAPACITY, *pairs, add=BOUNDS), *options, out=out)
        return status, told, rows_of(tmp_path / out / "ranking.csv")

    return run


@pytest.mark.ci
@pytest.mark.slow
def test_rates_of_queues(capacities):
    status, told, rows = capacities(requests=20_000)
    rates = {int(row["topology.replicas"]): float(row["rate"]) for row in rows}

    assert status == 0 and told["counts"] == {"feasible": 3} and len(told["front"]) == 3
    assert rates[1] == pytest.approx(666.67, rel=0.03)
    assert 2 * rates[1] < rates[2] and 3 * rates[1] < rates[3]      # in turn: the arrivals of each are more even


def test_winner_repeats_the_run_at_its_rate(capacities, tmp_path):
    _, _, rows = capacities(requests=400, pairs=[("[1, 2, 3]", "[2]")])
    winner = tmp_path / "out" / "winners" / "0001.toml"
    known = read_all(tmp_path / "out").finished

    assert f"rate_per_s = {rows[0]['rate']}" in winner.read_text()
    assert leaves(simulator.run(winner).summary) == known[rows[0]["id"]].summary


@pytest.mark.slow
def test_processes_and_going_on_write_the_same_bytes(capacities, tmp_path):
    capacities()
    capacities("--jobs", "2", out="two")
    count = len(list((tmp_path / "out" / "segments").iterdir()))
    capacities()
    for name in ("ranking.csv", "tune.json", "winners/0001.toml"):
        assert (tmp_path / "two" / name).read_bytes() == (tmp_path / "out" / name).read_bytes()
    assert len(list((tmp_path / "out" / "segments").iterdir())) == count


@pytest.mark.slow
def test_halving_searches_coarsely_first(capacities):
    pairs = (('"topology.replicas" = [1, 2, 3]', '"topology.replicas" = [1, 2, 3]\n"engine.block_size" = [16, 32]'),
             ("rel_tol", 'search = "halving"\nfirst_requests = 500\nrel_tol'), ('\ngpus = "min"', ""))
    status, told, rows = capacities(pairs=pairs)

    # Two of six go on, those with three replicas: block sizes change nothing.
    assert status == 0 and told["counts"] == {"eliminated": 4, "feasible": 2}
    assert {row["topology.replicas"] for row in rows if row["rank"]} == {"3"}


@pytest.mark.slow
def test_who_misses_at_any_rate_says_by_how_much(study, tune, tmp_path):
    status, told = tune(study(*CAPACITY, add=BOUNDS.replace("2.0", "0.5")))

    assert status == 3 and told["counts"] == {"infeasible": 3}
    assert "even 0.001 requests a second misses: ttft_ms.mean: 1 > 0.5" in told["nearest_miss"]["why"]
    assert told["nearest_miss"]["margin"] == -1.0
