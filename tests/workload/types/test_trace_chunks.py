"""Traces that are read in chunks have the requests of traces that are read at once."""
import gzip
import json
import mmap

import numpy as np
import pytest

from simulator.errors import InputErrors
from simulator.workload import chunks
from simulator.workload.load import load
from simulator.workload.types import trace
from simulator.workload.types.trace_chunks import chunked
from support.every_key import read

COUNT, ROWS, PIECE = 5000, mmap.PAGESIZE // 4, 9999


@pytest.fixture(autouse=True)
def short_pieces(monkeypatch):
    monkeypatch.setattr(chunks, "CHUNK_ROWS", ROWS)
    monkeypatch.setattr(trace, "PIECE_BYTES", PIECE)


def rows():
    rng = np.random.default_rng(5)
    times_us = np.cumsum(rng.integers(0, 40_000, COUNT)) + 3_000_000
    prompts, outputs = rng.integers(1, 900, COUNT), rng.integers(0, 300, COUNT)
    return zip(times_us.tolist(), prompts.tolist(), outputs.tolist(), strict=True)


def csv(first="arrived_at,num_prefill_tokens,num_decode_tokens", unit=1e-6, more=lambda i: ""):
    return "\n".join([first, *(f"{us * unit:.9g},{prompt},{output}{more(i)}" for i, (us, prompt, output) in enumerate(
        rows()))]) + "\n"


def json_lines():
    return "".join(json.dumps({"timestamp": us / 1e6, "input_tokens": prompt, "output_tokens": output}) + "\n" * (1 + (
        us % 7 == 0)) for us, prompt, output in rows())


def azure(images=False):
    def time(us):
        return f"2024-05-10 {us // 3_600_000_000:02}:{us // 60_000_000 % 60:02}:{us / 1e6 % 60:09.6f}"

    lines = [f"{time(us)},{prompt},{output}{f',{output % 3}' * images}" for us, prompt, output in rows()]
    return "\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens" + ",NumImages" * images, *lines]) + "\n"


def burstgpt():
    lines = [f"{us / 1e6},{('ChatGPT', 'GPT-4')[us % 2]},{prompt},{output * (us % 5 > 0)},{us % 11}"
             for us, prompt, output in rows()]
    return "\n".join(["Timestamp,Model,Request tokens,Response tokens,Session ID", *lines]) + "\n"


def section(path, **keys):
    engine = {"num_gpu_blocks": 99, "max_model_len": 99}
    return read({"engine": engine, "latency": {"backend": "linear"}, "workload": {
        "type": "trace", "path": str(path)} | keys}).workload


def files_of(tmp_path, text, zipped=False):
    path = tmp_path / ("trace.csv.gz" if zipped else "trace.csv")
    path.write_bytes(gzip.compress(text.encode()) if zipped else text.encode())
    return path


CASES = {
    "csv": (csv(), {}),
    "other names": (csv("ts,prompt_len,completion_tokens", 1.0), {"time_unit": "us"}),
    "nanoseconds of a clock": (csv("ts,isl,osl", 1000.0), {"time_unit": "ns"}),
    "priorities and limits": (csv("arrived_at,num_prefill_tokens,num_decode_tokens,priority,max_tokens",
                                  more=lambda i: f",{i % 7 - 3},{'' if i % 3 else i % 50 + 1}"), {}),
    "scales": (csv(), {"time_scale": 0.3, "prefill_scale": 1.7, "decode_scale": 0.6, "max_text_tokens": 700}),
    "a window": (csv(), {"start_s": 20.0, "end_s": 60.0, "time_scale": 1.5}),
    "an end": (csv(), {"end_s": 50.0, "time_scale": 0.5}),
    "its own time": (csv(), {"time_origin": "trace", "time_scale": 2.0, "duration_s": 77.0}),
    "the first requests": (csv(), {"max_requests": 2345}),
    "sessions": (csv("arrived_at,num_prefill_tokens,num_decode_tokens,session", more=lambda i: f",s{i % 97}"), {}),
    "JSON Lines": (json_lines(), {}),
    "Azure": (azure(), {"format": "azure"}),
    "Azure with images": (azure(images=True), {"format": "azure", "start_s": 9.0}),
    "BurstGPT": (burstgpt(), {"format": "burstgpt", "model_filter": "GPT-4"}),
    "failures of BurstGPT": (burstgpt(), {"format": "burstgpt", "failures": "keep", "sessions": True}),
}


@pytest.mark.parametrize("name", CASES)
def test_each_request_is_the_same(tmp_path, name):
    text, keys = CASES[name]
    given = section(files_of(tmp_path, text, zipped=name == "csv"), **keys)
    whole, workload = load(given, 1), chunked(given, 1)
    count = len(whole)
    assert len(text) > 3 * PIECE and count > ROWS
    while workload.chunks.draw() < count:
        pass
    assert workload.requests.tobytes() == whole.requests.tobytes()
    assert workload.demands.tobytes() == whole.demands.tobytes()
    assert workload.outcomes.tobytes() == whole.outcomes.tobytes()
    assert workload.labels == whole.labels
    assert list(workload.request_ids) == list(whole.request_ids)
    assert workload.notes == whole.notes
    texts = whole.requests["prompt_tokens"].astype(np.int64) + np.maximum(whole.outcomes["output_tokens"], 1)
    assert workload.chunks.longest_text == texts.max()


def test_ids_are_left_out(tmp_path):
    path = files_of(tmp_path, csv("arrived_at,num_prefill_tokens,num_decode_tokens,request_id", more=lambda i: ",a"))
    assert "request_id is not read" in chunked(section(path), 1).notes[-1]


def faults_of(path, **keys):
    with pytest.raises(InputErrors) as caught:
        chunked(section(path, **keys), 1)
    return [str(fault) for fault in caught.value.faults]


def test_faults_of_all_pieces_are_found_with_their_lines(tmp_path):
    lines = csv().splitlines()
    lines[7], lines[4000] = "1,0,5", "2,3"
    assert faults_of(files_of(tmp_path, "\n".join(lines))) == [
        f'{tmp_path}/trace.csv:8: num_prefill_tokens: expected an integer >= 1, found "0"',
        f"{tmp_path}/trace.csv:4001: expected 3 cells, as in the first line, found 2"]


def test_faults_of_json_lines_have_their_lines(tmp_path):
    lines = json_lines().splitlines()
    first = next(number for number in range(3000, 3100) if lines[number])
    lines[first], lines[4500] = lines[first][:-1] + ', "priority": 3}', "{"
    found = faults_of(files_of(tmp_path, "\n".join(lines)))
    assert [fault.split(":")[1] for fault in found] == [f"{first + 1}", "4501"]
    assert '"priority": no line in the first' in found[0]


def test_rows_out_of_order_are_refused(tmp_path):
    lines = csv().splitlines()
    lines[4000], lines[4001] = lines[4001], lines[4000]
    lines[10], lines[11] = lines[11], lines[10]
    assert faults_of(files_of(tmp_path, "\n".join(lines))) == [
        f"{tmp_path}/trace.csv: request 11 comes before the one above it; with output.streamed requests are read when "
        "they are due: sort them by time"]


@pytest.mark.parametrize("column", ["prompt", "deadline_s", "tenant", "round", "predicted_tokens"])
def test_columns_that_need_other_rows_are_refused(tmp_path, column):
    path = files_of(tmp_path, csv(f"arrived_at,num_prefill_tokens,num_decode_tokens,{column}", more=lambda i: ","))
    assert faults_of(path)[0].startswith(f'{path}: column "{column}": is read without output.streamed alone')


@pytest.mark.parametrize(("keys", "text"), [
    ({"start_s": 1e6}, "workload.start_s: with start_s = 1000000 no request"),
    ({"end_s": 1.0}, "workload.end_s: with end_s = 1 no request"),
    ({"start_s": 5.0, "duration_s": 1e-9}, "workload.duration_s: no request arrives before 1e-09 s"),
    ({"format": "azure"}, "TIMESTAMP")])
def test_nothing_to_serve_is_refused_as_of_the_whole_trace(tmp_path, keys, text):
    path = files_of(tmp_path, csv())
    found = faults_of(path, **keys)
    with pytest.raises(InputErrors) as caught:
        load(section(path, **keys), 1)
    assert found == [str(fault) for fault in caught.value.faults]
    assert text in found[0]


def test_a_file_that_shrinks_meanwhile_ends_the_run(tmp_path):
    path = files_of(tmp_path, csv())
    workload = chunked(section(path), 1)
    path.write_text("\n".join(csv().splitlines()[:2000]))
    workload.chunks.draw()
    with pytest.raises(InputErrors, match="fewer requests than when the run began"):
        workload.chunks.draw()
