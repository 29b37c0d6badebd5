"""Events from bytes, whatever pieces they come in."""
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.study.observe.sse import Event, EventParser


def parsed(*pieces):
    parser = EventParser()
    return [event for piece in pieces for event in parser.feed(piece)]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=["lf", "crlf", "cr"])
def test_an_event_ends_with_an_empty_line_of_each_kind(end):
    assert parsed(b"data: a" + end + end + b"data: b" + end + end) == [Event("", b"a"), Event("", b"b")]


def test_several_data_lines_are_joined():
    assert parsed(b"data: a\ndata:b\ndata:  c\n\n") == [Event("", b"a\nb\n c")]    # one blank is no part of the data


def test_comments_and_other_fields_are_no_data():
    assert parsed(b": ping\n\nid: 7\nretry: 10\n\ndata: a\n: between\nid: 8\n\n") == [Event("", b"a")]


def test_an_event_has_a_name():
    assert parsed(b"event: error\ndata: {}\n\n") == [Event("error", b"{}")]


def test_an_event_that_no_empty_line_ends_is_none():
    assert parsed(b"data: a\n\ndata: b\n") == [Event("", b"a")]


def test_a_line_without_colon_is_a_field_without_value():
    assert parsed(b"data\n\n") == [Event("", b"")]


def test_the_mark_of_utf_8_is_no_part_of_the_first_line():
    assert parsed(b"\xef", b"\xbb\xbf", b"data: a\n\n") == [Event("", b"a")]


def test_a_character_may_come_in_two_pieces():
    whole = "data: süß\n\n".encode()

    assert parsed(whole[:8], whole[8:]) == [Event("", "süß".encode())]      # between the two bytes of ü
    assert whole[7:9].decode() == "ü"


def test_a_line_feed_may_come_after_its_carriage_return():
    pieces = b"data: a\r", b"\ndata: b\r", b"\n\r", b"\ndata: c\r\n\r\n"

    assert parsed(*pieces) == [Event("", b"a\nb"), Event("", b"c")]


LINES = st.lists(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"])), min_size=1)


@settings(max_examples=50)
@given(texts=st.lists(LINES),
       end=st.sampled_from(["\n", "\r\n", "\r"]), cuts=st.lists(st.integers(0, 200)))
def test_where_bytes_are_cut_changes_nothing(texts, end, cuts):
    stream = "".join("".join(f"data: {line}{end}" for line in lines) + end for lines in texts).encode()
    places = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    pieces = [stream[begin:stop] for begin, stop in pairwise(places)]

    assert parsed(*pieces) == [Event("", "\n".join(lines).encode()) for lines in texts]
