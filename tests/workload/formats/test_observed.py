"""observed.csv, replayed."""
import pytest

from simulator.errors import InputErrors
from simulator.workload.formats.observed import Observed

HEADER = "request_id,planned_s,sent_s,ttft_s,e2el_s,input_tokens,output_tokens,status,session,prompt"


def read(*lines, header=HEADER):
    return Observed().read("o.csv", "\n".join([header, *lines]).encode())


def test_requests_come_when_they_were_sent():
    found = read("a,1,1.25,0.1,0.5,40,5,ok,,", "b,0,0.5,0.1,0.5,30,6,ok,s,")

    assert found.arrival_ns.tolist() == [1_250_000_000, 500_000_000]        # not when they were planned
    assert (found.prompt_tokens.tolist(), found.output_tokens.tolist()) == ([40, 30], [5, 6])
    assert found.request_ids == ["a", "b"]
    codes, names = found.labels["session"]
    assert [names[code] if code >= 0 else None for code in codes.tolist()] == [None, "s"]
    assert found.notes == ("o.csv: 1 row is earlier than the one above; all are sorted by time.",)


def test_failures_are_left_out_and_told():
    found = read("a,0,0,,,40,,timeout,,g:16/:24", "b,0,1,0.1,0.5,30,6,ok,,g:16/:14", "c,0,2,,,,,http_500,,",
                 "d,0,3,,,8,,timeout,,")

    assert found.request_ids == ["b"]
    assert found.arrival_ns.tolist() == [1_000_000_000]
    assert found.prompts.num_tokens.tolist() == [16, 14]
    assert found.notes == ("o.csv: 3 of 4 requests failed (1 http_500, 2 timeout) and were left out.",)


def test_prompts_share_what_the_column_says():
    found = read("a,0,0,0.1,0.5,40,1,ok,,g:16/:24", "b,0,1,0.1,0.5,30,1,ok,,g:16/:14", "c,0,1,0.1,0.5,30,1,ok,,")

    assert found.prompts.num_segments.tolist() == [2, 2, 0]
    assert found.prompts.streams[0] == found.prompts.streams[2] != found.prompts.streams[1]


def test_a_cache_of_which_nobody_knows_who_shared_is_told():
    found = read("a,0,40,5,ok,16", header="request_id,sent_s,input_tokens,output_tokens,status,cached_tokens")

    assert "1 requests found tokens in the server's cache" in found.notes[0]


def test_all_faults_are_told_by_line():
    with pytest.raises(InputErrors) as caught:
        read("a,0,,0.1,0.5,0,,ok,,", "b,0,1,,,,,ok,,", "c,0,1,0.1,0.5,8,8,ok,,")

    assert caught.value.faults == (
        'o.csv:2: sent_s: expected a time with status = "ok", found ""',
        'o.csv:2: input_tokens: expected a number of at least 1 with status = "ok", found "0"',
        'o.csv:2: output_tokens: expected a number of at least 0 with status = "ok", found ""',
        'o.csv:3: input_tokens: expected a number of at least 1 with status = "ok", found ""',
        'o.csv:3: output_tokens: expected a number of at least 0 with status = "ok", found ""')


def test_ids_and_columns_are_checked():
    with pytest.raises(InputErrors, match=r'csv:3: request_id: expected an id that is not that of line 2, found "a"'):
        read("a,0,0,0.1,0.5,40,5,ok,,", "a,0,0,0.1,0.5,40,5,ok,,")
    with pytest.raises(InputErrors, match=r'unknown column "ttft_ms"; did you mean ttft_s\?'):
        read("a,0,40,5,ok,16", header="request_id,sent_s,input_tokens,output_tokens,status,ttft_ms")
    with pytest.raises(InputErrors, match=r"no request is left: none has status = \"ok\""):
        read("a,0,0,0.1,0.5,40,5,error,,")
