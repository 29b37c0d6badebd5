"""Clients that an experiment file lists."""
import numpy as np
import pytest

import simulator
from simulator.config.load import load_experiment
from simulator.domain.records import named_stream, own_stream
from simulator.errors import InputErrors
from simulator.workload.load import load

MS = 1_000_000
EXPERIMENT = """
engine = {num_gpu_blocks = 1000, max_model_len = 4096}
latency = {backend = "linear", base_us = 1000, per_sequence_us = 0, per_prefill_token_us = 0, per_context_token_us = 0}
"""
CONSTANT = """
prompt_tokens = {distribution = "constant", tokens = 10}
output_tokens = {distribution = "constant", tokens = 1}
"""
DRAWN = """
prompt_tokens = {distribution = "uniform", max = 1000}
output_tokens = {distribution = "uniform", max = 100}
"""


@pytest.fixture
def file(tmp_path):
    """Return a function that writes an experiment: keys of [workload], then a text for each client."""
    def write(keys, *clients, lengths=CONSTANT):
        listed = "".join(f"[[workload.clients]]\n{client}\n{lengths}" for client in clients)
        (tmp_path / "e.toml").write_text(f'{EXPERIMENT}[workload]\ntype = "clients"\n{keys}\n{listed}')
        return tmp_path / "e.toml"
    return write


def requests_of(path, seed=1):
    built = load(load_experiment(path).workload, seed)
    return built, built.labels


def test_the_rate_is_shared_out(file):
    # 4/s in shares of 3 to 1, at equal gaps: a each 1/3 s, b each second
    built, labels = requests_of(file(
        "rate_per_s = 4.0\nnum_requests = 5",
        'id = "a"\ntenant = "A"\nrate_share = 3.0\narrival = {process = "constant"}',
        'id = "b"\ntenant = "B"\nrate_share = 1.0\narrival = {process = "constant"}'))

    assert [round(time / MS) for time in built.requests["arrival_ns"].tolist()] == [333, 667, 1000, 1000, 1333]
    assert [labels["tenant"][code] for code in built.demands["tenant"]] == ["A", "A", "A", "B", "A"]
    assert built.request_ids.tolist() == [0, 1, 2, 3, 4]


def test_a_share_of_nothing_sends_nothing(file):
    built, labels = requests_of(file("rate_per_s = 4.0\nnum_requests = 3", 'id = "a"\ntenant = "A"',
                                     'id = "b"\ntenant = "B"\nrate_share = 0.0'))

    assert {labels["tenant"][code] for code in built.demands["tenant"]} == {"A"}


def test_a_client_draws_the_same_whoever_else_there_is(file):
    def lengths(*clients):
        built, labels = requests_of(file("rate_per_s = 5.0\nnum_requests = 200", *clients, lengths=DRAWN))
        own = built.demands["tenant"] == labels["tenant"].index("A")
        return built.requests["prompt_tokens"][own][:50].tolist()

    a, b = 'id = "a"\ntenant = "A"', 'id = "b"\narrival = {process = "gamma", cv = 3.0}'
    assert lengths(a) == lengths(a, b) == lengths(b, a)


def test_fewer_requests_are_the_first_of_more(file):
    texts = ('id = "a"\nrate_share = 5.0', 'id = "b"\narrival = {process = "weibull", cv = 2.0}')
    few, many = (requests_of(file(f"rate_per_s = 5.0\nnum_requests = {n}", *texts, lengths=DRAWN))[0].requests
                 for n in (30, 500))

    assert (few == many[:30]).all()


def test_a_duration_ends_the_arrivals(file):
    texts = ('id = "a"\narrival = {process = "constant"}', 'id = "b"\narrival = {process = "constant"}')
    built, _ = requests_of(file("rate_per_s = 2.0\nduration_s = 2.5", *texts))

    assert len(built) == 4


def test_prompts_of_a_group_begin_alike(file):
    built, _ = requests_of(file("rate_per_s = 3.0\nnum_requests = 3", *(
        f'id = "{name}"\narrival = {{process = "constant"}}\n{group}' for name, group in (
            ("a", 'prefix_group = "g"'), ("b", 'prefix_group = "g"\nprefix_length = 64'), ("c", "")))))

    # the longest they have in common are a's 50 tokens, what a group has by default
    assert built.requests["prompt_tokens"].tolist() == [60, 74, 10]
    assert built.segments.tolist() == [
        (named_stream(1), 50), (own_stream(0), 10), (named_stream(1), 64), (own_stream(1), 10)]


def test_labels_priorities_and_deadlines_are_those_of_the_client(file):
    built, labels = requests_of(file("rate_per_s = 2.0\nnum_requests = 2", (
        'id = "a"\nslo_class = "batch"\nmodel = "m"\nadapter = "l"\npriority = 3\ndeadline_s = 1.5\n'
        'arrival = {process = "constant"}')))

    assert built.demands["priority"].tolist() == [3, 3]
    assert (built.demands["deadline_ns"] - built.requests["arrival_ns"]).tolist() == [1500 * MS] * 2
    assert (labels["slo_class"], labels["model"], labels["adapter"]) == (["batch"], ["m"], ["l"])


def test_clients_have_slots_of_their_own(file):
    # iterations of 1 ms, outputs of 1: a's two slots turn every ms, b's single one every 3 ms, as it thinks 2 ms
    result = simulator.run(file(
        "", 'id = "a"\ntenant = "A"\nload = {mode = "concurrency", concurrency = 2}\nnum_requests = 5',
        'id = "b"\ntenant = "B"\nnum_requests = 3\n'
        'load = {mode = "concurrency", concurrency = 1, think_time_s = 0.002}'))

    of = {name: result.requests["arrival_ns"][result.requests["tenant"] == code] // MS
          for code, name in enumerate(result.labels["tenant"])}
    assert of["A"].tolist() == [0, 0, 1, 1, 2]
    assert of["B"].tolist() == [0, 3, 6]


def test_a_client_may_be_farther_away_than_another(file):
    # the answer at 1 ms is seen and followed 0.5 ms later; that request waits for the iteration from 2 to 3 ms
    loop = "mode = \"concurrency\", concurrency = 1"
    result = simulator.run(file(
        "", f'id = "near"\ntenant = "near"\nload = {{{loop}}}\nnum_requests = 4',
        f'id = "far"\ntenant = "far"\nload = {{{loop}, client_delay_s = 0.0005}}\nnum_requests = 2'))

    of = {name: result.requests["arrival_ns"][result.requests["tenant"] == code].tolist()
          for code, name in enumerate(result.labels["tenant"])}
    assert of == {"near": [0, MS, 2 * MS, 3 * MS], "far": [0, 1_500_000]}


def test_a_closed_client_stands_beside_one_at_a_rate(file):
    result = simulator.run(file(
        "rate_per_s = 1000.0\nnum_requests = 3", 'id = "a"\ntenant = "A"\narrival = {process = "constant"}',
        'id = "b"\ntenant = "B"\nload = {mode = "concurrency", concurrency = 1}\nnum_requests = 2'))

    arrivals = sorted(zip((result.requests["arrival_ns"] // MS).tolist(), result.requests["tenant"].tolist(),
                          strict=True))
    names = result.labels["tenant"]
    assert [(time, names[code]) for time, code in arrivals] == sorted(
        [(0, "B"), (1, "B"), (1, "A"), (2, "A"), (3, "A")], key=lambda each: (each[0], names.index(each[1])))


def test_a_client_has_a_ceiling_of_its_own(file):
    # ready at 0.5, 1.0, 1.5, 2.0 ms, and 1 ms each: the third would come at 2.5 ms, after the end
    result = simulator.run(file(
        "rate_per_s = 2000.0\nduration_s = 0.0021", (
            'id = "a"\narrival = {process = "constant"}\nload = {max_in_flight = 1}')))

    assert (result.requests["arrival_ns"] / MS).tolist() == pytest.approx([0.5, 1.5, -1e-6, -1e-6], abs=1e-3)


def test_without_loads_of_their_own_clients_share_the_slots_of_the_workload(file):
    keys = 'num_requests = 4\nload = {mode = "concurrency", concurrency = 2}'
    result = simulator.run(file(keys, 'id = "a"\narrival = {process = "constant"}', 'id = "b"\nrate_share = 0.0'))

    assert (result.requests["arrival_ns"] // MS).tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize(("keys", "clients", "message"), [
    ("num_requests = 1", [""], "workload.clients[0].id: missing; expected text"),
    ("num_requests = 1", [], "workload.clients: missing"),
    ("num_requests = 1", ['id = "a"', 'id = "a"'], 'workload: clients: two have the id "a"'),
    ("", ['id = "a"'], "workload: give num_requests, duration_s, or both"),
    ("num_requests = 1", ['id = "a"\nrate_share = 0.0'],
     "workload: clients: the rate_share of all together is 0, so that nobody comes"),
    ("", ['id = "a"\nload = {mode = "concurrency", concurrency = 1}'],
     'workload: clients "a": give num_requests of each, or duration_s'),
    ("rate_per_s = 1.0\nduration_s = 1.0", ['id = "a"\nload = {mode = "concurrency", concurrency = 1}'],
     "workload: rate_per_s: no client comes at a rate"),
    ("num_requests = 1", ['id = "a"\nload = {mode = "lanes", lanes = 2}'],
     'workload.clients[0]: load.mode = "lanes": a client has timestamps or concurrency; others are of [workload.load]'),
    ("num_requests = 1", ['id = "a"\nload = {grace_s = 1.0}'],
     "workload.clients[0]: load.grace_s and load.tree_idle_cap_s are of all requests, [workload.load]"),
    ("", ['id = "a"\nnum_requests = 3\nrate_share = 1.0\nload = {mode = "concurrency", concurrency = 1}'],
     "workload.clients[0]: rate_share and arrival are of a client at a rate"),
    ("num_requests = 1", ['id = "a"\nnum_requests = 3'],
     'workload.clients[0]: num_requests is of a client whose own load has mode = "concurrency"'),
    ("num_requests = 1", ['id = "a"\nprefix_length = 3'], "workload.clients[0]: prefix_length takes a prefix_group"),
    ("num_requests = 1", ['id = "a"\narrival = {cv = 2.0}'],
     "workload.clients[0].arrival: cv = 2 is of process gamma or weibull, found poisson"),
])
def test_what_clients_cannot_be_is_refused(file, keys, clients, message):
    with pytest.raises(InputErrors) as error:
        load_experiment(file(keys, *clients))

    assert message in str(error.value)


@pytest.mark.parametrize(("keys", "client", "message"), [
    ("num_requests = 1", 'id = "a"', "workload.rate_per_s: missing"),
    ('load = {mode = "concurrency", concurrency = 1}', 'id = "a"', "give num_requests, duration_s, or both"),
    ('rate_per_s = 1.0\nnum_requests = 1\nload = {mode = "concurrency", concurrency = 1}', 'id = "a"',
     "workload.rate_per_s: [workload.load] says when requests come; leave it out"),
    ('duration_s = 1.0\nload = {mode = "lanes", lanes = 2, recycle = true}', 'id = "a"',
     "workload.num_requests: missing; expected how many come in the closed loop of [workload.load], or duration_s"),
    ("rate_per_s = 1.0\nduration_s = 1e-9", 'id = "a"', "workload.duration_s: no request arrives before 1e-09 s"),
    ("rate_per_s = 1e9\nduration_s = 9e9", 'id = "a"', "requests/s are more than 1000000000 requests"),
    ('num_requests = 1\nload = {mode = "concurrency", concurrency = 1}', 'id = "a"\nload = {max_in_flight = 2}',
     'workload.clients[0].load.mode: expected "concurrency" beside the closed loop of [workload.load]'),
    ('load = {mode = "stages", stages = [{concurrency = 1, num_requests = 2}]}',
     'id = "a"\nnum_requests = 3\nload = {mode = "concurrency", concurrency = 1}',
     'workload.load.mode: "stages" is for all requests, but clients have loads of their own'),
    ('load = {mode = "concurrency", concurrency = 2}',
     'id = "a"\nnum_requests = 3\nload = {mode = "concurrency", concurrency = 1}',
     'workload.load.mode: "concurrency" is for nobody: each client has a load of its own; leave it out')])
def test_what_cannot_be_drawn_is_refused(file, keys, client, message):
    with pytest.raises(InputErrors) as error:
        requests_of(file(keys, client))

    assert message in str(error.value)


def test_a_prompt_of_nothing_is_refused(file):
    empty = """
prompt_tokens = {distribution = "constant", tokens = 0}
output_tokens = {distribution = "zipf", max = 3}
"""
    with pytest.raises(InputErrors, match=r"workload\.clients\[0\]\.prompt_tokens: draws a prompt of 0 tokens"):
        requests_of(file("rate_per_s = 1.0\nnum_requests = 2", 'id = "a"', lengths=empty))

    built, _ = requests_of(file("rate_per_s = 1.0\nnum_requests = 2", 'id = "a"\nprefix_group = "g"', lengths=empty))
    assert built.segments.tolist() == [(0, 50), (0, 50)]
    assert np.all(built.requests["prompt_tokens"] == 50)
