"""ServeGen's clients, on folders written here and, where they are at hand, on published ones."""
import json

import numpy as np
import pytest

from simulator.config.load import load_experiment
from simulator.core.random_streams import RandomStreams
from simulator.errors import InputErrors
from simulator.workload.clients.servegen import (
    ServeGen,
    ServeGenParameters,
    Span,
    arrivals_in_window,
    lengths_of,
    target_rates,
)
from simulator.workload.clients.servegen_files import Dataset, Trace, Window
from simulator.workload.column_options import DEFAULT_OPTIONS
from support.goldens import GOLDENS

PUBLISHED = GOLDENS.parent / "data/workloads/servegen"
LANGUAGE = {"input_tokens": "{10: 1.0}", "output_tokens": "{2: 0.5, 4: 0.5}"}
EVEN = 1e20                     # of gamma: gaps so alike that they are constant to the microsecond


class Fixed:
    """Gives numbers that are known, in place of a generator."""

    def __init__(self, *numbers):
        self.numbers = numbers

    def random(self, count):
        assert count == len(self.numbers)
        return np.array(self.numbers)


@pytest.fixture
def folder(tmp_path):
    """Return a function that writes clients: number -> (rows of the trace, dataset or None)."""
    def write(clients):
        for number, (rows, dataset) in clients.items():
            (tmp_path / f"chunk-{number}-trace.csv").write_text("".join(f"{row}\n" for row in rows))
            if dataset is not None:
                (tmp_path / f"chunk-{number}-dataset.json").write_text(json.dumps(dataset))
        return str(tmp_path)
    return write


def columns_of(path, seed=1, **span):
    given = ServeGenParameters(path=str(path), servegen=Span(**span))
    return ServeGen(given).columns(RandomStreams(seed), DEFAULT_OPTIONS)


def in_seconds(columns, tenant):
    codes, names = columns.labels["tenant"]
    return (columns.arrival_ns[codes == names.index(tenant)] / 1e9).round(6).tolist()


def test_rates_are_parts_of_a_target_and_the_last_arrival_is_not_kept(folder):
    # V1: rates 1 and 3 of a target of 8/s are 2 and 6/s; 20 and 60 gaps in 10 s, 19 and 59 arrivals
    trace = [[f"{start},{rate},1,Gamma,{EVEN},9" for start in (0, 10)] for rate in (1, 3)]
    columns = columns_of(folder({k: (trace[k], {"0": LANGUAGE}) for k in (0, 1)}),
                         duration_s=10.0, rate="constant", rate_per_s=8.0)

    assert in_seconds(columns, "chunk-0") == [0.5 * k for k in range(1, 20)]
    assert len(in_seconds(columns, "chunk-1")) == 59
    assert columns.request_ids is None and np.all(np.diff(columns.arrival_ns) >= 0)


def test_one_number_chooses_all_lengths_of_a_request(folder, tmp_path):
    # V2
    folder({0: (["0,1,1,Gamma,1,1"], {"0": {"input_tokens": "{0: 0, 1: 0, 2: 0.25, 3: 0.5, 4: 0.25}",
                                            "output_tokens": "{0: 0, 1: 0.5, 2: 0, 3: 0.5}"}})})
    dataset = Dataset(tmp_path / "chunk-0-dataset.json")

    drawn = lengths_of(dataset, 0.0, 5, "comonotone", Fixed(0.1, 0.25, 0.3, 0.6, 0.9), None)

    assert list(zip(*(each.tolist() for each in drawn), strict=True)) == [(2, 1), (2, 1), (3, 1), (3, 3), (4, 3)]


@pytest.mark.skipif(not PUBLISHED.exists(), reason=f"no data under {PUBLISHED}")
def test_a_published_client_alone():
    # V3: 0.07/s over 600 s are 42.00000000000001 in doubles: 43 gaps, 42 arrivals
    trace = Trace(PUBLISHED / "reason/chunk-63-trace.csv")

    assert sum(bool(trace.window(600.0 * i).pattern) for i in range(144)) == 48
    columns = columns_of(PUBLISHED / "reason", clients=(63,), duration_s=600.0)
    assert len(columns) == 42
    assert columns.notes[0].startswith("reason_ratio of the datasets is not used")
    assert columns.prompt_tokens.min() >= 3829 and columns.prompt_tokens.max() <= 4155


@pytest.mark.skipif(not PUBLISHED.exists(), reason=f"no data under {PUBLISHED}")
@pytest.mark.parametrize("category", ["reason", "multimodal", "language"])
def test_published_folders_are_read(category):
    keys = {"missing_dataset": "drop"} | ({"start_s": 302400.0} if category == "language" else {})
    columns = columns_of(PUBLISHED / category, duration_s=21600.0, **keys)

    again = columns_of(PUBLISHED / category, duration_s=21600.0, **keys)
    assert len(columns) > 50 and columns.prompt_tokens.min() >= 1
    assert (columns.arrival_ns == again.arrival_ns).all() and (columns.prompt_tokens == again.prompt_tokens).all()
    assert columns.arrival_ns[-1] < 21600e9


def test_every_window_has_the_arrivals_that_its_rate_says():
    generator = RandomStreams(3).generator("x")
    for pattern in ("Gamma", "Weibull"):
        times = arrivals_in_window(Window(0.1, pattern, 0.7), 2.005, 100.0, generator)
        assert len(times) == 200 and np.all(np.diff(times) >= 0) and times[0] >= 0 and times[-1] < 100
    assert len(arrivals_in_window(Window(5.0, "", 1.0), 5.0, 100.0, generator)) == 0
    assert len(arrivals_in_window(Window(0.0, "Gamma", 1.0), 0.0, 100.0, generator)) == 0


@pytest.mark.parametrize(("span", "expected"), [
    ({}, [[1, 2], [3, 2]]),
    ({"rate_scale": 0.5}, [[0.5, 1], [1.5, 1]]),
    ({"rate": "constant", "rate_per_s": 8.0}, [[2, 4], [6, 4]]),
    ({"rate": "bounded", "max_rate_per_s": 2.0}, [[0.5, 1], [1.5, 1]]),
    ({"rate": "bounded", "max_rate_per_s": 9.0}, [[1, 2], [3, 2]])])
def test_targets(span, expected):
    assert target_rates(Span(**span), np.array([[1.0, 2.0], [3.0, 2.0]])).tolist() == expected


def test_a_span_counts_from_its_beginning(folder):
    rows = [f"{start},0.01,1,Gamma,{EVEN},1" for start in (0, 600, 1200)]
    path = folder({7: (rows, {"0": LANGUAGE})})

    # 0.01/s over 600 s: six gaps of 100 s
    assert in_seconds(columns_of(path, start_s=600.0, duration_s=1200.0), "chunk-7") == [
        100, 200, 300, 400, 500, 700, 800, 900, 1000, 1100]


def test_lengths_are_those_of_the_latest_window_that_has_some(folder):
    rows = [f"{start},0.1,1,Gamma,1,1" for start in (0, 600, 1200)]
    dataset = {"0": LANGUAGE, "600": {"input_tokens": "{}", "output_tokens": "{}"},
               "1200": {"input_tokens": "{77: 1.0}", "output_tokens": "{1: 1.0}"}}

    columns = columns_of(folder({0: (rows, dataset)}), duration_s=1800.0)
    assert {(int(time // 1200e9), prompt) for time, prompt in zip(
        columns.arrival_ns.tolist(), columns.prompt_tokens.tolist(), strict=True)} == {(0, 10), (1, 77)}


def test_each_picture_has_tokens_of_its_own(folder, tmp_path):
    folder({0: (["0,1,1,Gamma,1,1"], {"0": {
        "text_tokens": "{5: 1.0}", "image_count": "{0: 0.5, 2: 0.5}", "image_tokens": "{100: 0.5, 1000: 0.5}",
        "audio_count": "{0: 1.0}", "audio_tokens": "{0: 1.0}", "output_tokens": "{1: 1.0}"}})})
    dataset = Dataset(tmp_path / "chunk-0-dataset.json")

    class Items:                # the pictures; nobody hears anything
        def __init__(self):
            self.left = [[0.2, 0.9, 0.6, 0.7], []]

        def random(self, count):
            drawn = self.left.pop(0)
            assert count == len(drawn)
            return np.array(drawn)

    prompts, _ = lengths_of(dataset, 0.0, 3, "comonotone", Fixed(0.9, 0.1, 0.8), Items())
    assert prompts.tolist() == [1105, 5, 2005]


def test_lengths_may_be_independent(folder, tmp_path):
    many = "{" + ", ".join(f"{i}: 0.01" for i in range(1, 101)) + "}"
    rows = ["0,1,1,Gamma,1,1", "600,1,1,Gamma,1,1"]
    path = folder({0: (rows, {"0": {"input_tokens": many, "output_tokens": many}})})

    together, apart = (columns_of(path, duration_s=600.0, correlation=each) for each in ("comonotone", "independent"))
    assert (together.prompt_tokens == together.output_tokens).all()
    assert abs(np.corrcoef(apart.prompt_tokens, apart.output_tokens)[0, 1]) < 0.2


def test_the_busiest_clients(folder):
    path = folder({k: ([f"0,{rate},1,Gamma,1,1", f"600,{rate},1,Gamma,1,1"], {"0": LANGUAGE})
                   for k, rate in ((0, 0.1), (3, 0.5), (12, 0.3))})

    assert columns_of(path, duration_s=600.0, top=2).labels["tenant"][1] == ["chunk-3", "chunk-12"]
    assert columns_of(path, duration_s=600.0, clients=(0, 12), top=1).labels["tenant"][1] == ["chunk-12"]


def test_a_client_without_lengths_is_an_error_or_left_out(folder):
    path = folder({0: (["0,1,1,Gamma,1,1"], {"0": LANGUAGE}), 5: (["0,1,1,Gamma,1,1"], None)})

    with pytest.raises(InputErrors, match=r"client 5 has no chunk-5-dataset\.json"):
        columns_of(path, duration_s=600.0)
    columns = columns_of(path, duration_s=600.0, missing_dataset="drop")
    assert columns.labels["tenant"][1] == ["chunk-0"]
    assert columns.notes[0] == f"1 client of {path} is left out, as it has no dataset: 5."


def test_prompts_of_no_token_have_one(folder):
    path = folder({0: (["0,0.01,1,Gamma,1,1"], {"0": {"input_tokens": "{0: 1}", "output_tokens": "{1: 1}"}})})

    columns = columns_of(path, duration_s=600.0)
    assert set(columns.prompt_tokens.tolist()) == {1}
    assert columns.notes[-1] == "5 prompts of 0 tokens have 1 instead."


def test_what_upstream_drops_is_told_and_can_be_sent(folder):
    # 0.005/s in 600 s: 3 requests each of 3 clients, of which ServeGen sends 2; a fourth has 1, which it never sends
    rows = {number: ([f"0,{rate},1,Gamma,1,1"], {"0": LANGUAGE})
            for number, rate in ((0, 0.005), (1, 0.005), (2, 0.005), (3, 0.0005))}

    upstream, whole = (columns_of(folder(rows), duration_s=600.0, counts=counts) for counts in ("upstream", "whole"))
    assert np.bincount(upstream.labels["tenant"][0], minlength=4).tolist() == [2, 2, 2, 0]
    assert upstream.notes == (
        "workload.servegen: of 10 requests 6 are sent: as in ServeGen, the last one of each client in each window is "
        'left out; counts = "whole" sends all.',)
    assert np.bincount(whole.labels["tenant"][0]).tolist() == [3, 3, 3, 1]
    assert whole.notes == () and whole.arrival_ns.max() < 600e9
    with pytest.raises(InputErrors, match=r"no request comes in 600 s from 0 s on .*of 1 request 0 are sent"):
        columns_of(folder(rows), duration_s=600.0, clients=(3,))


@pytest.mark.parametrize(("rows", "dataset", "span", "message"), [
    (["0,1,1,Gamma,1"], LANGUAGE, {}, "chunk-0-trace.csv:1: expected 6 cells"),
    (["0,x,1,Gamma,1,1"], LANGUAGE, {}, 'chunk-0-trace.csv:1: rate: expected a number of 0 or more, found "x"'),
    (["0,1,1,Poisson,1,1"], LANGUAGE, {}, 'chunk-0-trace.csv:1: pattern: expected Gamma, Weibull or nothing'),
    (["0,1,1,Gamma,0,1"], LANGUAGE, {}, "chunk-0-trace.csv:1: shape: expected 0.001 or more"),
    (["0,1,1,Gamma,1,1", "0,1,1,Gamma,1,1"], LANGUAGE, {}, "chunk-0-trace.csv:2: window start: expected later"),
    (["0,1,1,Gamma,1,1"], LANGUAGE, {"start_s": 600.0}, "chunk-0-trace.csv: no window begins at 600 s"),
    (["0,1,1,Gamma,1,1"], LANGUAGE, {"duration_s": 700.0}, "servegen.duration_s: expected a multiple of 600 s"),
    (["0,1,1,Gamma,1,1"], LANGUAGE, {"clients": (4,)}, "workload.servegen.clients: expected numbers of"),
    (["0,0,1,,1,1"], LANGUAGE, {}, "workload.servegen: no request comes"),
    (["0,1,1,Gamma,1,1"], LANGUAGE | {"input_tokens": "{1: 1, x}"}, {}, "input_tokens: expected {value: probability"),
    (["0,1,1,Gamma,1,1"], LANGUAGE | {"input_tokens": "{1: 0}"}, {}, "input_tokens: expected values and probabilities"),
    (["0,1,1,Gamma,1,1"], LANGUAGE | {"input_tokens": "{9e9: 1}"}, {}, "input_tokens: expected values and"),
    (["0,1,1,Gamma,1,1"], LANGUAGE | {"input_tokens": "{1e400: 1}"}, {}, "input_tokens: expected values"),
    (["0,1,1,Gamma,1,1"], {"text_tokens": "{1: 1}", "image_tokens": "{1: 1}", "image_count": "{20000: 1}",
                           "output_tokens": "{1: 1}"}, {}, "image_count: expected 10000 at most, found 20000"),
    (["0,1,1,Gamma,1,1"], {"text_tokens": "{1: 1}", "image_tokens": "{2e9: 1}", "image_count": "{2: 1}",
                           "output_tokens": "{1: 1}"}, {}, "a dataset has 4000000001 input tokens"),
    (["0,1,1,Gamma,1,1"], {"output_tokens": "{1: 1}"}, {}, "no field input_tokens; found output_tokens"),
])
def test_what_is_wrong_is_told(folder, rows, dataset, span, message):
    path = folder({0: (rows, {"0": dataset})})

    with pytest.raises(InputErrors) as error:
        columns_of(path, **({"duration_s": 600.0} | span))
    assert message in str(error.value)


def test_a_dataset_that_begins_too_late_is_refused(folder):
    with pytest.raises(InputErrors, match="no window with lengths begins at 0 s or before"):
        columns_of(folder({0: (["0,1,1,Gamma,1,1"], {"600": LANGUAGE})}), duration_s=600.0)


def test_a_folder_without_clients_is_refused(tmp_path):
    with pytest.raises(InputErrors, match=r"no chunk-NUMBER-trace\.csv is in it"):
        columns_of(tmp_path)
    with pytest.raises(InputErrors, match="there is none"):
        columns_of(tmp_path / "no")


@pytest.mark.parametrize(("keys", "message"), [
    ('rate = "constant"', 'rate = "constant" needs rate_per_s'),
    ("rate_per_s = 1.0", 'rate = "scaled" does not read rate_per_s')])
def test_each_rate_has_its_key(tmp_path, keys, message):
    (tmp_path / "e.toml").write_text(
        f'[workload]\ntype = "clients"\nformat = "servegen"\npath = "."\nservegen = {{{keys}}}\n')

    with pytest.raises(InputErrors) as error:
        load_experiment(tmp_path / "e.toml")
    assert message in str(error.value)
