"""BurstGPT's traces."""
import pytest

from simulator.errors import InputErrors
from simulator.workload.formats.burstgpt import Burstgpt, BurstgptParameters

HEADER = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type"
R7 = (HEADER, "5,ChatGPT,472,18,490,Conversation log", "45,ChatGPT,1087,230,1317,Conversation log",
      "118,GPT-4,417,276,693,Conversation log")


def read(*lines, sessions=False, **keys):
    return Burstgpt(BurstgptParameters(**keys), sessions).read("b.csv", "\n".join(lines).encode())


def rows(columns):
    return list(zip((columns.arrival_ns / 1e9).tolist(), columns.prompt_tokens.tolist(), columns.output_tokens.tolist(),
                    strict=True))


def test_r7_the_first_row_that_is_kept_is_at_zero():
    assert rows(read(*R7)) == [(0, 472, 18), (40, 1087, 230), (113, 417, 276)]
    assert rows(read(*R7, model_filter="GPT-4")) == [(0, 417, 276)]
    assert read(*R7, model_filter="GPT-4").notes == ("b.csv: 2 of 3 rows are not of Model GPT-4 and were left out.",)


def test_calls_that_failed_are_dropped_and_counted_or_kept():
    lines = (HEADER, "1,ChatGPT,7,0,7,API log", "3.5,ChatGPT,8,9,17,API log")

    assert rows(read(*lines)) == [(0, 8, 9)]
    assert read(*lines).notes == ("b.csv: 1 calls that failed, of 2 rows, were left out.",)
    assert rows(read(*lines, failures="keep")) == [(0, 7, 0), (2.5, 8, 9)]


def test_columns_of_the_third_version_are_found_by_name():
    lines = ("Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type",
             "5,s1,1.5,GPT-4,10,11,21,Conversation log", "6,,2.0,GPT-4,12,13,25,API log")

    found = read(*lines, sessions=True)

    assert rows(found) == [(0, 10, 11), (1, 12, 13)]
    codes, names = found.labels["session"]
    assert (codes.tolist(), names) == ([0, -1], ["s1"])
    with pytest.raises(InputErrors, match='column "Session ID" is missing'):
        read(*R7, sessions=True)


def test_rows_out_of_order_are_told():
    assert read(HEADER, "5,A,1,1,2,x", "4,A,1,1,2,x").notes == (
        "b.csv: 1 row is earlier than the one above; all are sorted by time.",)


@pytest.mark.parametrize(("lines", "keys", "message"), [
    ((HEADER, "5,A,0,1,1,x"), {}, 'b.csv:2: Request tokens: expected an integer >= 1, found "0"'),
    ((HEADER, "5,A,x,1,1,x"), {}, 'b.csv:2: Request tokens: expected an integer >= 0, found "x"'),
    ((HEADER, "5,A,1,0,1,x"), {}, "b.csv: no row is left; all calls failed"),
    (R7, {"model_filter": "GPT4"}, 'b.csv: no row of Model "GPT4"; did you mean GPT-4'),
    (("Timestamp,Model", "1,A"), {}, 'column "Request tokens" is missing')])
def test_what_is_wrong_is_told(lines, keys, message):
    with pytest.raises(InputErrors, match=message):
        read(*lines, **keys)
