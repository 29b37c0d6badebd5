"""Drawn workloads."""
import numpy as np
import pytest

from simulator.core.random_streams import RandomStreams
from simulator.domain.records import named_stream, own_stream
from simulator.errors import InputErrors
from simulator.workload.build import build_workload
from simulator.workload.drawing import arrivals, lengths
from simulator.workload.drawing.choices import LengthChoice
from simulator.workload.drawing.timing import Arrival
from simulator.workload.presets.own import OwnParameters, SystemPrompts
from simulator.workload.types.synthetic import Synthetic, SyntheticParameters


def constant(tokens):
    return LengthChoice(distribution="constant", parameters=lengths.ConstantParameters(tokens=tokens))


def uniform(low, high):
    return LengthChoice(distribution="uniform", parameters=lengths.UniformParameters(min=low, max=high))


def every(seconds):
    return Arrival(process="constant", parameters=arrivals.RateParameters(rate_per_s=1 / seconds))


POISSON = Arrival(process="poisson", parameters=arrivals.RateParameters(rate_per_s=10.0))


def build(seed=1, **parameters):
    lengths = {"prompt_tokens": constant(100), "output_tokens": constant(20)}
    lengths |= {key: parameters.pop(key) for key in OwnParameters.__struct_fields__ if key in parameters}
    given = SyntheticParameters(parameters=OwnParameters(**lengths), **({"arrival": every(0.5)} | parameters))
    return build_workload(Synthetic(given).columns(RandomStreams(seed)))


def test_requests_arrive_and_are_as_long_as_asked_for():
    built = build(num_requests=3)

    assert built.requests["arrival_ns"].tolist() == [500_000_000, 1_000_000_000, 1_500_000_000]
    assert built.requests["prompt_tokens"].tolist() == [100, 100, 100]
    assert built.outcomes["output_tokens"].tolist() == [20, 20, 20]
    assert built.demands["max_tokens"].tolist() == [20, 20, 20]
    assert built.request_ids.tolist() == [0, 1, 2]
    assert len(built.segments) == 0


def test_a_duration_ends_the_arrivals():
    assert len(build(duration_s=1.5)) == 2
    assert len(build(duration_s=1.5, num_requests=1)) == 1


def test_equal_seeds_give_equal_workloads_and_others_do_not():
    def drawn(seed):
        return build(seed, num_requests=50, arrival=POISSON, prompt_tokens=uniform(1, 1000)).requests

    assert (drawn(1) == drawn(1)).all()
    assert not (drawn(1) == drawn(2)).any()


def test_changing_one_property_leaves_the_others():
    one = build(num_requests=50, arrival=POISSON, prompt_tokens=uniform(1, 1000), output_tokens=uniform(1, 9))
    other = build(num_requests=50, arrival=POISSON, prompt_tokens=constant(5), output_tokens=uniform(1, 9),
                  system_prompts=SystemPrompts(num_tokens=4))

    assert (one.requests["arrival_ns"] == other.requests["arrival_ns"]).all()
    assert (one.outcomes == other.outcomes).all()


def test_more_requests_begin_with_the_same_ones():
    few, many = (build(num_requests=n, arrival=POISSON, prompt_tokens=uniform(1, 1000)).requests for n in (50, 500))

    assert (few == many[:50]).all()


def test_a_system_prompt_stands_in_front_of_all():
    built = build(num_requests=2, system_prompts=SystemPrompts(num_tokens=512))

    assert built.requests["prompt_tokens"].tolist() == [612, 612]
    assert built.segments.tolist() == [(0, 512), (own_stream(0), 100), (0, 512), (own_stream(1), 100)]
    assert built.demands["segments_begin"].tolist() == [0, 2]
    assert not built.prompts_use_outputs


def test_each_question_of_each_system_prompt_comes_once_and_then_all_again_in_that_order():
    built = build(num_requests=15, prompt_tokens=uniform(1, 1000), output_tokens=uniform(1, 99),
                  system_prompts=SystemPrompts(num_tokens=512, num_prompts=3, num_questions=2))
    pairs = [tuple(map(tuple, built.segments[begin:begin + 2].tolist())) for begin in built.demands["segments_begin"]]
    prefixes, questions = zip(*((prefix[0], question[0]) for prefix, question in pairs), strict=True)

    assert len(set(pairs[:6])) == 6 and pairs[:6] == pairs[6:12] and pairs[12:] == pairs[:3]
    assert sorted(prefixes[:6]) == [named_stream(number) for number in (0, 0, 1, 1, 2, 2)]
    assert not set(questions) & set(prefixes)                 # no question reads the tokens of a system prompt
    assert (built.outcomes[:6] == built.outcomes[6:12]).all()
    assert (built.requests["prompt_tokens"] == [512 + question[1] for _, question in pairs]).all()


@pytest.mark.parametrize("keys", [{"share": 0.5}, {"popularity": "zipf"}, {"num_prompts": 2**24}])
def test_questions_of_which_some_come_more_often_are_refused(keys):
    with pytest.raises(ValueError, match="num_questions"):
        SystemPrompts(num_tokens=4, num_questions=2, **keys)


def test_a_share_of_the_requests_has_a_system_prompt():
    built = build(num_requests=10_000, system_prompts=SystemPrompts(num_tokens=512, share=0.3))

    # binomial(10000, 0.3): standard deviation 46
    has_one = built.demands["num_segments"] == 2
    assert has_one.sum() == pytest.approx(3000, abs=300)
    assert (built.requests["prompt_tokens"] == np.where(has_one, 612, 100)).all()
    assert (built.demands["num_segments"][~has_one] == 0).all()


def test_no_share_is_no_system_prompt():
    assert len(build(num_requests=9, system_prompts=SystemPrompts(num_tokens=512, share=0.0)).segments) == 0


@pytest.mark.parametrize(("popularity", "expected"), [
    ("uniform", [10_000 / 3] * 3),
    ("zipf", [10_000 * 6 / 11, 10_000 * 3 / 11, 10_000 * 2 / 11]),      # 1 : 1/2 : 1/3
])
def test_system_prompts_are_chosen_by_popularity(popularity, expected):
    built = build(num_requests=10_000, system_prompts=SystemPrompts(num_tokens=5, num_prompts=3, popularity=popularity))

    assert np.bincount(built.segments["stream"][::2] >> 2).tolist() == pytest.approx(expected, abs=300)


@pytest.mark.parametrize(("parameters", "message"), [
    ({"duration_s": 0.1}, "workload.duration_s: no request arrives before 0.1 s"),
    ({"duration_s": 1e9, "arrival": every(1e-9)}, "workload.duration_s: 1e\\+09 s at 1e\\+09 requests/s are more than"),
    ({"duration_s": 1.0, "arrival": every(1e-320)}, "give num_requests or a lower rate"),
    ({"num_requests": 3, "arrival": every(4e9)}, "workload.arrival: the last request arrives after 9e\\+09 s"),
    ({"num_requests": 1, "prompt_tokens": constant(0)}, "workload.prompt_tokens: draws a prompt of 0 tokens"),
    ({"num_requests": 1, "system_prompts": SystemPrompts(num_tokens=2**31 - 1)},
     "workload.system_prompts.num_tokens: 2147483647 makes a prompt of 2147483747 tokens"),
])
def test_what_makes_no_workload_is_refused(parameters, message):
    with pytest.raises(InputErrors, match=message):
        build(**parameters)


def test_a_workload_needs_an_end():
    with pytest.raises(ValueError, match="give num_requests, duration_s, or both"):
        build()
