"""Clients with random habits on random clusters: runs of iterations at once or one by one, and slots of each client."""
from random import Random

import numpy as np
import pytest

import simulator
from invariants.test_whole_cluster import experiment_of
from simulator.config.load import load_experiment
from simulator.domain import records

LENGTHS = ('{distribution = "uniform", min = 3, max = 90}', '{distribution = "constant", tokens = 16}')
OUTPUTS = ('{distribution = "uniform", min = 0, max = 25}', '{distribution = "constant", tokens = 3}')
THINKING = ("0.0", "0.012", '{distribution = "exponential", mean = 0.02}')


def clients_of(rng):
    """Return a random [workload] of clients as TOML."""
    clients = [client_of(rng, name) for name in "abcd"[:rng.randint(1, 4)]]
    is_open = any("concurrency" not in client for client in clients)
    rates = f"rate_per_s = {rng.choice([40.0, 300.0])}\nnum_requests = {rng.randint(5, 40)}\n" if is_open else ""
    load = f"load = {{max_in_flight = {rng.randint(1, 4)}}}\n" if rng.random() < 0.3 else ""
    return f'[workload]\ntype = "clients"\nduration_s = {rng.choice([0.2, 5.0])}\n{rates}{load}' + "".join(clients)


def client_of(rng, name):
    prefix = f'prefix_group = "g"\nprefix_length = {rng.choice([8, 32])}\n' if rng.random() < 0.4 else ""
    deadline = f"deadline_s = {rng.choice([0.05, 0.5])}\n" if rng.random() < 0.3 else ""
    common = (f'[[workload.clients]]\nid = "{name}"\ntenant = "{name}"\npriority = {rng.randint(0, 2)}\n'
              f"{prefix}{deadline}prompt_tokens = {rng.choice(LENGTHS)}\noutput_tokens = {rng.choice(OUTPUTS)}\n")
    delay = f"client_delay_s = {rng.choice([0.0, 0.0004])}"
    if rng.random() < 0.5:
        process = rng.choice(['process = "poisson"', 'process = "constant"', 'process = "gamma", cv = 2.0'])
        load = f"load = {{max_in_flight = {rng.randint(1, 3)}, {delay}}}\n" if rng.random() < 0.4 else ""
        return f"{common}rate_share = {rng.choice([0.5, 1.0, 3.0])}\narrival = {{{process}}}\n{load}"
    return (f'{common}num_requests = {rng.randint(1, 20)}\nload = {{mode = "concurrency", '
            f"concurrency = {rng.randint(1, 3)}, think_time_s = {rng.choice(THINKING)}, "
            f"ramp_up_s = {rng.choice([0.0, 0.03])}, {delay}}}\n")


def case_of(seed, folder):
    rng = Random(seed)
    cluster = experiment_of(rng).replace('workload = {type = "trace", path = "requests.csv"}\n', "")
    (folder / "experiment.toml").write_text(cluster + clients_of(rng))
    return folder / "experiment.toml"


def result_of(experiment, **overrides):
    return simulator.run(load_experiment(experiment, overrides))


@pytest.fixture(scope="module", params=range(40))
def case(request, tmp_path_factory):
    return case_of(request.param, tmp_path_factory.mktemp("clients"))


@pytest.fixture(scope="module")
def run(case):
    return result_of(case)


def test_steps_and_runs_of_iterations_agree(case, run):
    stepwise = result_of(case, **{"engine.fast_forward": False})

    assert run.requests.tolist() == stepwise.requests.tolist()
    assert run.summary == stepwise.summary


def test_no_client_has_more_requests_than_slots_at_once(case, run):
    loads = [client.load for client in load_experiment(case).workload.parameters.parameters.clients]
    for code, load in enumerate(loads):
        slots = load and (load.concurrency or load.max_in_flight)
        if not slots:
            continue
        name = "abcd"[code]
        of_client = run.requests["tenant"] == run.labels["tenant"].index(name) if name in run.labels["tenant"] else []
        rows = run.requests[of_client]
        rows = rows[(rows["arrival_ns"] >= 0) & (rows["status"] == records.COMPLETED)]
        for begin in rows["arrival_ns"].tolist():
            assert np.sum((rows["arrival_ns"] <= begin) & (rows["completed_ns"] > begin)) <= slots
