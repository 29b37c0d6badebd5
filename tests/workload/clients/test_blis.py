"""Clients of BLIS's workload YAML."""
import builtins
import csv
from dataclasses import dataclass

import numpy as np
import pytest

import simulator
from simulator.core.random_streams import RandomStreams
from simulator.errors import InputErrors, MissingExtra
from simulator.workload.clients.blis import BlisClients, BlisClientsParameters
from simulator.workload.column_options import DEFAULT_OPTIONS
from simulator.workload.limits import MISSING
from support.goldens import GOLDENS

pytest.importorskip("yaml", reason="PyYAML is in the blis extra")
SPECS = sorted(path.parent for path in (GOLDENS / "blis").rglob("spec.yaml")
               if (path.parent / "trace_out.csv").exists())
LENGTHS = """
  input_distribution: {type: constant, params: {value: 100}}
  output_distribution: {type: constant, params: {value: 20}}
"""
COHORT = ("version: '2'\naggregate_rate: 4\nhorizon: 10000000\ncohorts:\n- id: c\n  arrival: {process: constant}"
          f"{LENGTHS}")
RATE = "version: '2'\naggregate_rate: 50\nnum_requests: 6\nclients:\n"
MS = 1_000_000


@dataclass
class Row:
    """A row of a trace that BLIS exported."""

    cells: dict

    def __getattr__(self, name):
        return int(self.cells[name])


@pytest.fixture
def file(tmp_path):
    def write(text):
        (tmp_path / "spec.yaml").write_text(text)
        return str(tmp_path / "spec.yaml")
    return write


def columns_of(path, seed=1, **keys):
    return BlisClients(BlisClientsParameters(path=path, **keys)).columns(RandomStreams(seed), DEFAULT_OPTIONS)


@pytest.mark.skipif(not SPECS, reason="no recorded runs with an exported trace")
@pytest.mark.parametrize("folder", SPECS, ids=lambda folder: folder.name)
def test_a_recorded_workload_of_constant_gaps_and_lengths_is_the_one_that_blis_exported(folder):
    columns = columns_of(str(folder / "spec.yaml"))

    with open(folder / "trace_out.csv", encoding="utf-8", newline="") as lines:
        rows = [Row(row) for row in csv.DictReader(lines)]
    assert (columns.arrival_ns // 1000).tolist() == [row.arrival_time_us for row in rows]
    assert columns.prompt_tokens.tolist() == [row.input_tokens + row.prefix_length for row in rows]
    assert columns.output_tokens.tolist() == [row.output_tokens for row in rows]
    codes, names = columns.labels["slo_class"]
    assert [names[code] for code in codes] == [row.cells["slo_class"] for row in rows]


def seconds(columns, tenant=None):
    times_s = (columns.arrival_ns / 1e9).tolist()
    codes, names = columns.labels["tenant"] if tenant else (np.zeros(len(times_s)), [None])
    return [time for time, code in zip(times_s, codes, strict=True) if code >= 0 and names[int(code)] == tenant]


def spike(name, start_s, population=1):
    """Return a cohort of constant arrivals that is there for two seconds."""
    return (f"- id: {name}\n  tenant_id: {name}\n  population: {population}\n  arrival: {{process: constant}}\n"
            f"  spike: {{start_time_us: {start_s}000000, duration_us: 2000000}}{LENGTHS}")


def test_members_of_a_cohort_share_its_rate_and_drop_what_is_outside_their_windows(file):
    # 4/s for two: each at 0.5, 1.0, .. s; of these the ones from 3 s on and before 5 s
    columns = columns_of(file(f"aggregate_rate: 4\nhorizon: 10000000\ncohorts:\n{spike('c', 3, population=2)}"))

    assert seconds(columns) == [3.0, 3.0, 3.5, 3.5, 4.0, 4.0, 4.5, 4.5]


def test_the_rate_is_divided_among_those_whose_windows_overlap(file):
    # a and b overlap for a second, so that each has 2/s; c is alone, and has 4/s
    cohorts = spike("a", 0) + spike("b", 1) + spike("c", 6)
    columns = columns_of(file(f"aggregate_rate: 4\nnum_requests: 99\ncohorts:\n{cohorts}"))

    assert seconds(columns, "a") == [0.5, 1.0, 1.5]
    assert seconds(columns, "b") == [1.0, 1.5, 2.0, 2.5]
    assert seconds(columns, "c") == [6 + k / 4 for k in range(8)]
    # who is always there overlaps with all: c has a half, and d a quarter
    text = f"aggregate_rate: 4\nhorizon: 9000000\nclients:\n- id: d\n  arrival: {{process: constant}}{LENGTHS}"
    assert seconds(columns_of(file(f"{text}cohorts:\n{cohorts}")), "c") == [6.0, 6.5, 7.0, 7.5]


def test_a_day_a_spike_and_a_drain_add_up(file):
    # 4/s: in the first 900 s of the first hour, the first 946.0001 s of the second, and 100 s of the third
    text = COHORT.replace("horizon: 10000000", "horizon: 7300000000") + "  population: 1\n"
    day = text + "  diurnal: {peak_hour: 12, peak_to_trough_ratio: 4}\n"

    times_s = np.array(seconds(columns_of(file(day))))
    assert len(times_s) == 4 * 900 - 1 + 4 * 946 + 1 + 4 * 100
    assert times_s[3598] == 899.75 and times_s[3599] == 3600.0
    # 10 s of a spike are in the first hour's, 10 s after it
    spiked = np.array(seconds(columns_of(file(f"{day}  spike: {{start_time_us: 890000000, duration_us: 20000000}}\n"))))
    assert len(spiked) == len(times_s) + 40
    # all until 2 s; of each second from then on 1, 0.9 .. 0.1
    drain = text + "  drain: {start_time_us: 2000000, ramp_duration_us: 10000000}\n"
    assert seconds(columns_of(file(drain))) == [
        *np.arange(0.25, 3.9, 0.25), *(4 + np.arange(4) / 4), *(5 + np.arange(3) / 4), *(6 + np.arange(3) / 4),
        *(7 + np.arange(2) / 4), *(8 + np.arange(2) / 4), *(9 + np.arange(2) / 4), 10.0, 11.0]


@pytest.mark.parametrize(("sharing", "groups"), [("shared", 1), ("per_member", 3)])
def test_members_share_a_prefix_or_have_one_each(file, sharing, groups):
    keys = f"  population: 3\n  prefix_group: g\n  prefix_length: 32\n  prefix_sharing: {sharing}\n"
    prompts = columns_of(file(COHORT + keys)).prompts

    assert len(set(prompts.streams[::2].tolist())) == groups
    assert set(prompts.num_tokens[::2].tolist()) == {32}


def test_gaps_are_whole_microseconds(file):
    # 3/s: a gap of 333,333.3 us is truncated, each time
    columns = columns_of(file(f"aggregate_rate: 3\nnum_requests: 3\nclients:\n- id: a\n  arrival: {{process: constant}}"
                              f"{LENGTHS}"))

    assert columns.arrival_ns.tolist() == [333_333_000, 666_666_000, 999_999_000]


def test_users_begin_spread_over_the_time_to_think_and_think_after_each_answer(file, tmp_path):
    # iterations of 1 ms, outputs of 20 tokens, 3 users who think 10 ms: the first at 0, 3.333, 6.666 ms
    path = file(f"num_requests: 5\nclients:\n- id: u\n  concurrency: 3\n  think_time_us: 10000{LENGTHS}")
    (tmp_path / "e.toml").write_text(
        'engine = {num_gpu_blocks = 100, max_model_len = 400, async_scheduling = false}\n'
        'latency = {backend = "linear", base_us = 1000, '
        'per_sequence_us = 0, per_prefill_token_us = 0, per_context_token_us = 0}\n'
        f'workload = {{type = "clients", format = "blis", path = "{path}"}}\n')

    requests = simulator.run(tmp_path / "e.toml").requests
    assert requests["arrival_ns"].tolist() == [0, 3_333_000, 6_666_000, 30 * MS, 34 * MS]


def test_users_whom_a_horizon_ends_send_as_many_as_they_can(file, tmp_path):
    # iterations of 1 ms, outputs of 20 tokens: two users without a thought each 20 ms, one who thinks 30 ms each 50 ms
    path = file(f"horizon: 100000\nclients:\n- id: u\n  concurrency: 2{LENGTHS}- id: v\n  concurrency: 1\n"
                f"  think_time_us: 30000{LENGTHS}")
    (tmp_path / "e.toml").write_text(
        'engine = {num_gpu_blocks = 100, max_model_len = 400, async_scheduling = false}\n'
        'latency = {backend = "linear", base_us = 1000, '
        'per_sequence_us = 0, per_prefill_token_us = 0, per_context_token_us = 0}\n'
        f'workload = {{type = "clients", format = "blis", path = "{path}"}}\n')

    arrivals_ms = simulator.run(tmp_path / "e.toml").requests["arrival_ns"] / MS
    assert sorted(arrivals_ms) == sorted([0, 0, 20, 20, 40, 40, 60, 60, 80, 80, 0, 50])


@pytest.mark.parametrize(("is_upstream", "second_ms"), [(False, 5.0), (True, 3.0)])
def test_as_blis_users_do_not_wait_for_what_the_host_does_with_their_tokens(file, tmp_path, is_upstream, second_ms):
    # two iterations of 1 ms; with 0.5 ms for each token, added up, and 1 ms at the end, 4 ms; and 1 ms to think
    text = f"num_requests: 2\nclients:\n- id: u\n  concurrency: 1\n  think_time_us: 1000{LENGTHS}"
    path = file(text.replace("20", "2"))
    (tmp_path / "e.toml").write_text(
        'engine = {num_gpu_blocks = 100, max_model_len = 400, async_scheduling = false}\n'
        'latency = {backend = "linear", base_us = 1000, per_sequence_us = 0, per_prefill_token_us = 0, '
        'per_context_token_us = 0, '
        'host = {output_token_us = 500, output_token_accumulates = true, completion_us = 1000}}\n'
        f'workload = {{type = "clients", format = "blis", path = "{path}", '
        f'upstream_compat = {str(is_upstream).lower()}}}\n')

    assert (simulator.run(tmp_path / "e.toml").requests["arrival_ns"] / MS).tolist() == [0.0, second_ms]


def test_users_give_up_after_five_minutes_unless_they_say_otherwise(file):
    def timeout_ns(keys):
        return columns_of(file(f"num_requests: 2\nclients:\n- id: u\n{keys}{LENGTHS}")).timeout_ns[0]

    assert timeout_ns("  concurrency: 3\n") == 300e9
    assert timeout_ns("  concurrency: 3\n  timeout: 0\n") == MISSING
    assert timeout_ns("  concurrency: 3\n  timeout: 7\n") == 7000


def test_urgency_follows_from_the_class_and_old_names_are_known(file):
    clients = "".join(f"- id: {name}\n  slo_class: {name}\n  arrival: {{process: constant}}{LENGTHS}"
                      for name in ("realtime", "interactive", "batch"))
    columns = columns_of(file(f"version: '1'\naggregate_rate: 3\nnum_requests: 3\nclients:\n{clients}"))

    assert columns.labels["slo_class"][1] == ["critical", "standard", "batch"]
    assert columns.priority.tolist() == [0, 1, 5]       # 4 - (4, 3, -1): the lowest goes first


@pytest.mark.parametrize(("given", "mean", "spread"), [
    ("{type: gaussian, params: {mean: 300, std_dev: 20, min: 2, max: 400}}", 300, 20),
    ("{type: exponential, params: {mean: 300}}", 300, 300),
    ("{type: lognormal, params: {mu: 5, sigma: 0.5}}", np.exp(5.125), np.exp(5.125) * np.sqrt(np.expm1(0.25))),
    ("{type: empirical, params: {'100': 1, '200': 3}}", 175, 43.3),
    ("{type: pareto_lognormal, params: {alpha: 9, xm: 80, mu: 5, sigma: 0.5, mix_weight: 1.0}}", 90, 11.3),
    ("{type: pareto_lognormal, params: {alpha: 9, xm: 80, mu: 5, sigma: 0.5, mix_weight: 0.0}}", np.exp(5.125), 89.6)])
def test_lengths_have_the_moments_that_they_should(file, given, mean, spread):
    lengths = f"\n  input_distribution: {given}\n  output_distribution: {{type: constant, params: {{value: 1}}}}\n"
    drawn = columns_of(file(f"aggregate_rate: 9\nnum_requests: 20000\nclients:\n- id: a{lengths}")).prompt_tokens

    assert drawn.mean() == pytest.approx(mean, rel=0.03)
    assert drawn.std() == pytest.approx(spread, rel=0.06)


def test_a_horizon_bounds_requests(file):
    columns = columns_of(file("aggregate_rate: 50\nhorizon: 100000\nclients:\n- id: a\n"
                              f"  arrival: {{process: constant}}{LENGTHS}"))

    assert len(columns) == 4 and columns.duration_s == 0.1      # at 20, 40, 60, 80 ms; not at 100


def test_what_is_not_used_is_said(file):
    columns = columns_of(file(f"goodput_slo_targets: {{critical: {{ttft_ms: 1}}}}\n{RATE}- id: a\n"
                              f"  network: {{rtt_ms: 3}}{LENGTHS}"))

    assert [note.split(" ")[0] for note in columns.notes] == ["Random", "goodput_slo_targets", "network"]


@pytest.mark.parametrize(("text", "message"), [
    (f"{RATE}- id: a\n  lifecycle: {{windows: []}}{LENGTHS}", "clients[0].lifecycle: clients that come and go"),
    (f"{RATE}- id: a\n  reasoning: {{multi_turn: {{max_rounds: 3}}}}{LENGTHS}", "clients[0].reasoning: sessions"),
    (f"{RATE}- id: a\n  multimodal: {{image_count_distribution: 1}}{LENGTHS}", "clients[0].multimodal: tokens of"),
    (f"{RATE}- id: a{LENGTHS}cohorts: [{{id: c}}]\n", "cohorts[0]: object missing required field"),
    (f"{COHORT}  population: 0\n", "cohorts[0].population: expected `int` >= 1"),
    (f"{COHORT}  population: 2\n  concurrency: 3\n", "cohorts[0]: object contains unknown field `concurrency`"),
    (f"{COHORT}  population: 2\n  diurnal: {{peak_hour: 24, peak_to_trough_ratio: 2}}\n", "cohorts[0].diurnal.peak_h"),
    (f"{COHORT}  population: 2\n  spike: {{duration_us: 5, trace_rate: 2}}\n", "cohorts[0].spike.trace_rate: rates of"),
    (f"{COHORT}  population: 2\n  drain: {{start_time_us: 5}}\n", "missing required field `ramp_duration_us`"),
    (f"{COHORT}  population: 2\n  prefix_sharing: shared\n", "cohorts[0].prefix_sharing: it takes a prefix_group"),
    (f"{COHORT}  population: 2\n  reasoning: {{multi_turn: {{max_rounds: 3}}}}\n", "cohorts[0].reasoning: sessions"),
    (f"{COHORT}  population: 2\n- id: c\n  population: 1{LENGTHS}", 'clients: two have the id "c"'),
    ("num_requests: 1\nservegen_data: {path: x}\n", "servegen_data: ServeGen's folders are read by format"),
    (f"{RATE}- id: a\n  frobnicate: 1{LENGTHS}", "clients[0]: object contains unknown field `frobnicate`"),
    (f"frobnicate: 1\n{RATE}- id: a{LENGTHS}", "object contains unknown field `frobnicate`"),
    (f"{RATE}- id: a\n  arrival: {{process: burst}}{LENGTHS}", "clients[0].arrival.process: invalid enum value"),
    (f"{RATE}- id: a\n  arrival: {{process: gamma, shape: 2}}{LENGTHS}", "clients[0].arrival: shape and scale"),
    (f"{RATE}- id: a\n  arrival: {{cv: 2}}{LENGTHS}", "clients[0].arrival.cv: it is of gamma"),
    (f"{RATE}- id: a\n  rate_fraction: 1\n  concurrency: 2{LENGTHS}", "clients[0]: expected rate_fraction or"),
    (f"{RATE}- id: a\n  think_time_us: 1{LENGTHS}", "clients[0].think_time_us: it takes concurrency"),
    (f"{RATE}- id: a{LENGTHS}- id: a{LENGTHS}", 'clients: two have the id "a"'),
    (f"{RATE}- id: a\n  slo_class: batch{LENGTHS}- id: b{LENGTHS}", "clients: expected all with a slo_class"),
    (f"num_requests: 3\nclients:\n- id: a{LENGTHS}", "aggregate_rate: expected more than 0"),
    (f"aggregate_rate: 3\nclients:\n- id: a{LENGTHS}", "num_requests: expected more than 0, or a horizon"),
    (f"{RATE}- id: a\n  concurrency: 2{LENGTHS}- id: b{LENGTHS}", "num_requests: expected none, but a horizon"),
    ("num_requests: 1\n", "clients: expected one or more"),
    ("a: [1\n", "spec.yaml:2: no YAML"),
    ("seed: 1\nclients: []\nseed: 2\n", 'spec.yaml:3: the key "seed" stands there twice'),
])
def test_what_the_file_cannot_say_is_told_by_key(file, text, message):
    with pytest.raises(InputErrors) as error:
        columns_of(file(text))
    assert message in str(error.value)


@pytest.mark.parametrize(("given", "message"), [
    ("{type: gaussian, params: {mean: 3, min: 1, max: 4, sd: 1}}",
     "gaussian takes mean, std_dev, min, max; missing std_dev; unknown sd"),
    ("{type: empirical, params: {a: 1}}", "empirical takes"), ("{type: empirical}", "empirical takes"),
    ("{type: constant, params: {value: -1}}", "expected numbers from 0"),
    ("{type: constant, params: {value: 1}, file: x}", "files of lengths are not read"),
    ("{type: exponential, params: {mean: 3, min: 9, max: 4}}", "min 9 is above max 4")])
def test_lengths_that_cannot_be_are_told_by_key(file, given, message):
    text = (f"{RATE}- id: a\n  input_distribution: {given}\n"
            "  output_distribution: {type: constant, params: {value: 1}}\n")

    with pytest.raises(InputErrors, match=r"clients\[0\]\.input_distribution") as error:
        columns_of(file(text))
    assert message in str(error.value)


def test_all_faults_are_told_at_once(file):
    with pytest.raises(InputErrors) as error:
        columns_of(file("num_requests: 3\nclients:\n- id: a\n- id: b\n  lifecycle: {x: 1}" + LENGTHS))

    assert [fault.split(": ", 1)[1].split(":")[0] for fault in error.value.faults] == [
        "clients[0]", "clients[1].lifecycle", "aggregate_rate"]


def test_without_the_package_it_says_how_to_get_it(file, monkeypatch):
    def without(name, *rest):
        if name == "yaml":
            raise ImportError(name)
        return genuine(name, *rest)

    genuine = builtins.__import__
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtra, match=r"needs PyYAML: install it with pip install 'simulator\[blis\]'"):
        columns_of(file("clients: []"))
