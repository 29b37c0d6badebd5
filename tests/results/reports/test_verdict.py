"""The two sentences at the top: what came of it, and what stood in the way."""
from types import SimpleNamespace

import pytest

from results.fakes import bounds_of, small_run
from results.reports.made import ITERATIONS, REPLICAS, iterations_of, lanes_of, lay_down
from simulator.results.reports.material import Material, limits_of
from simulator.results.reports.verdict import bottleneck, pressures, verdict


def material_of(iterations, replicas=REPLICAS, verdict="stable", max_seqs=2, budget=64):
    """Return what the bottleneck is told of."""
    limits = limits_of({"engine": {"max_num_seqs": max_seqs, "max_num_batched_tokens": budget}}, len(replicas))
    return SimpleNamespace(lanes=lanes_of(iterations, replicas, limits=limits), summary={"verdict": verdict})


def test_the_slo_is_missed_where_less_than_99_percent_keep_it(tmp_path):
    # of 5 that came, two completed: TTFT 10 and 25 ms, of which one keeps 20 ms
    said = verdict(Material(lay_down(tmp_path / "a")))

    assert said == ("SLO missed (20.00% of the requests kept it, 99% are asked; TTFT breaks its bound most often, 1 "
                    "times); goodput 25 requests/s; backlog too short to "
                    "tell.")


def test_no_slo_has_no_goodput(tmp_path):
    said = verdict(Material(lay_down(tmp_path / "a", bounds=bounds_of())))

    assert said == "SLO none; goodput not defined; backlog too short to tell."


def test_an_interrupted_run_is_called_incomplete_first(tmp_path):
    assert verdict(Material(lay_down(tmp_path / "a", small_run(complete=False)))).startswith("Incomplete: ")


def test_shares_of_limits_are_those_of_the_busy_time():
    # 40 ms busy; replica 0 waits from 10 to 30 ms, with two of two running and 99 of 100 blocks, 64 tokens in the first
    found = pressures(material_of(ITERATIONS))

    assert found == {"kv": 0.5, "seqs": 0.5, "budget": 0.25, "waiting": 0.5, "busy": 40 / (2 * 40)}


@pytest.mark.parametrize(("rows", "options", "begins"), [
    ([(0, 0, 10, 8, 0, 1, 1, 95)], {}, "KV-limited"),
    ([(0, 0, 10, 8, 0, 1, 2, 95)], {}, "KV-limited"),                                  # both: the first rule
    ([(0, 0, 10, 8, 0, 1, 2, 94)], {}, "Limited by max_num_seqs"),
    ([(0, 0, 10, 64, 0, 1, 1, 9)], {}, "Limited by max_num_batched_tokens"),
    ([(0, 0, 10, 64, 0, 0, 2, 99)], {}, "Arrival-limited"),                            # nobody waits
    ([(0, 0, 10, 8, 0, 0, 1, 9)], {"verdict": "growing"}, "Compute-limited"),
    ([(0, 0, 10, 8, 0, 1, 1, 9)], {}, "Compute-limited"),
    ([(0, 0, 10, 8, 0, 1, 1, 9), (0, 90, 10, 8, 0, 1, 1, 9)], {}, "Arrival-limited"),  # busy 20 % of the time
    ([], {}, "Nothing ran")])
def test_the_first_rule_that_holds_is_the_bottleneck(rows, options, begins):
    assert bottleneck(material_of(iterations_of(*rows), REPLICAS[:1], **options)).startswith(begins)


def test_without_iterations_nothing_is_claimed(tmp_path):
    assert "not known" in bottleneck(Material(lay_down(tmp_path / "a", iterations=False)))


def test_pools_have_limits_of_their_own():
    pools = [{"replicas": 1, "topology": {"data_parallel": 2}, "engine": {"max_num_seqs": 8}},
             {"replicas": 1, "engine": {"max_num_seqs": 4}}]

    assert [each.tolist() for each in limits_of({"pools": pools}, 3)] == [[8, 8, 4], [0, 0, 0]]

    pools[1]["replicas"] = 9            # they do not add up to the rows
    assert [each.tolist() for each in limits_of({"pools": pools}, 3)] == [[0, 0, 0], [0, 0, 0]]


def test_pools_of_equal_limits_give_each_row_the_same():
    pool = {"replicas": 1, "engine": {"max_num_seqs": 8, "max_num_batched_tokens": 64}}

    assert [each.tolist() for each in limits_of({"pools": [pool, pool]}, 2)] == [[8, 8], [64, 64]]


def test_a_run_that_serves_few_says_so_before_all_else(tmp_path):
    material = Material(lay_down(tmp_path / "a"))
    material.summary |= {"verdict": "unserved", "unserved": "of 5 requests none was served: 5 rejected"}

    assert verdict(material).startswith("Not served: of 5 requests none was served: 5 rejected. SLO missed")
