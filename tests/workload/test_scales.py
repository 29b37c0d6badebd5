"""Stretching a trace."""
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.domain.records import named_stream, own_stream
from simulator.errors import InputErrors
from simulator.workload.columns import Columns, Prompts
from simulator.workload.limits import MISSING
from simulator.workload.scales import cut, scale


def columns(arrival_ns=(0,), prompt=(1,), output=(1,), **others):
    n = max(len(arrival_ns), len(prompt), len(output))
    arrays = (np.resize(np.array(values, np.int64), n) for values in (arrival_ns, prompt, output))
    return Columns(*arrays, **others)


def prompts_of(scaled):
    begins = np.cumsum(scaled.prompts.num_segments) - scaled.prompts.num_segments
    segments = list(zip(scaled.prompts.streams.tolist(), scaled.prompts.num_tokens.tolist(), strict=True))
    return [segments[b:b + n] for b, n in zip(begins, scaled.prompts.num_segments, strict=True)]


def test_time_scale_multiplies_the_gaps_and_keeps_the_first_arrival():
    assert scale(columns([100, 110, 130]), time=2.5).arrival_ns.tolist() == [100, 125, 175]


def test_scaled_times_are_rounded_to_the_nearest_nanosecond():
    assert scale(columns([0, 1, 3]), time=0.5).arrival_ns.tolist() == [0, 1, 2]     # halves go up


def test_lengths_are_rounded_and_prompts_keep_a_token():
    scaled = scale(columns(prompt=[1, 10, 11, 3]), prefill=0.25)

    assert scaled.prompt_tokens.tolist() == [1, 3, 3, 1]        # 0.25, 2.5, 2.75, 0.75


def test_outputs_stay_nothing_or_something():
    scaled = scale(columns(output=[0, 1, 6], max_tokens=np.array([MISSING, 2, 12])), decode=0.25)

    assert scaled.output_tokens.tolist() == [0, 1, 2]           # 0, 0.25, 1.5
    assert scaled.max_tokens.tolist() == [MISSING, 1, 3]        # so does what was declared


def test_shared_prefixes_stay_equal_and_segments_add_up():
    sys, doc = named_stream(0), named_stream(1)
    prompts = Prompts(np.array([3, 0, 2]), np.array([sys, doc, own_stream(0), sys, own_stream(2)]),
                      np.array([5, 3, 3, 5, 100]))

    scaled = scale(columns([0, 1, 2], [11, 7, 105], prompts=prompts), prefill=0.5)

    # Boundaries 5, 8, 11 become 2.5 -> 3, 4, 5.5 -> 6; boundaries 5, 105 become 3, 52.5 -> 53.
    assert prompts_of(scaled) == [[(sys, 3), (doc, 1), (own_stream(0), 2)], [], [(sys, 3), (own_stream(2), 50)]]
    assert scaled.prompt_tokens.tolist() == [6, 4, 53]


def test_segments_that_vanish_are_dropped():
    prompts = Prompts(np.array([2, 2]), np.array([0, 1, 4, 5]), np.array([2, 98, 1, 1]))

    scaled = scale(columns(prompt=[100, 2], prompts=prompts), prefill=0.1)

    # 2, 100 become 0, 10: only the second segment is left; 1, 2 become 0, 0: one token of the last segment remains.
    assert prompts_of(scaled) == [[(1, 10)], [(5, 1)]]


@given(st.lists(st.lists(st.integers(1, 2000), max_size=4), min_size=1, max_size=8), st.floats(1e-4, 1000))
def test_segments_always_add_up_to_the_prompt(prompts, factor):
    counts = np.array([len(segments) for segments in prompts])
    tokens = np.array([n for segments in prompts for n in segments], dtype=np.int64)
    lengths = [sum(segments) or 7 for segments in prompts]

    scaled = scale(columns(prompt=lengths, prompts=Prompts(counts, np.arange(len(tokens)), tokens)), prefill=factor)

    for length, count, segments in zip(scaled.prompt_tokens, counts, prompts_of(scaled), strict=True):
        assert length >= 1
        assert sum(n for _, n in segments) == (length if count else 0)
        assert all(n >= 1 for _, n in segments)


@pytest.mark.parametrize(("scales", "message"), [
    ({"prefill": 1e6}, "workload.prefill_scale: 1e\\+06 makes 3e\\+09 prompt tokens, at most 2.14748e\\+09"),
    ({"decode": 1e6}, "workload.decode_scale: 1e\\+06 makes 4e\\+09 output tokens"),
    ({"time": 1e9}, "workload.time_scale: 1e\\+09 makes 1e\\+19 ns of trace, at most 9e\\+18"),
])
def test_a_scale_that_makes_too_much_is_refused(scales, message):
    with pytest.raises(InputErrors, match=message):
        scale(columns([0, 10**10], [3000], [4000]), **scales)


def test_scales_of_one_change_nothing():
    given_columns = columns([5, 6], [7, 8], [9, 10])

    assert scale(given_columns) is given_columns


def test_what_is_too_long_is_cut_off_the_end_of_the_prompt():
    sys, doc = named_stream(0), named_stream(1)
    prompts = Prompts(np.array([2, 0, 2, 2]), np.array([sys, doc, sys, own_stream(2), sys, doc]),
                      np.array([5, 3, 5, 100, 5, 3]))
    found = cut(columns([0, 1, 2, 3], [8, 70, 105, 8], [2, 4, 4, 30], prompts=prompts), 10)

    # 8 + 2 fit; 70 lose 64, 105 lose 99: 5 of the first stream and 1 of the own; 30 outputs are 9, behind one token
    assert found.prompt_tokens.tolist() == [8, 6, 6, 1]
    assert found.output_tokens.tolist() == [2, 4, 4, 9]
    assert prompts_of(found) == [[(sys, 5), (doc, 3)], [], [(sys, 5), (own_stream(2), 1)], [(sys, 1)]]


@pytest.mark.parametrize("others", [{"adds_to": np.array([-1])}, {"facts": {"image_tokens": np.array([3])}}])
def test_prompts_that_grow_or_show_something_are_not_cut(others):
    with pytest.raises(InputErrors, match=r"workload\.max_text_tokens: expected none where prompts"):
        cut(columns(prompt=[100], **others), 10)
