"""The column `prompt`: who shares what."""
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from simulator.domain.records import named_stream, output_stream, own_stream
from simulator.errors import InputErrors
from simulator.workload.build import build_workload
from simulator.workload.columns import in_arrival_order
from simulator.workload.formats.native_csv import NativeCsv


def build(rows, ids=None, arrivals=None, max_requests=0):
    """Return the workload of (prompt tokens, prompt) rows, one output token each."""
    header = "arrived_at,num_prefill_tokens,num_decode_tokens,prompt" + (",request_id" if ids else "")
    lines = [f"{arrivals[i] if arrivals else i},{tokens},1,{prompt}" + (f",{ids[i]}" if ids else "")
             for i, (tokens, prompt) in enumerate(rows)]
    columns = NativeCsv().read("t.csv", "\n".join([header, *lines]).encode())
    return build_workload(replace(in_arrival_order(columns), most=max_requests))


def prompts(workload):
    """Return each request's segments as (stream, tokens)."""
    return [workload.segments[each["segments_begin"]:each["segments_begin"] + each["num_segments"]].tolist()
            for each in workload.demands]


def fault(*args, **kwargs):
    with pytest.raises(InputErrors) as caught:
        build(*args, **kwargs)
    [only] = caught.value.faults
    return only


def test_a_prompt_is_a_list_of_named_and_own_streams():
    found = prompts(build([(1552, "sys:512/doc7:1000/:40"), (600, "sys:512/:88")]))

    sys, doc7 = found[0][0][0], found[0][1][0]
    assert found == [[(sys, 512), (doc7, 1000), (own_stream(0), 40)], [(sys, 512), (own_stream(1), 88)]]
    assert sys != doc7
    assert sys & 3 == doc7 & 3 == named_stream(0)


def test_a_prompt_of_its_own_has_no_segments():
    built = build([(40, ":40"), (40, ""), (40, "0:40"), (41, ":40/:1")])

    # The third is the stream named "0", shared with nobody so far; the last repeats its own first token.
    assert built.demands["num_segments"].tolist() == [0, 0, 1, 2]


def test_empty_segments_are_dropped():
    found = prompts(build([(40, "sys:0/a:40/:0")]))

    assert found == [[(found[0][0][0], 40)]]


def test_streams_of_other_requests_are_named_by_id():
    built = build([(40, ":40"), (75, "r-a.own:40/r-a.out:15/:20")], ids=["r-a", "r-b"])

    assert prompts(built) == [[(own_stream(0), 40)], [(own_stream(0), 40), (output_stream(0), 15), (own_stream(1), 20)]]
    assert built.prompts_use_outputs


def test_a_prompt_that_another_refers_to_keeps_its_segment():
    assert prompts(build([(40, ""), (40, ""), (40, "1.own:40")])) == [
        [], [(own_stream(1), 40)], [(own_stream(1), 40)]]


def test_without_outputs_in_prompts_the_workload_says_so():
    assert not build([(40, ":40"), (40, "0.own:30/:10")]).prompts_use_outputs


def test_integer_ids_are_found():
    built = build([(40, ":40"), (40, "70.own:40")], ids=[70, 3])

    assert prompts(built) == [[(own_stream(0), 40)], [(own_stream(0), 40)]]


def test_streams_follow_their_requests_when_rows_are_sorted():
    # Row 0 arrives last and continues row 2, which arrives first: rows in arrival order are 2, 1, 0.
    built = build([(30, "2.own:10/2.out:5/:15"), (10, "s:4/:6"), (10, ":10")], arrivals=[3, 2, 1])

    assert prompts(built) == [
        [(own_stream(0), 10)],
        [(built.segments["stream"][1], 4), (own_stream(1), 6)],
        [(own_stream(0), 10), (output_stream(0), 5), (own_stream(2), 15)]]


def test_a_cut_keeps_the_segments_of_what_remains():
    built = build([(40, ""), (41, "a:40/:1"), (42, "0.own:42")], max_requests=2)

    assert built.demands["num_segments"].tolist() == [1, 2]
    assert len(built.segments) == 3


def test_names_may_hold_colons_dots_and_quotes():
    built = build([(30, '"a:b:10/v1.5:10/""q"":10"'), (10, '"""q"":10"')])

    assert built.demands["num_segments"].tolist() == [3, 1]
    assert built.segments["stream"][2] == built.segments["stream"][3]


@pytest.mark.parametrize(
    "prompt", ["sys", "sys:", "sys:x", "sys:-1/:41", "sys:40/", "/sys:40", "sys:2147483648", "sys: 40"])
def test_a_malformed_prompt_is_a_fault(prompt):
    assert fault([(40, prompt)]) == (
        "t.csv:2: prompt: expected segments stream:tokens joined by /, tokens an integer from 0 to 2147483647, "
        f'found "{prompt}"')


def test_segments_add_up_to_the_prompt():
    assert fault([(40, ":40"), (41, "sys:20/:20")]) == (
        "t.csv:3: prompt: expected segments of 41 tokens together (num_prefill_tokens), found 40")


@pytest.mark.parametrize(
    ("prompt", "ids"), [("9.own:40", None), ("x.out:40", None), (".own:40", None), ("b.own:40", ["a"])])
def test_a_reference_to_nobody_is_a_fault(prompt, ids):
    assert fault([(40, prompt)], ids=ids) == (
        f't.csv:2: prompt: expected the id of a request before .own or .out, found "{prompt.partition(".o")[0]}"')


def test_a_prompt_cannot_hold_its_own_output():
    assert fault([(40, ":40"), (40, "1.out:40")]) == "t.csv:3: prompt: expected other requests' outputs, found its own"


STREAMS = st.sampled_from(["", "sys", "doc", "0.own", "1.out"])
SEGMENTS = st.lists(st.tuples(STREAMS, st.integers(0, 9)), min_size=1, max_size=5)


@given(st.lists(SEGMENTS, min_size=1, max_size=6), st.permutations(range(8)))
def test_segments_read_as_written(texts, arrivals):
    # Rows 0 and 1 exist and are plain, so that what refers to them is valid.
    texts = [[("", 5)], [("", 5)], *([*segments, ("end", 1)] for segments in texts)]
    rows = [(sum(n for _, n in segments), "/".join(f"{stream}:{n}" for stream, n in segments)) for segments in texts]

    built = build(rows, arrivals=arrivals)

    place = {int(row): place for place, row in enumerate(built.request_ids)}
    assert (built.segments["num_tokens"] > 0).all()
    for row, segments in enumerate(texts):
        found = prompts(built)[place[row]]
        if row < 2:
            assert found in ([], [(own_stream(place[row]), 5)])
            continue
        expected = [(stream, n) for stream, n in segments if n]
        assert [n for _, n in found] == [n for _, n in expected]
        known = {"": own_stream(place[row]), "0.own": own_stream(place[0]), "1.out": output_stream(place[1])}
        for (code, _), (stream, _) in zip(found, expected, strict=True):
            assert code == known[stream] if stream in known else code & 3 == named_stream(0)
