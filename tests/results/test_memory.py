"""Tables that stay in memory."""
import numpy as np
import pytest

from results.fakes import iterations_of
from simulator.results import tables
from simulator.results.growing_table import GrowingTable


@pytest.mark.parametrize("pieces", [[], [0], [1], [3, 1, 0, 2], [1] * 40, [5, 1000, 7, 20_000]])
def test_rows_that_come_in_pieces_are_one_table(pieces):
    expected = iterations_of(sum(pieces))
    table, buffer = GrowingTable(tables.ITERATION), iterations_of(max(pieces, default=0))
    first = 0
    for number in pieces:
        buffer[:number] = expected[first:first + number]
        table.append(buffer[:number])
        buffer.view(np.uint8)[:] = 255          # the memory of what was taken is used again
        first += number

    rows = table.rows()

    assert rows.dtype == tables.ITERATION
    for name in tables.ITERATION_FIELDS:
        assert rows[name].tolist() == expected[name].tolist()
