"""Clients with random habits on random clusters: runs of iterations at once or one by one, and slots of each client."""
from random import Random

import numpy as np
import pytest

import simulator
from invariants.test_whole_cluster import experiment_of
from simulator.config.load import load_experiment
from simulator.domain import records
from simulator.errors import InputErrors
from simulator.workload.load import load
from simulator.workload.open_ended import Enough

LENGTHS = ('{distribution = "uniform", min = 3, max = 90}', '{distribution = "constant", tokens = 16}')
OUTPUTS = ('{distribution = "uniform", min = 0, max = 25}', '{distribution = "constant", tokens = 3}')
THINKING = ("0.0", "0.012", '{distribution = "exponential", mean = 0.02}')


def clients_of(rng):
    """Return a random [workload] of clients, and cohorts of some, as TOML."""
    names = "abcd"[:rng.randint(1, 4)]
    clients = [client_of(rng, name) for name in names]
    cohorts = [cohort_of(rng, name, client) for name, client in zip(names, clients, strict=True) if rng.random() < 0.4]
    is_open = any("concurrency" not in client for client in clients)
    rate_per_s = 300.0 if cohorts else rng.choice([40.0, 300.0])
    rates = f"rate_per_s = {rate_per_s}\nnum_requests = {rng.randint(5, 40)}\n" if is_open else ""
    load = f"load = {{max_in_flight = {rng.randint(1, 4)}}}\n" if rng.random() < 0.3 and not cohorts else ""
    duration_s = rng.choice([0.2, 5.0]) if all("num_requests" in client for client in clients) else 0.2
    return f'[workload]\ntype = "clients"\nduration_s = {duration_s}\n{rates}{load}' + "".join(clients + cohorts)


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
    number = f"num_requests = {rng.randint(1, 20)}\n" if rng.random() < 0.6 else ""
    return (f'{common}{number}load = {{mode = "concurrency", '
            f"concurrency = {rng.randint(1, 3)}, think_time_s = {rng.choice(THINKING)}, "
            f"ramp_up_s = {rng.choice([0.0, 0.03])}, {delay}}}\n")


def cohort_of(rng, name, client):
    """Return a random cohort of a client as TOML."""
    windows = ["", *(f'window = "square"\n{shape}\n' for shape in (
        "diurnal = {period_s = 0.06, peak_hour = 0.0}", "spike = {at_s = 0.01, duration_s = 0.05}",
        "drain = {at_s = 0.02, duration_s = 0.08}"))]
    if "concurrency" not in client:
        windows.append('window = "thin"\ndiurnal = {period_s = 0.06, peak_hour = 0.0, peak_to_trough = 9.0}\n')
    return (f'[[workload.cohorts]]\nname = "of {name}"\nclient = "{name}"\npopulation = {rng.randint(1, 4)}\n'
            f"join_s = {rng.choice([0.0, 0.02])}\njoin_spread_s = {rng.choice([0.0, 0.04])}\n"
            f"leave_s = {rng.choice([0.07, 0.15, 'inf'])}\n{rng.choice(windows)}")


def case_of(seed, folder):
    rng = Random(seed)
    cluster = experiment_of(rng).replace('workload = {type = "trace", path = "requests.csv"}\n', "")
    (folder / "experiment.toml").write_text(cluster + clients_of(rng))
    return folder / "experiment.toml"


def result_of(experiment, **overrides):
    return simulator.run(load_experiment(experiment, overrides))


@pytest.fixture(scope="module", params=range(60))
def case(request, tmp_path_factory):
    return case_of(request.param, tmp_path_factory.mktemp("clients"))


@pytest.fixture(scope="module")
def run(case):
    try:
        return result_of(case)
    except InputErrors as refused:          # clients have no delay, and their requests are refused at once
        if "give client_delay_s" not in str(refused):
            raise
        case.write_text(case.read_text().replace("client_delay_s = 0.0}", "client_delay_s = 0.0004}"))
        return result_of(case)


def test_steps_and_runs_of_iterations_agree(case, run):
    stepwise = result_of(case, **{"engine.fast_forward": False})

    assert run.requests.tolist() == stepwise.requests.tolist()
    assert run.summary == stepwise.summary


def test_no_client_has_more_requests_than_slots_at_once(case, run):
    listed = load_experiment(case).workload.parameters.parameters
    for client in listed.clients:
        slots = client.load and (client.load.concurrency or client.load.max_in_flight)
        if not slots:
            continue
        name = client.id
        slots *= sum(cohort.population for cohort in listed.cohorts if cohort.client == name) or 1
        of_client = run.requests["tenant"] == run.labels["tenant"].index(name) if name in run.labels["tenant"] else []
        rows = run.requests[of_client]
        rows = rows[(rows["arrival_ns"] >= 0) & (rows["status"] == records.COMPLETED)]
        for begin in rows["arrival_ns"].tolist():
            assert np.sum((rows["arrival_ns"] <= begin) & (rows["completed_ns"] > begin)) <= slots


def test_nobody_sends_when_all_members_of_its_cohort_are_away(case, run):
    listed = load_experiment(case).workload.parameters.parameters
    for cohort in listed.cohorts:
        if cohort.client not in run.labels["tenant"]:
            continue
        rows = run.requests[run.requests["tenant"] == run.labels["tenant"].index(cohort.client)]
        times_ns = rows["arrival_ns"][rows["arrival_ns"] >= 0]
        stays_ns = np.concatenate([each.stays_ns(5.0) for each in cohort.presences()]) if (
            cohort.window != "thin") else np.array([[0, cohort.leave_s * 1e9]])
        load = next(client.load for client in listed.clients if client.id == cohort.client)
        if load is not None and load.max_in_flight:         # who came in time may wait until the member leaves
            stays_ns[:, 1] = min(cohort.leave_s * 1e9, 9e18)
        slack_ns = load is None or not load.concurrency         # an arrival may be at the very end of a stay
        assert all(np.any((stays_ns[:, 0] <= time) & (time < stays_ns[:, 1] + slack_ns)) for time in times_ns.tolist())


def test_a_run_that_counts_its_requests_is_one_that_is_given_enough(case, run):
    section = load_experiment(case)
    built = simulator.run(section, {}, workload=load(section.workload, section.seed, Enough(2000)))
    used, given = (result.requests[result.requests["arrival_ns"] >= 0] for result in (run, built))

    assert used.tolist() == given.tolist()
