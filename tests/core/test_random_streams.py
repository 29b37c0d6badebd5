"""Named random streams."""
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from simulator.core.random_streams import RandomStreams


def draws(seed, name, count=8):
    return RandomStreams(seed).generator(name).random(count).tolist()


def test_a_stream_depends_on_seed_and_name_alone():
    streams = RandomStreams(7)
    streams.generator("lengths").random(1000)

    assert streams.generator("arrivals").random(8).tolist() == draws(7, "arrivals")


def test_a_stream_is_that_of_its_published_key():
    # Key: the seed, and the bytes of the name as spawn key; "ab" is (97, 98).
    expected = np.random.Generator(np.random.PCG64(np.random.SeedSequence(7, spawn_key=(97, 98))))

    assert draws(7, "ab") == expected.random(8).tolist()


def test_each_call_returns_the_start_of_the_stream():
    streams = RandomStreams(7)

    assert streams.generator("a").random() == streams.generator("a").random()


@given(st.integers(0, 2**63 - 1), st.text(), st.text())
def test_streams_of_different_names_differ(seed, one, other):
    assert (draws(seed, one) == draws(seed, other)) == (one == other)


def test_streams_of_different_seeds_differ():
    assert draws(1, "a") != draws(2, "a")
