"""Tables that stay in memory."""
import numpy as np
import pytest

from results.fakes import iterations_of, legs_of, output_of, small_run
from simulator.domain import records
from simulator.results import tables
from simulator.results.growing_table import GrowingTable
from simulator.results.memory import MemoryRecorder


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


def test_every_table_of_a_run_in_memory_is_found_by_its_name():
    run = small_run()
    run.legs = legs_of([(1, 0, 5, 5, 12, "moved"), (1, 0, 9, 12, 30, "completed")])

    made = MemoryRecorder(output_of(), run.workload, streams={"decisions": records.DECISION}).finish(run)

    assert (made.num_rows("legs"), made.num_rows("decisions"), made.num_rows("lifecycle")) == (2, 0, None)
    assert made.columns("legs", ("request", "none"))["request"].tolist() == [1, 1]
    assert [block["request"].tolist() for block in made.column_blocks("legs", ("request",))] == [[1, 1]]
    with pytest.raises(LookupError, match="all replicas were up all the time"):
        made.table("lifecycle")
