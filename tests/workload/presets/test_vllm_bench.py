"""How `vllm bench serve` sends requests, by its own options; iterations of 1 ms."""
import re

import numpy as np
import pytest

from simulator.domain.load import Load, Warmup
from simulator.errors import InputErrors
from support import presets
from support.presets import arrivals_ms, section

PRESET = 'preset = "vllm_random"\ninput_len = 64\noutput_len = 3\n'


@pytest.fixture
def run(tmp_path):
    return lambda text, preset=PRESET, **keys: presets.run(tmp_path, preset + text, 0, **keys)


def test_e6_gaps_end_at_n_over_the_rate(run):
    by_option = arrivals_ms(run("num_requests = 5\nrequest_rate = 10.0\n"))

    assert by_option == pytest.approx([92.2587, 237.8476, 344.8686, 436.1218, 500], abs=1e-4)
    by_hand = run('num_requests = 5\narrival = {process = "gamma", rate_per_s = 10.0, rescale_to_rate = true}\n')
    assert by_option == arrivals_ms(by_hand)


@pytest.mark.parametrize(("ramp", "expected"), [
    ('"linear"\nramp_up_start_rps = 1.0\nramp_up_end_rps = 5.0', [1, 1.5, 1.8333, 2.0833, 2.2833]),
    ('"exponential"\nramp_up_start_rps = 1.0\nramp_up_end_rps = 4.0', [1, 1.7071, 2.2071, 2.5607, 2.8107])])
def test_e7_a_ramp_goes_by_the_number_of_the_request(run, ramp, expected):
    arrivals = arrivals_ms(run(f"num_requests = 5\nburstiness = inf\nramp_up_strategy = {ramp}\n"))

    assert arrivals == pytest.approx([1e3 * each for each in expected], abs=0.1)


def test_burstiness_is_that_of_the_gaps(run):
    def variation(burstiness):
        gaps = np.diff(arrivals_ms(run(f"num_requests = 3000\nrequest_rate = 1e3\nburstiness = {burstiness}\n")))
        return np.std(gaps) / np.mean(gaps)

    assert variation("4.0") == pytest.approx(0.5, rel=0.05)
    assert variation("inf") == pytest.approx(0.0, abs=1e-6)


def test_a_semaphore_without_a_rate_is_a_closed_loop(run):
    # Outputs of 3: the first two until 3, the next two from 3.001 on.
    result = run("num_requests = 5\nmax_concurrency = 2\n")

    assert arrivals_ms(result) == [0, 0, 3.001, 3.001, 6.002]
    assert result.requests["client_queue_ns"].tolist()[2:] == [3_001_000, 3_001_000, 6_002_000]


def test_beside_a_rate_it_lets_requests_wait_in_order(run):
    result = run("num_requests = 4\nrequest_rate = 1e4\nburstiness = inf\nmax_concurrency = 1\n")

    assert arrivals_ms(result) == pytest.approx([0.1, 3.101, 6.102, 9.103])


def test_warm_ups_are_copies_under_the_same_semaphore(run):
    # Three copies by two slots: 0, 0, 3.001, each but the first in the cache; then the others from 6.002 on, of whom
    # the first is.
    result = run("num_requests = 2\nmax_concurrency = 2\nnum_warmups = 3\n")

    assert arrivals_ms(result) == [6.002, 6.002, 0, 0, 3.001]
    assert result.requests["cached_tokens"].tolist() == [48, 0, 0, 48, 48]     # all but the last block of 16


def test_a_dataset_that_sends_fewer_ends_with_those(run):
    # 5 prefixes of 2: 10 requests of 12, which end at 10 / 100 s.
    repeated = 'preset = "vllm_prefix_repetition"\nnum_prefixes = 5\nprefix_len = 16\nsuffix_len = 16\noutput_len = 1\n'
    result = run("num_requests = 12\nrequest_rate = 100.0\n", preset=repeated)

    assert len(result.requests) == 10
    assert arrivals_ms(result)[-1] == 100.0
    assert any("2 of 12 requests are not sent" in line for line in result.summary["diagnosis"])


@pytest.mark.parametrize(("text", "expected"), [
    ("max_concurrency = 2\n", Load(mode="concurrency", concurrency=2, client_delay_s=1e-6)),
    ("request_rate = inf\nmax_concurrency = 2\n", Load(mode="concurrency", concurrency=2, client_delay_s=1e-6)),
    ("request_rate = 5.0\nmax_concurrency = 2\n", Load(max_in_flight=2, client_delay_s=1e-6)),
    ("request_rate = 5.0\n", Load()),
    ("arrival = {rate_per_s = 5.0}\n", Load()),
    ("arrival = {rate_per_s = 5.0}\nload = {max_in_flight = 2}\n", Load(max_in_flight=2, client_delay_s=1e-6)),
    ("arrival = {rate_per_s = 5.0}\nload = {max_in_flight = 2, client_delay_s = 0.0}\n",
     Load(max_in_flight=2, client_delay_s=0.0)),
    ('load = {mode = "concurrency", concurrency = 3}\n',
     Load(mode="concurrency", concurrency=3, client_delay_s=1e-6))])
def test_options_fill_in_the_load_and_clients_take_their_time(tmp_path, text, expected):
    found = section(tmp_path, f"{PRESET}num_requests = 9\n{text}", 0)

    assert found.load == expected
    assert found.warmup == Warmup()


def test_nobody_waits_with_requests_of_ones_own(tmp_path):
    found = section(tmp_path, 'num_requests = 9\nload = {mode = "concurrency", concurrency = 3}\n')

    assert found.load == Load(mode="concurrency", concurrency=3)
    assert found.load.client_delay_s is None


@pytest.mark.parametrize(("text", "message"), [
    ("request_rate = 1.0\narrival = {rate_per_s = 1.0}\n",
     'preset = "vllm_random" has request_rate, which says when requests come'),
    ("max_concurrency = 2\nload = {max_in_flight = 3}\n",
     'workload.load.max_in_flight: preset = "vllm_random" has 0, found 3'),
    ("num_warmups = 2\nwarmup = {copies_of_first = 3}\n",
     'workload.warmup.copies_of_first: preset = "vllm_random" has 2, found 3'),
    ("ramp_up_start_rps = 2.0\n", "ramp_up_start_rps and ramp_up_end_rps take ramp_up_strategy"),
    ('ramp_up_strategy = "linear"\nramp_up_start_rps = 2.0\n', 'ramp_up_strategy = "linear" takes ramp_up_start_rps'),
    ('ramp_up_strategy = "linear"\nramp_up_start_rps = 2.0\nramp_up_end_rps = 1.0\n', "which is not below"),
    ('ramp_up_strategy = "linear"\nramp_up_start_rps = 1.0\nramp_up_end_rps = 2.0\nrequest_rate = 1.0\n',
     "and no request_rate"),
    ("burstiness = 2.0\n", "burstiness takes a request_rate that is not inf"),
    ("request_rate = 0.0\n", "request_rate: expected a number > 0"),
    ('ramp_up_strategy = "steep"\n', 'ramp_up_strategy: expected one of "exponential", "linear"')])
def test_bad_input(tmp_path, text, message):
    with pytest.raises(InputErrors, match=re.escape(message)):
        section(tmp_path, f"{PRESET}num_requests = 9\n{text}", 0)


def test_the_tool_counts_its_requests_first(tmp_path):
    with pytest.raises(InputErrors, match="num_requests: missing; the tool draws all its requests together"):
        section(tmp_path, f"{PRESET}request_rate = 1.0\nduration_s = 3.0\n", 0)
