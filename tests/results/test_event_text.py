"""Numbers, times and texts filled into templates."""
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from simulator.results.event_text import EventText

NUMBERS = st.integers(-2**62, 2**62)


def test_each_event_takes_its_template_and_its_texts():
    text = EventText(["<a> at <b>", "no value", "<name>: <name>, <a>"], {"a": "integer", "b": "time", "name": "text"})
    values = np.array([[7, 1_234_567, 0], [0, 0, 0], [8, 0, 1], [-9, 1_000, 0]])

    written = text.write(np.array([0, 1, 2, 0], np.int8), values, ["ü".encode(), b"two"])

    assert written.tobytes().decode() == "7 at 1234.567,\nno value,\ntwo: two, 8,\n-9 at 1.000"


@given(st.lists(st.tuples(NUMBERS, NUMBERS), max_size=20))
def test_numbers_are_those_of_python(pairs):
    text = EventText(["<a> <b>"], {"a": "integer", "b": "time"}, "|")

    written = text.write(np.zeros(len(pairs), np.int8), np.array(pairs, np.int64).reshape(-1, 2)).tobytes().decode()

    assert written == "|".join(f"{a} {b // 1000}.{b % 1000:03d}" for a, b in pairs)
