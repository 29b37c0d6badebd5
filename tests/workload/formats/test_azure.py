"""Azure's traces."""
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.errors import InputErrors
from simulator.workload.formats.azure import Azure

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens"


def read(*times):
    return Azure(None).read("a.csv", "\n".join([HEADER, *(f"{time},3,4" for time in times)]).encode())


def fault(time):
    with pytest.raises(InputErrors) as caught:
        read("2023-11-16 18:15:46", time)
    [only] = caught.value.faults
    return only


def test_times_of_2023_have_seven_digits_and_start_at_zero():
    columns = read("2023-11-16 18:15:46.6805900", "2023-11-16 18:15:50.9951690")

    assert columns.arrival_ns.tolist() == [0, 4_314_579_000]
    assert columns.prompt_tokens.tolist() == [3, 3]
    assert columns.output_tokens.tolist() == [4, 4]


def test_times_of_2024_have_a_zone():
    columns = read("2024-05-12 00:00:00.001163+00:00", "2024-05-12 00:00:01+00:00", "2024-05-12 02:30:02+02:30",
                   "2024-05-11T19:00:03-05:00", "2024-05-12 00:00:04Z")

    assert columns.arrival_ns.tolist() == [0, 998_837_000, 1_998_837_000, 2_998_837_000, 3_998_837_000]


def test_days_months_and_leap_years_are_counted():
    day = 86_400 * 10**9

    # 2024 is a leap year, 2023 is none; 2100 is none
    assert read("2024-02-28 00:00:00", "2024-03-01 00:00:00").arrival_ns[1] == 2 * day
    assert read("2023-02-28 00:00:00", "2023-03-01 00:00:00").arrival_ns[1] == day
    assert read("2100-02-28 00:00:00", "2100-03-01 00:00:00").arrival_ns[1] == day
    assert read("2023-12-31 23:59:59", "2024-01-01 00:00:00").arrival_ns[1] == 10**9


DATES = st.datetimes(datetime(1970, 1, 2), datetime(2199, 12, 30))


@given(DATES, DATES, st.integers(-14 * 60, 14 * 60))
def test_differences_are_those_of_the_calendar(one, other, zone_minutes):
    one = one.replace(tzinfo=timezone(timedelta(minutes=zone_minutes)))
    other = other.replace(tzinfo=UTC)

    gap = (other - one) // timedelta(microseconds=1) * 1000

    assert read(one.isoformat(" "), other.isoformat(" ")).arrival_ns.tolist() == [max(-gap, 0), max(gap, 0)]


@pytest.mark.parametrize("time", [
    "", "x", "2023-11-16", "2023-11-16 18:15", "2023-13-01 00:00:00", "2023-02-29 00:00:00", "2023-00-01 00:00:00",
    "2023-04-31 00:00:00", "2023-01-00 00:00:00", "2023-01-01 24:00:00", "2023-01-01 00:60:00", "2023-01-01 00:00:60",
    "2023-01-01 00:00:00.", "2023-01-01 00:00:00+1:00", "2023-01-01 00:00:00+24:00", "2023-01-01 00:00:00.5x",
    "2023/01/01 00:00:00", "1969-12-31 23:59:59", "2200-01-01 00:00:00", "1970-01-01 00:00:00+01:00",
])
def test_what_is_no_time_is_a_fault(time):
    assert fault(time) == f'a.csv:3: TIMESTAMP: expected a time like 2023-11-16 18:15:46.6805900, found "{time}"'


def test_other_columns_are_ignored_and_missing_ones_are_faults():
    text = b"x,TIMESTAMP,GeneratedTokens,ContextTokens\n,2023-11-16 18:15:46,1,2"

    assert Azure(None).read("a.csv", text).prompt_tokens.tolist() == [2]
    with pytest.raises(InputErrors, match=r'a\.csv:1: column "GeneratedTokens" is missing'):
        Azure(None).read("a.csv", b"TIMESTAMP,ContextTokens\n")


def test_r9_times_of_2025_are_iso_8601_and_images_are_counted():
    columns = Azure(None).read("a.csv", (
        b"TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n2024-10-15T12:00:00.269Z,1,1400,20\n"
        b"2024-10-15T12:00:01.000Z,0,300,50\n"))

    assert columns.arrival_ns.tolist() == [0, 731_000_000]
    assert (columns.prompt_tokens.tolist(), columns.output_tokens.tolist()) == ([1400, 300], [20, 50])
    assert columns.notes == ("a.csv: 1 requests have images, 1 in all; their tokens are in ContextTokens, their "
                             "encoding takes no time here.",)


def test_rows_out_of_order_are_told():
    assert read("2023-11-16 18:15:46", "2023-11-16 18:15:45", "2023-11-16 18:15:47").notes == (
        "a.csv: 1 row is earlier than the one above; all are sorted by time.",)
