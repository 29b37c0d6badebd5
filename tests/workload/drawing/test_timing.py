"""Arrivals of a process at a rate that changes, and ramps."""
import numpy as np
import pytest

from simulator.core.random_streams import RandomStreams
from simulator.errors import InputErrors
from simulator.workload.drawing import arrivals
from simulator.workload.drawing.rates.counts import CountsParameters
from simulator.workload.drawing.rates.diurnal import DiurnalParameters
from simulator.workload.drawing.rates.piecewise import PiecewiseParameters
from simulator.workload.drawing.recorded import TimesParameters
from simulator.workload.drawing.timing import Arrival, RateChoice, Timing

S = 10**9


def process(name, **keys):
    kind = {"constant": arrivals.RateParameters, "poisson": arrivals.RateParameters,
            "gamma": arrivals.RateAndVariationParameters, "burst": arrivals.BurstParameters}[name]
    return Arrival(process=name, parameters=kind(**keys))


def steps(times_s, rates_per_s, interpolate="step"):
    return RateChoice(kind="piecewise", parameters=PiecewiseParameters(
        times_s=times_s, rates_per_s=rates_per_s, interpolate=interpolate))


def drawn_s(arrival, rate=None, count=None, duration_s=None, *, gaps=None, time_scale=1.0):
    streams = RandomStreams(1)
    found = Timing(arrival, rate).arrivals_ns(
        streams.generator("arrivals") if gaps is None else gaps, streams, count, duration_s, time_scale)
    return (found / S).tolist()


CONSTANT = process("constant")


def test_r1_steps():
    expected = [*range(1, 11), *(10 + k / 3 for k in range(1, 30))]        # the 40th, at 20.0, is too late

    assert drawn_s(CONSTANT, steps((0.0, 10.0), (1.0, 3.0)), duration_s=20.0) == pytest.approx(expected, abs=1e-9)


def test_r2_a_pause():
    pause = steps((0.0, 1.0, 5.0), (2.0, 0.0, 2.0))

    assert drawn_s(CONSTANT, pause, count=4) == [0.5, 1.0, 5.5, 6.0]
    assert drawn_s(CONSTANT, pause, duration_s=3.0) == [0.5, 1.0]          # the end lies in the pause


def test_r3_a_line():
    found = drawn_s(CONSTANT, steps((0.0, 4.0), (0.0, 4.0), "linear"), duration_s=4.0)

    assert found == pytest.approx([(2 * k) ** 0.5 for k in range(1, 8)], abs=1e-9)


@pytest.mark.parametrize(("text", "keys"), [
    ("bin_start_s,count\n0,3\n60,0\n120,2\n", {}), ("count\n3\n0\n2\n", {"bin_s": 60.0})])
def test_r4_counts(text, keys, tmp_path):
    (tmp_path / "c.csv").write_text(text)
    counts = RateChoice(kind="counts", parameters=CountsParameters(path=str(tmp_path / "c.csv"), **keys))

    assert drawn_s(None, counts) == [10, 30, 50, 135, 165]
    assert drawn_s(None, counts, count=2) == [10, 30]
    assert drawn_s(None, counts, duration_s=135.0) == [10, 30, 50]


@pytest.mark.parametrize("inside", ["uniform", "poisson"])
def test_counts_fill_their_bins(inside, tmp_path):
    (tmp_path / "c.csv").write_text("count\n4000.5\n0\n2000.5\n")
    found = np.array(drawn_s(None, RateChoice(kind="counts", parameters=CountsParameters(
        path=str(tmp_path / "c.csv"), bin_s=10.0, inside=inside))))

    first, second, third = np.histogram(found, [0, 10, 20, 30])[0]
    assert second == 0
    if inside == "uniform":     # 4000.5 rounds up, and takes half a request from the third bin: 6001 in all
        assert (first, third) == (4001, 2000)
    else:                       # standard deviations 63 and 45
        assert abs(first - 4000.5) < 400
        assert abs(third - 2000.5) < 300
    assert (np.diff(found) >= 0).all()
    assert found[found < 10].mean() == pytest.approx(5.0, abs=0.3)      # standard error 0.05


@pytest.mark.parametrize(("text", "message"), [
    ("bin_start_s,count\n0,1\n60,x\n", 'c.csv:3: count: expected a number from 0 to 1e\\+09, found "x"'),
    ("bin_start_s,count\n0,1\n60,1\n90,1\n", "c.csv:4: bin_start_s: expected bins of equal length, ascending, the next "
     "at 120, found 90"),
    ("bin_start_s,count\n0,1\n", "one bin_start_s does not tell how long a bin is"),
    ("bin_start_s,count\n0,0\n60,0\n", "nobody arrives")])
def test_counts_that_say_nothing_are_refused(text, message, tmp_path):
    (tmp_path / "c.csv").write_text(text)
    with pytest.raises(InputErrors, match=message):
        drawn_s(None, RateChoice(kind="counts", parameters=CountsParameters(path=str(tmp_path / "c.csv"))))


def test_numbers_of_arrivals_follow_the_integral_of_the_rate():
    day = RateChoice(kind="diurnal", parameters=DiurnalParameters(mean_per_s=2.0))
    found = np.array(drawn_s(process("poisson"), day, duration_s=86_400.0))

    # 172,800 in all; 0 to 6 h: 6 h of 2/s less swing 1.2 * 24 h / 2 pi = 4.583 h, of a Poisson number
    per_quarter = np.histogram(found, np.arange(5) * 21_600)[0]
    few, many = (2.0 * 6 - 1.2 * 24 / (2 * np.pi)) * 3600, (2.0 * 6 + 1.2 * 24 / (2 * np.pi)) * 3600
    for number, mean in zip(per_quarter, (few, many, many, few), strict=True):
        assert abs(number - mean) < 6 * mean ** 0.5


def test_no_process_is_poisson():
    rate = steps((0.0,), (3.0,))

    assert drawn_s(None, rate, count=9) == drawn_s(process("poisson"), rate, count=9)
    assert drawn_s(process("poisson", rate_per_s=3.0), rate, count=9) == drawn_s(None, rate, count=9)


def test_time_scale_multiplies_the_times_and_not_the_rate():
    rate = steps((0.0, 10.0), (1.0, 3.0))

    assert drawn_s(CONSTANT, rate, duration_s=11.0, time_scale=2.0) == [
        pytest.approx(2 * at, abs=2e-9) for at in drawn_s(CONSTANT, rate, duration_s=11.0)]


def test_e6_vllm_stretches_to_an_exact_end():
    def gaps():
        return np.random.RandomState(0)

    plain = drawn_s(process("gamma", rate_per_s=10.0), count=5, gaps=gaps())
    stretched = drawn_s(process("gamma", rate_per_s=10.0, rescale_to_rate=True), count=5, gaps=gaps())

    assert plain == pytest.approx([0.0795875, 0.2051805, 0.2975028, 0.3762230, 0.4313278], abs=1e-7)
    assert stretched == pytest.approx([0.0922587, 0.2378476, 0.3448686, 0.4361218, 0.5], abs=1e-7)


@pytest.mark.parametrize(("ramp", "end", "expected"), [
    ("linear", 5.0, [1, 1.5, 1.8333, 2.0833, 2.2833]), ("exponential", 4.0, [1, 1.7071, 2.2071, 2.5607, 2.8107])])
def test_e7_ramps_go_by_the_number_of_the_request(ramp, end, expected):
    rising = process("constant", ramp=ramp, start_rate_per_s=1.0, end_rate_per_s=end)

    assert drawn_s(rising, count=5) == pytest.approx(expected, abs=1e-4)
    assert len(drawn_s(rising, count=5, duration_s=2.0)) == sum(at < 2 for at in expected)


@pytest.mark.parametrize(("keys", "message"), [
    ({"ramp": "linear", "start_rate_per_s": 1.0}, "needs start_rate_per_s and end_rate_per_s"),
    ({"ramp": "linear", "start_rate_per_s": 2.0, "end_rate_per_s": 1.0}, "end_rate_per_s 1 is below"),
    ({"ramp": "linear", "start_rate_per_s": 1.0, "end_rate_per_s": 1.0, "rate_per_s": 1.0}, "goes without rate_per_s"),
    ({"start_rate_per_s": 1.0}, 'take ramp = "linear"'), ({"rescale_to_rate": True}, "needs rate_per_s")])
def test_what_is_no_ramp_is_refused(keys, message):
    with pytest.raises(ValueError, match=message):
        arrivals.RateParameters(**keys)


RAMP = {"ramp": "linear", "start_rate_per_s": 1.0, "end_rate_per_s": 2.0}


@pytest.mark.parametrize(("arrival", "rate", "ends", "message"), [
    (process("constant"), None, {"count": 3}, "workload.arrival.rate_per_s: missing; give it, or a ramp"),
    (process("constant", rate_per_s=2.0), steps((0.0,), (3.0,)), {"count": 3}, "2 disagrees with .*, whose mean is 3"),
    (process("constant", **RAMP), steps((0.0,), (3.0,)), {"count": 3}, "workload.arrival.ramp: goes by the number"),
    (process("constant", **RAMP), None, {"duration_s": 3.0}, "workload.num_requests: missing; a ramp"),
    (process("burst", size=2, interval_s=1.0), steps((0.0,), (3.0,)), {"count": 3}, '"burst" has times of its own'),
    (CONSTANT, steps((0.0, 2.0), (3.0, 0.0)), {"count": 7}, "ends after 6 requests, expected 7"),
    (CONSTANT, steps((0.0,), (1e9,)), {"duration_s": 10.0}, "more than 1000000000 requests"),
    (CONSTANT, steps((0.0, 5.0), (0.0, 1.0)), {"duration_s": 5.0}, "no request arrives before 5 s")])
def test_what_does_not_fit_together_is_refused(arrival, rate, ends, message):
    with pytest.raises(InputErrors, match=message):
        drawn_s(arrival, rate, **ends)


def test_arrivals_of_a_file_are_taken_as_they_are(tmp_path):
    (tmp_path / "t.csv").write_text("arrived_at,x\n2.5,1\n0.5,1\n4,1\n")
    recorded = Arrival(process="trace", parameters=TimesParameters(path=str(tmp_path / "t.csv")))

    assert drawn_s(recorded) == [0.5, 2.5, 4]
    assert drawn_s(recorded, count=2) == [0.5, 2.5]
    assert drawn_s(recorded, duration_s=4.0) == [0.5, 2.5]
    with pytest.raises(InputErrors, match="num_requests: the file says when 3 requests come, expected 4"):
        drawn_s(recorded, count=4)
    with pytest.raises(InputErrors, match='"trace" has times of its own'):
        drawn_s(recorded, steps((0.0,), (3.0,)), count=2)
