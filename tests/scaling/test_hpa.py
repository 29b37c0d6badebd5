"""What `hpa` decides: Kubernetes' formulas on numbers worked out by hand."""
from dataclasses import replace

import numpy as np
import pytest

from scaling.test_policies import observed, variant
from simulator.scaling.gauges import histogram_quantile
from simulator.scaling.hpa import Hpa, HpaParameters, Target


def hpa(*targets, **keys):
    return Hpa(HpaParameters(targets=tuple(Target(**target) for target in targets), **keys))


@pytest.mark.parametrize(("blocks", "change"), [
    ((90, 90), {0: 2}),                 # 2 x 0.9 / 0.5 = 3.6
    ((54, 54), {}),                     # 1.08: within a tenth
    ((56, 56), {0: 1}),                 # 1.12: 2.24
    ((20, 20, 20, 20), {0: -2})])       # 4 x 0.4 = 1.6
def test_value_is_the_mean_over_its_target(blocks, change):
    assert hpa({"metric": "kv_cache", "value": 0.5}).decide(observed(variant(0, blocks))) == change


@pytest.mark.parametrize(("waiting", "starting", "change"), [
    (15, 0, {0: 4}),            # 30 / 5 = 6 of 2
    (15, 3, {0: 1}),            # of 5
    (5, 0, {}), (1, 0, {0: -1})])
def test_average_value_divides_the_sum(waiting, starting, change):
    seen = observed(variant(0, (0, 0), waiting=waiting, starting=starting))
    assert hpa({"metric": "waiting", "average_value": 5.0}).decide(seen) == change


def test_the_tolerance_of_an_average_counts_replicas_that_start():
    # 21 over (3 serving + 1 starting) x 5: 1.05, kept at 4; 24: ceil(4.8).
    policy = hpa({"metric": "waiting", "average_value": 5.0})
    assert policy.decide(observed(variant(0, (0, 0, 0), waiting=7, starting=1))) == {}
    assert policy.decide(observed(variant(0, (0, 0, 0), waiting=8, starting=1))) == {0: 1}


def test_the_ratio_of_a_value_is_multiplied_with_serving_replicas():
    # 2 x 1.8 = 3.6: 4 of 2 + 3, so that the number falls, as far as replicas serve.
    assert hpa({"metric": "kv_cache", "value": 0.5}).decide(observed(variant(0, (90, 90), starting=3))) == {0: -1}


def test_the_largest_of_several_metrics_counts():
    policy = hpa({"metric": "kv_cache", "value": 0.5}, {"metric": "requests", "average_value": 10.0})
    # KV: 4; requests: (2 x 20 + 12) / 10 = 5.2.
    assert policy.decide(observed(variant(0, (90, 90), in_flight=20), queued=12)) == {0: 4}


def missing(*blocks):
    """Return a pool without a report of any replica."""
    return replace(variant(0, blocks), is_known=np.zeros(len(blocks), bool))


def test_a_missing_metric_prevents_that_the_number_falls():
    policy = hpa({"metric": "kv_cache", "value": 0.5}, {"metric": "queued", "average_value": 1.0})
    assert policy.decide(observed(missing(0, 0, 0), queued=1)) == {}
    assert policy.decide(observed(missing(0, 0, 0), queued=5)) == {0: 2}
    assert hpa({"metric": "kv_cache", "value": 0.5}).decide(observed(missing(90, 90))) == {}


def test_replicas_without_a_report_are_left_out_of_the_mean():
    half = replace(variant(0, (90, 0)), is_known=np.array([True, False]))
    assert hpa({"metric": "kv_cache", "value": 0.5}).decide(observed(half)) == {0: 2}      # 0.9, not 0.45


def test_without_replicas_the_gateway_is_the_only_metric():
    assert hpa({"metric": "requests", "average_value": 2.0}).decide(observed(variant(0), queued=3)) == {0: 2}
    assert hpa({"metric": "waiting", "average_value": 2.0}).decide(observed(variant(0), queued=3)) == {}


def with_times(*times_s):
    return replace(observed(variant(0, (0, 0))), ttft_ns=np.array([round(each * 1e9) for each in times_s], int))


def test_times_to_first_token():
    # mean 0.75 of 0.5: 2 x 1.5; the 90th percentile of four: rank 3.6 of 1 in (0.25, 0.5] and 3 in (0.75, 1]:
    # 0.75 + 0.25 x 2.6 / 3 = 0.9667, 2 x 1.93.
    times = (0.3, 0.9, 0.9, 0.9)
    assert hpa({"metric": "ttft", "value": 0.5}).decide(with_times(*times)) == {0: 1}
    assert hpa({"metric": "ttft", "value": 0.5, "quantile": 0.9}).decide(with_times(*times)) == {0: 2}
    assert hpa({"metric": "ttft", "value": 0.5}).decide(with_times()) == {}


@pytest.mark.parametrize(("values", "quantile", "found"), [
    ([0.3, 0.9, 0.9, 0.9], 0.9, 0.75 + 0.25 * 2.6 / 3), ([0.3], 0.5, 0.375), ([1.0, 1.0], 1.0, 1.0),
    ([9e9], 0.5, 2560.0), ([0.0005], 0.5, 0.0005)])
def test_quantiles_of_a_histogram(values, quantile, found):
    assert histogram_quantile(np.array(values), quantile) == pytest.approx(found)


@pytest.mark.parametrize(("keys", "message"), [
    ({"metric": "waiting"}, "give value or average_value"),
    ({"metric": "waiting", "value": 1.0, "average_value": 1.0}, "give value or average_value"),
    ({"metric": "ttft", "average_value": 1.0}, 'average_value: with metric = "ttft" give value'),
    ({"metric": "waiting", "value": 1.0, "quantile": 0.5}, 'quantile goes with metric = "ttft"')])
def test_targets_that_make_no_sense(keys, message):
    with pytest.raises(ValueError, match=message):
        Target(**keys)
