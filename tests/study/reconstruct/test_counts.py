"""Windows, lengths, clocks and shared prefixes, against numbers by hand."""
import numpy as np
import pytest

from simulator.study.reconstruct.access_log import Requests
from simulator.study.reconstruct.demand import drawn_demand, drawn_outages, spread
from simulator.study.reconstruct.densities import densities_of, limits
from simulator.study.reconstruct.lengths import drawn_lengths
from simulator.study.reconstruct.logged import holes_of, logged_demand
from simulator.study.reconstruct.sharing import Sharing, drawn_heads, prompt_texts
from simulator.study.reconstruct.skew import skew_of
from simulator.study.reconstruct.windows import Lengths, record_of
from simulator.study.server_metrics.instances import Instance, on_a_grid
from simulator.study.what_if import interval_of

INF = float("inf")


def instance(ended, running, times_s=None):
    """Return an instance with prompts of 10 and outputs of 4 tokens."""
    ended = np.array(ended, float)
    values = {"request_success_total": ended, "num_requests_running": np.array(running, float),
              "num_requests_waiting": np.zeros(len(ended)), "request_prompt_tokens_sum": 10 * ended,
              "request_generation_tokens_sum": 4 * ended, "time_to_first_token_seconds_sum": 0.5 * ended,
              "time_to_first_token_seconds_count": ended}
    buckets = {name: (np.array([5.0, 20.0, INF]), np.stack([ended * low, ended, ended], axis=1))
               for name, low in (("request_prompt_tokens", 0), ("request_generation_tokens", 1))}
    return Instance("a", np.arange(len(ended)) * 15.0 if times_s is None else np.array(times_s), values, buckets)


def test_arrivals_are_ends_and_growth_of_requests_inside_across_gaps():
    record = record_of(instance([0, 4, 10, 16], [2, 5, 5, 1], [0, 15, 60, 75]), False)

    assert [window.arrived for window in record.windows] == [7, 6, 2]
    assert (record.present, record.left, record.step_s) == (2, 1, 15)
    assert [(window.begin_s, window.end_s) for window in record.gaps] == [(15, 60)]


def test_a_counter_that_falls_is_a_restart_and_counts_from_zero():
    record = record_of(instance([0, 40, 80, 3, 43], [0, 5, 6, 2, 2], [0, 15, 30, 75, 90]), False)
    restart = record.windows[2]

    assert [window.has_restart for window in record.windows] == [False, False, True, False]
    assert (restart.ended, restart.arrived, restart.lost, restart.prompts.total) == (3, 5, 6, 30)
    assert record.gaps == []
    for seed in range(20):
        outage, = drawn_outages(np.random.default_rng(seed), [record])
        assert 30 <= outage.stop_s <= 45 and 60 <= outage.back_s <= 82.5


def test_instances_scraped_at_their_own_times_share_a_grid():
    first, second = instance([0, 4, 10], [2, 5, 5]), instance([0, 4, 10], [2, 5, 5], [4.1, 19.1, 49.1])
    missed = instance([0, 4, 10], [2, 5, 5], [0, 15, 45])

    assert [each.times_s.tolist() for each in on_a_grid([first, second])] == [[0, 15, 30], [0, 15, 45]]
    assert on_a_grid([first, missed])[1].times_s.tolist() == [0, 15, 45]


def test_a_demand_agrees_with_all_counts():
    record = record_of(instance([0, 40, 80, 120, 160], [3, 5, 5, 5, 8]), False)
    demand = drawn_demand(np.random.default_rng(1), [record], 2.0, [])
    counts = np.histogram(demand.arrival_s, [-1000, 0, 15, 30, 45, 60])[0]

    assert counts.tolist() == [3, 42, 40, 40, 43]
    assert len(demand.prompt_tokens) == len(demand.output_tokens) == 168
    assert np.all(np.diff(demand.arrival_s) >= 0)
    assert demand.prompt_tokens.min() >= 6 and demand.prompt_tokens.max() <= 20
    assert demand.output_tokens.max() <= 5


@pytest.mark.parametrize("law", ["lognormal", "weibull", "smooth"])
def test_lengths_keep_counts_and_sum_and_nearly_the_median(law):
    generator = np.random.default_rng(3)
    truth = {"lognormal": lambda: generator.lognormal(5, 0.4, 4000),
             "weibull": lambda: 150 * generator.weibull(2, 4000),
             "smooth": lambda: np.r_[generator.uniform(10, 30, 2000), generator.uniform(600, 900, 2000)]}[law]()
    truth = np.maximum(np.round(truth), 1)
    bounds = np.array([1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, INF])
    found = Lengths(np.bincount(np.searchsorted(bounds, truth), minlength=len(bounds)), bounds, truth.sum())
    densities = {each.name: each for each in densities_of([found])}
    drawn = drawn_lengths(generator, found, len(truth), densities[law])

    assert drawn.sum() == truth.sum()
    assert np.bincount(np.searchsorted(bounds, drawn), minlength=len(bounds)).tolist() == found.counts.tolist()
    tenths = np.arange(1, 10) / 10
    assert np.abs(np.log(np.quantile(drawn, tenths) / np.quantile(truth, tenths))).mean() < 0.08
    low, high = limits(bounds)
    assert (low[3], high[3]) == (6, 10)


def test_burstiness_is_the_variation_of_gaps():
    for burstiness in (0.5, 1.0, 2.5):
        gaps = np.diff(spread(np.random.default_rng(1), 0.0, 1000.0, 20_000, burstiness))
        assert gaps.std() / gaps.mean() == pytest.approx(burstiness, rel=0.05)


def test_the_clock_of_a_log_is_found_and_its_hole_filled():
    generator = np.random.default_rng(2)
    arrival_s = np.sort(generator.uniform(0, 600, 3000))
    ended = np.searchsorted(arrival_s, np.arange(41) * 15.0)
    record = record_of(instance(ended, np.zeros(41)), True)
    logged = np.sort(arrival_s[(arrival_s < 300) | (arrival_s > 345)] + 41.3)
    log = Requests(logged, np.full(len(logged), 10), np.full(len(logged), 4), 0.0)
    skew = skew_of([record], log)
    holes = holes_of(log, [record], skew)
    other = drawn_demand(generator, [record], 1.0, [])

    assert skew.best_s == pytest.approx(41.3, abs=0.1)
    assert skew.low_s <= 41.3 + 0.02 and skew.high_s >= 41.3 - 0.02
    assert [(hole.begin_s, hole.end_s) for hole in holes] == [(300, 315), (315, 330), (330, 345)]
    assert len(logged_demand(generator, log, skew, other, holes).arrival_s) == pytest.approx(3000, abs=3)


def test_shared_beginnings_give_the_hit_rate():
    generator = np.random.default_rng(4)
    prompts = generator.integers(50, 1000, 2000)
    groups, heads = drawn_heads(generator, prompts, 16, Sharing(8, 0.7, 0.4))
    seen, hits = set(), 0
    for group, head in zip(groups.tolist(), heads.tolist(), strict=True):
        hits += head // 16 * 16 if head and group in seen else 0
        seen |= {group} if head else set()

    assert hits / prompts.sum() == pytest.approx(0.4, abs=16 * 1400 / prompts.sum())      # a block of each
    assert prompt_texts(np.array([10, 10]), np.array([1, 1]), np.array([4, 0])) == ["head1:4/:6", ":10"]


def test_intervals_are_prediction_intervals_widened_by_the_error():
    values = np.exp([1.0, 1.1, 1.2, 1.3])
    half = 2.353363 * np.std([1.0, 1.1, 1.2, 1.3], ddof=1) * np.sqrt(1.25)      # t with three degrees of freedom

    assert interval_of(values).low == pytest.approx(np.exp(1.15 - half))
    assert interval_of(values, 0.1).high == pytest.approx(np.exp(1.15 + half) * 1.1)
    assert interval_of([3.0, 3.0]) == (3.0, 3.0, 3.0)
    assert interval_of([-1.0, 1.0], 0.5).low < -1
