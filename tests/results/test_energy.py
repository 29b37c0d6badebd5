"""Energy, carbon and money of a run, against numbers worked by hand."""
from datetime import date

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from results.fakes import MS, bounds_of, replicas_of, requests_of, workload_of
from simulator.core.weighted_samples import WeightedSamples
from simulator.domain import records
from simulator.domain.costs import HOURS, Carbon, Electricity, Power, Price, from_the_start
from simulator.domain.run import Run
from simulator.results import aged, summary_table
from simulator.results.energy import PoweredPool, PowerFacts, energy_of
from simulator.results.money import Bill, PricedPool, cost_of
from simulator.results.paid_time import Rate
from simulator.results.power_meter import HOUR_NS, Metered, PowerMeter, time_by_hour
from simulator.results.summary import summary_of

S = 1000 * MS
# splitwise-sim, configs/power_model/constant.yaml, h100-80gb
H100 = Power(idle_w=75.0, prefill_w=700.0, decode_w=380.0, source="splitwise-sim, constant.yaml", pue=1.2,
             pue_source="by hand")
GRID = Carbon(g_per_kwh=400.0, source="by hand", region="nowhere", date="2024-02-07")
STAGES = records.STAGE_NAMES


def rows_of(*rows):
    """Return iterations; each row (begin s, duration s, prompt tokens, decode tokens[, replica])."""
    table = np.zeros(len(rows), records.ITERATION)
    for record, (begin_s, duration_s, prefill, decode, *replica) in zip(table, rows, strict=True):
        record["begin_ns"] = record["start_ns"] = round(begin_s * S)
        record["duration_ns"], record["replica"] = round(duration_s * S), (*replica, 0)[0]
        record["prefill_tokens"], record["decode_tokens"] = prefill, decode
    return table


def energy(rows, *, powers=(H100,), clock_s=100, tokens=100_000, carbon=None, electricity=None, accelerators=1,
           nodes=None, lifecycle=None, phase_ns=None, is_by_hour=False, chunks=1):
    """Return the part `energy` of a run of one replica for each of `powers`, all with these accelerators."""
    requests = requests_of([(0, 0, 0, 10, 1000 * clock_s, 100, tokens, records.COMPLETED)] if tokens else [])
    run = Run(workload_of(requests), True, clock_s * S, replicas_of(*[{} for _ in powers]), WeightedSamples(),
              lifecycle=lifecycle)
    meter = PowerMeter(tuple(Metered(1, accelerators, phase_ns) for _ in powers), 0 if is_by_hour else None)
    emissions = carbon and from_the_start(carbon.g_per_kwh, carbon.starts_at_hour)
    price = electricity and from_the_start(electricity.per_kwh, electricity.starts_at_hour)
    for part in np.array_split(rows, chunks):
        meter.append(part)
    facts = PowerFacts(tuple(PoweredPool(f"gpu-{i}", 1, accelerators, power, nodes, emissions, price)
                             for i, power in enumerate(powers)), carbon, electricity, is_by_hour)
    return energy_of(run, facts, meter, summary_of(run, "run", 0, bounds_of())["total_output_tokens"])


# 20 s of prompts, 60 s of decodes, 20 s idle: 20 x 700 + 60 x 380 + 20 x 75 = 14,000 + 22,800 + 1,500 J
DAY = rows_of((0, 20, 1000, 0), (30, 60, 0, 8))


def test_worked_example_of_an_h100():
    found = energy(DAY, carbon=GRID)

    assert found["energy_j"] == {"accelerator_active": 36_800.0, "accelerator_idle": 1500.0, "host": None,
                                 "total": 38_300.0}
    assert found["coverage"] == found["idle_coverage"] == 1.0
    assert found["average_w"] == 383.0                          # 38,300 J in 100 s
    assert found["active_w_per_accelerator"] == 460.0           # 36,800 J in 80 s
    assert found["joules_per_output_token"] == 0.383
    assert found["facility_kwh"] == pytest.approx(38_300 * 1.2 / 3.6e6)
    assert found["carbon_g"] == pytest.approx(5.1067, abs=5e-5)  # 0.0127667 kWh x 400 g


def test_accelerators_of_a_replica_and_the_nodes_they_sit_in_draw_together():
    # 8 accelerators: 8 x 38,300 J; their node, half of it, 500 W for 100 s
    power = Power(idle_w=75.0, prefill_w=700.0, decode_w=380.0, source="s", host_w=1000.0, host_source="s")
    found = energy(DAY, powers=(power,), accelerators=8, nodes=0.5)

    assert found["energy_j"] == {"accelerator_active": 8 * 36_800.0, "accelerator_idle": 8 * 1500.0, "host": 50_000.0,
                                 "total": 8 * 38_300.0 + 50_000.0}
    assert found["facility_kwh"] is found["carbon_g"] is None       # no pue


def test_electricity_is_paid_for_what_the_building_draws():
    price = Electricity(per_kwh=0.30, currency="EUR", source="s", date="2024-01-01")

    found = energy(DAY, electricity=price)

    assert found["electricity_cost"] == pytest.approx(0.30 * 38_300 * 1.2 / 3.6e6)
    assert found["electricity_currency"] == "EUR"


def test_an_iteration_of_both_is_one_of_prompts_where_nobody_tells_them_apart():
    found = energy(rows_of((0, 10, 100, 5)), clock_s=10)

    assert found["energy_j"]["total"] == 7000.0


def test_an_iteration_of_both_is_shared_as_the_backend_predicts():
    def phase_ns(rows):
        return 1.0 * rows["prefill_tokens"], 60.0 * rows["decode_tokens"]

    # 100 of prompts to 300 of decodes: 2.5 s x 700 W + 7.5 s x 380 W; the others stay what they are
    found = energy(rows_of((0, 10, 100, 5), (10, 1, 7, 0), (11, 1, 0, 7)), clock_s=12, phase_ns=phase_ns)

    assert found["energy_j"]["accelerator_active"] == 2.5 * 700 + 7.5 * 380 + 700 + 380


@pytest.mark.parametrize(("known_s", "is_known"), [(90, True), (89, False)])
def test_what_is_not_measured_is_no_zero_but_nothing(known_s, is_known):
    # 90 of 100 s active with a known power are enough; 0 W is not measured
    power = Power(idle_w=75.0, prefill_w=700.0, decode_w=0.0, source="a table full of zeros", pue=1.0, pue_source="s")
    found = energy(rows_of((0, known_s, 100, 0), (known_s, 100 - known_s, 0, 5)), powers=(power,), carbon=GRID)

    assert found["coverage"] == known_s / 100
    assert found["energy_j"]["total"] == (known_s * 700.0 if is_known else None)
    others = ("average_w", "joules_per_output_token", "kwh", "facility_kwh", "carbon_g", "active_w_per_accelerator")
    assert [found[name] is not None for name in others] == [is_known] * len(others)
    assert found["energy_j"]["accelerator_idle"] == 0.0             # there was no idle time


def test_idle_power_that_nobody_knows_leaves_the_active_energy():
    found = energy(DAY, powers=(Power(prefill_w=700.0, decode_w=380.0, source="s"),))

    assert found["energy_j"] == {"accelerator_active": 36_800.0, "accelerator_idle": None, "host": None, "total": None}
    assert (found["coverage"], found["idle_coverage"]) == (1.0, 0.0)


def test_accelerators_without_an_entry_are_not_covered():
    found = energy(rows_of((0, 50, 10, 0, 0), (0, 50, 10, 0, 1)), powers=(H100, None))

    assert (found["coverage"], found["idle_coverage"]) == (0.5, 0.5)
    assert set(found["energy_j"].values()) == {None}


def test_a_replica_draws_from_wanted_to_off():
    # off at first, wanted at 40 s, off again at 90 s: 50 s are paid for, 10 of them prompts
    lifecycle = np.zeros(3, records.LIFECYCLE)
    lifecycle["time_ns"] = [0, 40 * S, 90 * S]
    lifecycle["state"] = [STAGES.index("off"), STAGES.index("provisioning"), STAGES.index("off")]

    found = energy(rows_of((50, 10, 10, 0)), lifecycle=lifecycle)

    assert found["energy_j"]["total"] == 10 * 700 + 40 * 75


def test_a_run_without_tokens_has_no_joules_per_token():
    found = energy(rows_of(), tokens=0)

    assert found["joules_per_output_token"] is found["active_w_per_accelerator"] is None
    assert found["energy_j"]["total"] == 7500.0


def test_carbon_goes_by_the_hour_of_the_day():
    # from 23:00: 90 minutes of decodes at 380 W, 60 of them at 100 g/kWh, 30 after midnight at 700 g/kWh; no idle time
    by_hour = Carbon(g_per_kwh=(700.0, *[0.0] * 22, 100.0), starts_at_hour=23, source="s", region="r",
                     date="2024-01-01")
    power = Power(idle_w=75.0, decode_w=380.0, source="s", pue=1.0, pue_source="s")

    found = energy(rows_of((0, 5400, 0, 1)), powers=(power,), clock_s=5400, carbon=by_hour, is_by_hour=True,
                   electricity=Electricity(per_kwh=(0.1, *[0.2] * 22, 0.4), starts_at_hour=0, currency="EUR",
                                           source="s", date="2024-01-01"))

    assert found["carbon_g"] == pytest.approx(0.380 * 1.0 * 100 + 0.380 * 0.5 * 700)
    # another table, another time zone: its day begins with the run
    assert found["electricity_cost"] == pytest.approx(0.380 * 1.0 * 0.1 + 0.380 * 0.5 * 0.2)


@pytest.mark.parametrize("is_by_hour", [False, True])
def test_the_meter_gives_the_same_whatever_the_pieces(is_by_hour):
    draw = np.random.default_rng(1)
    rows = rows_of(*[(40.0 * i, float(draw.uniform(1, 40)), int(draw.integers(3)), int(draw.integers(3)))
                     for i in range(500)])

    one, many = (energy(rows, clock_s=20_000, is_by_hour=is_by_hour, chunks=chunks) for chunks in (1, 7))

    assert one == many
    # 1 of 9 iterations computes nothing: that has no power, and is no zero
    assert one["coverage"] == pytest.approx(
        1 - rows["duration_ns"][(rows["prefill_tokens"] == 0) & (rows["decode_tokens"] == 0)].sum()
        / rows["duration_ns"].sum())


def test_time_by_hour_of_the_day():
    # 22:30 to 01:15 of the day after the next: the night twice over
    begin_ns, end_ns = np.array([0]), np.array([26 * HOUR_NS + 3 * HOUR_NS // 4])
    hours = time_by_hour(begin_ns + HOUR_NS // 2, end_ns + HOUR_NS // 2, 22)[0] / HOUR_NS

    assert hours.tolist() == [2.0, 1.25, *[1.0] * 20, 1.5, 2.0]


@given(st.integers(0, 10**15), st.integers(0, 10**15), st.integers(0, HOURS - 1))
def test_hours_of_the_day_add_up_to_the_time(begin_ns, duration_ns, starts_at_hour):
    found = time_by_hour(np.array([begin_ns]), np.array([begin_ns + duration_ns]), starts_at_hour)[0]

    assert found.sum() == duration_ns
    assert found.min() >= 0
    assert found.max() - found.min() <= HOUR_NS         # no hour comes twice before each has come once


def priced(bill, clock_s=3600, tokens=5000 * 3600, bounds=None, lifecycle=None):
    """Return the summary of an hour of one replica that brings 5,000 output tokens a second, by 4 requests."""
    rows = [(0, 0, 0, 10, 1000 * clock_s, 100, tokens // 4, records.COMPLETED)] * 4 if tokens else []
    run = Run(workload_of(requests_of(rows)), True, clock_s * S, replicas_of({}), WeightedSamples(),
              lifecycle=lifecycle)
    summary = summary_of(run, "run", 0, bounds or bounds_of())
    return summary if bill is None else summary | {"cost": cost_of(run, bill, summary)}


PRICE = Price(per_gpu_hour=4.25, currency="USD", source="a cloud page", date="2024-02-07")
EIGHT = Bill((PricedPool(1, Rate(8 * 4.25)),), 0.0, (("h100-sxm-80gb", PRICE),))


def test_worked_example_of_what_tokens_cost():
    cost = priced(EIGHT, bounds=bounds_of(ttft_ms=100.0))["cost"]

    assert (cost["total"], cost["per_hour"], cost["currency"]) == (34.0, 34.0, "USD")
    assert cost["cost_per_million_output_tokens"] == pytest.approx(1.8889, abs=5e-5)    # 34e6 / (3600 x 5000)
    assert cost["cost_per_million_tokens"] == pytest.approx(34e6 / (5000 * 3600 + 400))
    assert cost["cost_per_thousand_requests"] == pytest.approx(34 / 4 * 1000)
    assert cost["cost_per_good_request"] == pytest.approx(34 / 4)


def test_nothing_got_has_no_price():
    cost = priced(EIGHT, tokens=0)["cost"]

    assert cost["total"] == 34.0
    assert {cost[name] for name in cost if name.startswith("cost_per_")} == {None}


def test_time_that_a_replica_is_off_is_not_paid():
    lifecycle = np.zeros(2, records.LIFECYCLE)
    lifecycle["time_ns"] = [0, 1800 * S]
    lifecycle["state"] = [STAGES.index("off"), STAGES.index("up")]

    cost = priced(EIGHT, lifecycle=lifecycle)["cost"]

    assert cost["total"] == cost["per_hour"] == 17.0


# From 22:00 on: 2 an hour, from 23:00 on 10, from midnight on 5, then 1.
NIGHT = Bill((PricedPool(1, Rate(4.5, from_the_start((5.0, *[1.0] * 21, 2.0, 10.0), 22))),), 0.0, ())


@pytest.mark.parametrize(("begin_s", "end_s", "total"), [
    (0, 3600, 2.0), (0, 5400, 2 + 0.5 * 10), (3600, 7200, 10.0), (3599, 7201, 2 / 3600 + 10 + 5 / 3600),
    (1800, 1800, 0.0), (0, 26 * 3600, 2 + 10 + 5 + 21 + 2 + 10)])
def test_hours_that_a_replica_lives_in_cost_as_each_hour_does(begin_s, end_s, total):
    lifecycle = np.zeros(3, records.LIFECYCLE)
    lifecycle["time_ns"] = [0, begin_s * S, end_s * S]
    lifecycle["state"] = [STAGES.index(name) for name in ("off", "up", "off")]

    cost = priced(NIGHT, clock_s=30 * 3600, lifecycle=lifecycle)["cost"]

    assert cost["total"] == pytest.approx(total)
    assert cost["per_hour"] == pytest.approx(total / 30)


def test_a_run_that_ends_within_an_hour_costs_its_part_of_it():
    assert priced(NIGHT, clock_s=3660)["cost"]["total"] == pytest.approx(2 + 10 / 60)


def test_cost_and_energy_are_a_line_each():
    summary = priced(EIGHT)
    summary["energy"] = energy(DAY, carbon=GRID)

    lines = summary_table(summary).replace("\n" + " " * 13, " ").splitlines()

    assert "cost         34.0000 USD, 34.00 USD an hour, 1.8889 USD a million output tokens" in lines
    assert "energy       38,300.0 J, 383.0 W on average, 0.3830 J an output token, 5.1067 g CO2" in lines
    assert "cost" not in summary_table(priced(None)) + summary_table(priced(None))


def test_energy_that_is_not_known_is_a_line_that_says_so():
    summary = priced(None)
    summary["energy"] = energy(DAY, powers=(Power(idle_w=75.0, decode_w=380.0, source="s"),))

    assert "energy       not known: the power of 75.0% of the active time is" in summary_table(summary).splitlines()


@pytest.mark.parametrize(("today", "days"), [(date(2024, 8, 5), None), (date(2024, 8, 6), 181)])
def test_a_price_older_than_180_days_is_named(today, days):
    found = list(aged(priced(EIGHT), today))        # 2024-02-07 + 180 days = 2024-08-05

    assert found == ([] if days is None else [
        "prices.h100-sxm-80gb: 4.25 an hour is 181 days old (2024-02-07, a cloud page)"])
