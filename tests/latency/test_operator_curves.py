"""Times between and beyond measured points, and at sites that were not measured."""
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.latency.operators.curves import (
    EXACT,
    EXTRAPOLATED,
    INTERPOLATED,
    Curve,
    along,
    at_site,
    curves_by_site,
    neighbours,
)

CURVE = Curve(np.array([1.0, 4.0, 16.0]), np.array([10.0, 40.0, 360.0]))


def light(site, sizes):
    """Return one ns for each size and unit of the first number of the site."""
    return site[0] * sizes


def read(times):
    return times.ns.tolist(), times.origins.tolist()


def test_measured_points_come_back_verbatim():
    assert read(along(CURVE, CURVE.sizes, lambda at: at, is_root=True)) == ([10.0, 40.0, 360.0], [EXACT] * 3)


def test_between_points_time_is_linear():
    # a third of the way from 10 to 40, half of that from 40 to 360
    assert read(along(CURVE, np.array([2.0, 10.0]), lambda at: at)) == ([20.0, 200.0], [INTERPOLATED] * 2)


def test_between_points_the_root_of_time_may_be_linear():
    curve = Curve(np.array([2.0, 4.0]), np.array([4.0, 16.0]))

    assert along(curve, np.array([3.0]), lambda at: at, is_root=True).ns == pytest.approx([9.0])


def test_beyond_the_ends_utilisation_is_held():
    # at 16 light takes 256 of 360 ns, at 1 it takes 1 of 10
    times = along(CURVE, np.array([0.5, 32.0]), lambda at: at * at)

    assert times.ns == pytest.approx([0.25 * 10, 1024 * 360 / 256])
    assert times.origins.tolist() == [EXTRAPOLATED] * 2


def test_another_site_borrows_the_utilisation_of_its_neighbours():
    # at 4: utilisation 4 / 40 at site 1, 4 x 4 / 80 at site 4; site 2 is one octave from each
    curves = {(1.0,): CURVE, (4.0,): Curve(CURVE.sizes, np.array([20.0, 80.0, 720.0]))}

    times = at_site(curves, (2.0,), np.array([4.0]), light)

    assert times.ns == pytest.approx([2 * 4 / ((0.1 + 0.2) / 2)])
    assert times.origins.tolist() == [INTERPOLATED]


def test_the_nearer_neighbour_counts_for_more():
    curves = {(1.0,): CURVE, (8.0,): Curve(CURVE.sizes, CURVE.ns)}

    # one octave from 1, two from 8: weights 1 and 1/2; utilisations 0.1 and 0.8
    assert at_site(curves, (2.0,), np.array([4.0]), light).ns == pytest.approx([8 / ((0.1 + 0.4) / 1.5)])


def test_nothing_within_two_octaves_is_no_answer():
    assert at_site({(1.0,): CURVE}, (4.01,), np.array([4.0]), light) is None
    assert at_site({(1.0,): CURVE}, (4.0,), np.array([4.0]), light) is not None
    assert at_site({}, (1.0,), np.array([4.0]), light, is_held=True) is None


def test_beyond_all_sites_the_border_may_be_held():
    times = at_site({(1.0,): CURVE}, (64.0,), np.array([4.0]), light, is_held=True)

    assert read(times) == ([64 * 40.0], [EXTRAPOLATED])     # utilisation 0.1, 64 x 4 ns of light


def test_rows_become_curves_and_the_faster_of_two_kernels_counts():
    columns = {"n": np.array([2.0, 1, 1, 1]), "m": np.array([1.0, 8, 4, 8]), "latency_ms": np.array([1.0, 5, 3, 4])}

    found = curves_by_site(columns, ("n",), "m")

    assert {site: (curve.sizes.tolist(), curve.ns.tolist()) for site, curve in found.items()} == {
        (1.0,): ([4.0, 8.0], [3e6, 4e6]), (2.0,): ([1.0], [1e6])}


def test_a_point_far_dearer_than_the_next_larger_size_is_left_out_and_told():
    columns = {"n": np.ones(4), "m": np.array([1.0, 2, 4, 8]), "latency_ms": np.array([1.0, 9.1, 3, 1])}
    spikes = []

    found = curves_by_site(columns, ("n",), "m", spikes)

    assert found[(1.0,)].sizes.tolist() == [1.0, 4.0, 8.0]      # 9.1 > 3 x 3; 3 is not above 3 x 1
    assert spikes == [((1.0,), 2.0)]


def test_at_most_four_neighbours_count():
    assert [site for site, _ in neighbours([(2.0**i,) for i in (0.1, 0.2, 0.3, 0.4, 0.5)], (1.0,))] == [
        (2.0**i,) for i in (0.1, 0.2, 0.3, 0.4)]


@given(st.lists(st.tuples(st.integers(1, 1000), st.floats(1, 1e6)), min_size=2, max_size=8, unique_by=lambda p: p[0]),
       st.floats(0, 1), st.booleans())
def test_interpolated_times_lie_between_their_points(points, share, is_root):
    points = sorted(points)
    curve = Curve(*(np.array(axis, dtype=float) for axis in zip(*points)))
    size = curve.sizes[0] + share * (curve.sizes[1] - curve.sizes[0])

    ns = along(curve, np.array([size]), lambda at: at, is_root).ns[0]

    assert min(curve.ns[:2]) * (1 - 1e-9) <= ns <= max(curve.ns[:2]) * (1 + 1e-9)
