"""Tables of studies fit a screen, whatever they hold, and lose nothing."""
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.study.telling.screen import lines_of, numbered, table_of, width_of

CELLS = st.one_of(
    st.text(max_size=12), st.text("abc._-/ ,", max_size=120), st.floats().map("{:.6g}".format),
    st.sampled_from(["workload.arrival.parameters.rate_per_s", "x" * 200, "日本語のプール" * 8, "a\nb\tc",
                     "e\u0301" * 60]))


@st.composite
def tables(draw):
    columns = draw(st.integers(1, 14))
    return draw(st.lists(st.lists(CELLS, min_size=columns, max_size=columns), min_size=1, max_size=5))


@given(tables(), st.integers(0, 14))
def test_no_line_is_wider_than_a_screen_and_nothing_is_lost(rows, keys):
    told = table_of(rows, keys)

    assert all(width_of(line) <= 80 for line in told.split("\n"))
    printed = "".join(told.split())
    for row in rows:
        for cell in row:
            letters = [each for each in cell if each.isprintable() and not each.isspace()]
            assert all(printed.count(each) >= letters.count(each) for each in letters)


@given(st.lists(CELLS).map(" ".join))
def test_sentences_fit_too(text):
    text = text.replace("\n", " ").replace("\t", " ")
    if text.isprintable():
        assert all(width_of(line) <= 80 for line in lines_of(text).split("\n"))


def test_a_table_that_fits_is_as_it_is():
    assert table_of([["rate", "verdict"], ["10", "pass"], ["200", "fail"]]) == (
        "rate  verdict\n  10     pass\n 200     fail")


def test_a_head_is_broken_where_that_is_enough():
    rows = [["workload.arrival.rate_per_s", *["ttft_ms.p99"] * 6], ["10", *["123.45 +- 1.2"] * 4, "1", "2"]]
    # 27 + 4 x 13 + 2 x 11 and six gaps are 113 columns; with two lines for a head 16 + 4 x 13 + 2 x 8 and gaps are 96
    told = table_of(rows)

    assert all(len(line) <= 80 for line in told.splitlines())
    assert told.splitlines()[0].split()[0] in ("workload.", "workload.arrival.")


def test_a_wide_table_is_cut_into_parts_that_begin_with_its_keys():
    rows = [["rank", *(f"objective_{i}" for i in range(12))], ["1", *["123,456.789 +- 12"] * 12],
            ["2", *["98.7"] * 12]]
    parts = table_of(rows).split("\n\n")

    assert len(parts) == 3 and all(part.splitlines()[1].startswith("   1  ") for part in parts)


@pytest.mark.parametrize(("text", "width"), [("abc", 3), ("日本", 4), ("e\u0301", 1)])
def test_width_is_that_of_a_terminal(text, width):
    assert width_of(text) == width


def test_lists_of_tables_are_numbered_below_a_table():
    one, two = '[{"name": "queue-depth", "weight": 1.0}]', "[]"
    assert numbered("scorers", [one, one, two]) == (["1", "1", "2"], [f"scorers 1: {one}", "scorers 2: []"])
    assert numbered("sizes", ["[1, 2]", "[3]"]) == (["[1, 2]", "[3]"], [])
    assert numbered("policy", ["a_router_with_a_long_name"]) == (["a_router_with_a_long_name"], [])
