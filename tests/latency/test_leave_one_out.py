"""Errors of points left out, by hand: what is predicted from the others, and how far that is off."""
from math import exp, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.core.random_streams import RandomStreams
from simulator.latency.operators.curves import Curve
from simulator.latency.operators.leave_one_out import along_sizes, border_sizes, edge_sizes, grid_sizes, site_sizes
from simulator.latency.uncertainty.draws import positions
from simulator.latency.uncertainty.spread import measured_spread, normal_spread, pooled


def curve(**ns):
    return Curve(np.array([float(size[1:]) for size in ns]), np.array([float(each) for each in ns.values()]))


def light(site, sizes):
    return site[0] * sizes


def test_the_inner_point_of_three_is_predicted_between_the_others():
    # at 2, half-way from 10 to 30: 20, where 25 was measured
    assert along_sizes(curve(_1=10, _2=25, _3=30), lambda at: at) == pytest.approx([log(25 / 20)])


def test_of_prompts_square_roots_are_interpolated():
    # at 2, half-way from 1 to 3, squared: 4
    assert along_sizes(curve(_1=1, _2=5, _3=9), lambda at: at, is_root=True) == pytest.approx([log(5 / 4)])


def test_a_curve_of_two_points_tells_nothing():
    assert len(along_sizes(curve(_1=1, _2=5), lambda at: at)) == 0


def test_the_longer_half_is_predicted_beyond_what_is_shorter():
    # utilisation at 2 is 2 / 20, held at 4: 40, where 50 was measured
    assert edge_sizes(curve(_1=10, _2=20, _4=50), lambda at: at) == pytest.approx([log(50 / 40)])


def test_a_site_that_was_not_measured_has_the_error_of_those_nearby():
    curves = {(2.0,): curve(_1=20), (8.0,): curve(_1=160)}

    # (2,) from (8,): utilisation 8 / 160, so 2 x 160 / 8 = 40, where 20 was measured
    # (8,) from (2,): 8 x 20 / 2 = 80, where 160 was measured
    assert site_sizes(curves, (4.0,), light) == pytest.approx([log(2), log(2)])


def test_a_site_beyond_all_has_the_error_of_the_border():
    curves = {(1.0,): curve(_1=10), (2.0,): curve(_1=30)}

    # (2,) from (1,) alone: 20, where 30 was measured
    assert border_sizes(curves, (1000.0,), light) == pytest.approx([log(30 / 20)])


def test_of_decodes_batch_and_length_are_left_out_together():
    def one(*ns):
        return {(1.0,): curve(_1=ns[0], _2=ns[1], _3=ns[2])}

    by_batch = {1: one(10, 99, 30), 2: one(0, 45, 0), 3: one(40, 99, 80)}

    # length 2 of batch 1: (10 + 30) / 2 = 20, of batch 3: 60; half-way 40, where 45 was measured
    assert grid_sizes(by_batch, (1.0,), lambda batch: light) == pytest.approx([log(45 / 40)])


def test_factors_are_as_likely_too_long_as_too_short():
    spread = measured_spread([0.1, -0.3, 0.2], "here")          # sizes 0.1, 0.2, 0.3

    assert spread.factor(0.5) == 1.0
    assert [spread.factor(place) for place in (0.75, 0.25)] == pytest.approx([exp(0.2), exp(-0.2)])
    assert [spread.factor(place) for place in (1.0, 0.0)] == pytest.approx([exp(0.3), exp(-0.3)])
    assert spread.error_frac == pytest.approx((0.14 / 3) ** 0.5)


def test_a_normal_error_has_the_mean_size_that_is_known():
    spread = normal_spread(0.2, "there")

    assert spread.sizes.mean() == pytest.approx(0.2, rel=0.01)
    assert spread.error_frac == pytest.approx(0.2 * (np.pi / 2) ** 0.5, rel=0.03)      # the deviation


def test_lookups_of_one_operator_are_pooled():
    assert pooled([measured_spread([0.3], "a"), None, measured_spread([0.1], "b")]).sizes.tolist() == [0.1, 0.3]
    assert pooled([measured_spread([0.3], "a"), None, measured_spread([0.1], "b")]).how == "a; b"
    assert pooled([None]) is None


@given(st.integers(1, 64), st.integers(0, 2**63 - 1))
def test_each_part_of_a_distribution_is_drawn_once(count, seed):
    drawn = positions(RandomStreams(seed), "qkv", count)

    assert sorted(drawn) == pytest.approx([(i + 0.5) / count for i in range(count)])
    assert drawn.tolist() == positions(RandomStreams(seed), "qkv", count).tolist()
