"""Prompts as pieces of earlier texts."""
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from simulator.domain import records
from simulator.live.prompts import Texts

own, out = records.own_stream, records.output_stream


def ids(text):
    return np.frombuffer(text.encode(), np.uint8).astype(np.int32)


def test_the_pieces_of_a_conversation():
    texts = Texts()
    assert texts.add(0, ids("system:hello"), ids("WORLD")) == [(own(0), 12)]
    assert texts.add(1, ids("system:bye"), ids("")) == [(own(0), 7), (own(1), 3)]
    assert texts.add(2, ids("system:helloWORLDagain"), ids("X")) == [(own(0), 12), (out(0), 5), (own(2), 5)]
    assert texts.add(3, ids("system:helloWORLDagainXY"), ids("")) == [
        (own(0), 12), (out(0), 5), (own(2), 5), (out(2), 1), (own(3), 1)]
    assert texts.add(4, ids("system:by"), ids("")) == [(own(0), 7), (own(1), 2)]
    assert texts.add(5, ids("system:hello"), ids(""), "salt") == [(own(5), 12)]


def place_of(segments, token):
    """Return the name, stream and offset, of a token of a prompt."""
    for stream, tokens in segments:
        if token < tokens:
            return stream, token
        token -= tokens
    raise AssertionError


@given(st.lists(st.tuples(st.text("ab", min_size=1, max_size=12), st.text("AB", max_size=4)), max_size=12))
def test_equal_beginnings_have_equal_names(requests):
    texts, found = Texts(), []
    for row, (prompt, answer) in enumerate(requests):
        found.append((prompt, texts.add(row, ids(prompt), ids(answer))))
        assert sum(tokens for _, tokens in found[-1][1]) == len(prompt)
    for first, first_segments in found:
        for second, second_segments in found:
            for token in range(min(len(first), len(second))):
                same = place_of(first_segments, token) == place_of(second_segments, token)
                assert same == (first[:token + 1] == second[:token + 1])
