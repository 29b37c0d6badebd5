"""What fits into no memory, or comes too often, is refused with the arithmetic."""
import resource

import pytest

from simulator.assembly import assemble, budget
from simulator.config.load import load_experiment
from simulator.errors import InputErrors

TEXT = """
[engine]
max_model_len = 512
num_gpu_blocks = 100
[latency]
backend = "linear"
[workload]
type = "synthetic"
num_requests = 5
arrival = {process = "constant", rate_per_s = 1.0}
prompt_tokens = {distribution = "constant", tokens = 20}
output_tokens = {distribution = "constant", tokens = 5}
"""


@pytest.fixture
def told(tmp_path, monkeypatch):
    """Return what an experiment with overrides is refused with on a machine of 1 GB; "": it is taken."""
    monkeypatch.setattr(budget, "memory_bytes", lambda: 1e9)

    def prepare(*overrides, text=TEXT):
        (tmp_path / "a.toml").write_text(text)
        try:
            assemble.prepare(load_experiment(tmp_path / "a.toml", overrides))
        except InputErrors as errors:
            return str(errors)
        return ""

    return prepare


def test_more_requests_than_memory_holds_are_refused(told):
    # 190 bytes each: 10 million are 1.9 GB
    assert told("workload.num_requests=10000000") == (
        "workload.num_requests: 10000000 requests of at least 190 bytes need 1.9 GB; this process may use 1.0 GB")


def test_duration_with_more_requests_than_memory_holds_is_refused(told):
    # 1e4 s at 1e4 requests/s: 100 million of them are 19 GB
    text = TEXT.replace("num_requests = 5", "duration_s = 1e4").replace("rate_per_s = 1.0", "rate_per_s = 1e4")
    assert told(text=text) == (
        "workload.duration_s: 100000000 requests of at least 190 bytes need 19.0 GB; this process may use 1.0 GB")


def test_changing_rate_with_more_requests_than_memory_holds_is_refused(told):
    # 1e4 s at 1e4 requests/s, after as long without any
    text = TEXT.replace("num_requests = 5", "duration_s = 2e4").replace(
        ', rate_per_s = 1.0}', '}\nrate = {kind = "piecewise", times_s = [0.0, 1e4], rates_per_s = [0.0, 1e4]}')
    assert told(text=text) == (
        "workload.duration_s: 100000000 requests of at least 190 bytes need 19.0 GB; this process may use 1.0 GB")


def test_the_least_of_a_number_and_a_duration_counts(told):
    # 9 s at 1 request/s
    assert told("workload.num_requests=10000000", "workload.duration_s=9.0") == ""


SESSIONS = TEXT[:TEXT.index("[workload]")] + """
[workload]
type = "sessions"
num_sessions = 1_000_000
arrival = {process = "constant", rate_per_s = 1.0}
[workload.sessions]
rounds = {distribution = "constant", tokens = 4}
new_tokens = {distribution = "constant", tokens = 20}
output_tokens = {distribution = "constant", tokens = 5}
"""


def test_each_turn_of_a_session_counts_with_its_history(told):
    # 190 + 170 + 3 x 50 bytes; 518 were measured
    assert told(text=SESSIONS) == (
        "workload.num_sessions: 4000000 requests of at least 510 bytes need 2.0 GB; this process may use 1.0 GB")


def test_failures_keep_the_way_of_each_request(told):
    # 190 + 150 bytes
    assert told("workload.num_requests=10000000", "failures=[{kind='stop', at_s=1.0}]") == (
        "workload.num_requests: 10000000 requests of at least 340 bytes need 3.4 GB; this process may use 1.0 GB")


CLIENTS = TEXT.replace('type = "synthetic"\nnum_requests = 5\narrival', '''type = "clients"
rate_per_s = 1e4
duration_s = 1e4
cohorts = [{name = "c", client = "b", population = 3, leave_s = 0.01}]
[[workload.clients]]
id = "a"
prompt_tokens = {distribution = "constant", tokens = 20}
output_tokens = {distribution = "constant", tokens = 5}
[[workload.clients]]
id = "b"
arrival''').replace(", rate_per_s = 1.0", "")


def test_clients_that_do_not_leave_count_and_cohorts_that_do_are_not_counted(told):
    # 1e4 s at the half of 1e4 requests/s; the other half is there for 10 ms
    assert told(text=CLIENTS) == (
        "workload.duration_s: 50000000 requests of at least 190 bytes need 9.5 GB; this process may use 1.0 GB")
    assert told(text=CLIENTS.replace('id = "a"', 'id = "a"\nrate_share = 0.0')) == ""


def test_breakdowns_by_tenant_count(told):
    # 190 + 140 bytes
    assert told(text=CLIENTS.replace('id = "a"', 'id = "a"\ntenant = "t"')) == (
        "workload.duration_s: 50000000 requests of at least 330 bytes need 16.5 GB; this process may use 1.0 GB")


def test_more_replicas_than_memory_holds_are_refused(told):
    # 2.6 kB each: 1,000,000 are 2.6 GB
    assert told("topology.replicas=1000000") == (
        "topology.replicas: 1000000 replicas of at least 2600 bytes need 2.6 GB; this process may use 1.0 GB")


@pytest.mark.parametrize(("override", "message"), [
    # five requests: the last comes after 5 s
    ("output.replica_samples_s=1e-9", "output.replica_samples_s: 5e+09 rows"),
    ("failures=[{kind='stop', mtbf_s=1e-8, mttr_s=1e-8}]", "failures[0].mtbf_s: 5e+08 failures and repairs"),
    ("cluster.rescheduling={interval_s=1e-6, bandwidth_gb_per_s=1, kv_bytes_per_token=1}", ""),
    ("output.replica_samples_s=0.001", "")])
def test_what_comes_too_often_is_refused_with_the_estimate(told, override, message):
    said = told(override)
    why = " until the last request arrives, after 5 s; at most 1e+08 are possible" if message else ""
    assert said == message + why


def test_memory_is_what_the_machine_its_group_and_its_limits_leave():
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (2**40 if hard == resource.RLIM_INFINITY else min(2**40, hard), hard))
    try:
        assert 0 < budget.memory_bytes() <= 2**40
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
