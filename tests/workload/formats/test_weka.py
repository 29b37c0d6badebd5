"""Weka's traces of coding agents; iterations of 1 ms."""
import gzip
import json
import shutil
from itertools import pairwise

import numpy as np
import pytest

from simulator.errors import InputErrors
from simulator.workload.formats.weka import Weka
from support.traces import play, shared


def trace(*requests, **others):
    return {"id": "t", "models": ["m"], "block_size": 64, "hash_id_scope": "local", "requests": list(requests)} | others


def request(t, ids, api=1.0, *, tail=0, out=1, model="m", kind="n"):
    return {"t": t, "type": kind, "model": model, "in": 64 * len(ids) + tail, "out": out, "hash_ids": list(ids),
            "api_time": api, "think_time": 0.0}


def subagent(t, duration_s, *requests, status="completed"):
    return {"t": t, "type": "subagent", "agent_id": "a", "duration_ms": duration_s * 1000, "status": status,
            "requests": list(requests)}


def read(*traces):
    return Weka().read_files((f"{place}.json", json.dumps(each).encode()) for place, each in enumerate(traces))


def edges(columns):
    waits, ids = columns.waits, columns.request_ids
    return sorted((ids[source], ids[target], delay / 1e9, "start" if from_dispatch else "end")
                  for source, target, delay, from_dispatch in zip(
                      waits.sources.tolist(), waits.targets.tolist(), waits.delays_ns.tolist(),
                      waits.from_dispatch.tolist(), strict=True))


def fault(*traces):
    with pytest.raises(InputErrors) as caught:
        read(*traces)
    [only] = caught.value.faults
    return only


def test_d5_subagents_are_called_and_joined():
    path = shared("weka/trace_0291.json")
    columns = Weka().read(path, path.read_bytes())
    parent = json.loads(path.read_bytes())["requests"]
    assert [parent[order]["t"] for order in (15, 18, 19)] == [1085.0, 1209.0, 1269.0]

    of_agents = [edge for edge in edges(columns) if "agent" in edge[0] + edge[1]
                 and edge[0].split("/")[1] != edge[1].split("/")[1]]
    assert of_agents == [
        ("trace_0291/15", "trace_0291/agent_001/0", 47.373, "end"),
        ("trace_0291/15", "trace_0291/agent_002/0", 79.913, "end"),
        ("trace_0291/agent_001/4", "trace_0291/18", 16.147, "end"),
        ("trace_0291/agent_002/6", "trace_0291/19", 12.847, "end")]
    assert len(edges(columns)) == len(columns) - 1 + 2          # a tree, and two joins: nobody's chain is torn


def test_d5_parents_go_on_with_their_prefixes():
    path = shared("weka/trace_0291.json")
    columns = Weka().read(path, path.read_bytes())
    counts, prompts, begin = columns.prompts.num_segments, [], 0
    for count in counts.tolist():
        part = slice(begin, begin + count)
        prompts.append(list(zip(columns.prompts.streams[part].tolist(), columns.prompts.num_tokens[part].tolist(),
                                strict=True)))
        begin += count

    assert [shared_tokens(*pair) // 64 for pair in pairwise(prompts[:7])] == [
        279, 293, 297, 1208, 1270, 1290]
    assert [sum(tokens for _, tokens in prompt) for prompt in prompts] == columns.prompt_tokens.tolist()


def shared_tokens(first, second):
    total = 0
    for one, other in zip(first, second, strict=False):
        total += min(one[1], other[1]) if one[0] == other[0] else 0
        if one != other:
            break
    return total


def test_d6_a_request_does_not_come_before_its_time(tmp_path):
    played = play(tmp_path, shared("weka/trace_0187.json"), "weka", engine={"block_size": 64})

    assert played.all_ms() == [(0, 251), (6000, 6280), (12000, 12257)]
    assert [played.of(f"trace_0187/{row}", "cached_tokens") // 64 for row in range(3)] == [0, 160, 178]


def test_idle_stretches_are_cut(tmp_path):
    # 6000 ms is 1 s after the end at 251, and 12000, moved along, 1 s after that at 1531.
    played = play(tmp_path, shared("weka/trace_0187.json"), "weka", load={
        "mode": "lanes", "lanes": 1, "tree_idle_cap_s": 1.0})

    assert played.all_ms() == [(0, 251), (1251, 1531), (2531, 2788)]


def test_a_directory_is_read_by_name(tmp_path):
    folder = tmp_path / "traces"
    folder.mkdir()
    for name in ("trace_0504.json", "trace_0187.json"):
        shutil.copy(shared(f"weka/{name}"), folder)
    (folder / "trace_0187.json.gz").write_bytes(gzip.compress((folder / "trace_0187.json").read_bytes()))
    (folder / "trace_0187.json").unlink()
    lanes = play(tmp_path, folder, "weka", load={"mode": "lanes", "lanes": 1})

    assert lanes.ms("trace_0187/0") == (0, 251)
    assert lanes.ms("trace_0504/0")[0] == 12257


def test_real_directories_are_played_in_lanes(tmp_path):
    played = play(tmp_path, shared("weka"), "weka", load={"mode": "lanes", "lanes": 4, "assign": "dynamic"})

    assert played.result.summary["requests"]["completed"] == 125
    assert played.status("trace_0291/agent_002/6") == "completed"


def test_chains_fork_and_go_on():
    # 0, 1 and 3 extend each other, and so do 2 and 4; these forked from 1, which still ran.
    columns = read(trace(request(0, [1, 2, 3]), request(10, [1, 2, 3, 4], 5), request(12, [1, 2, 3, 5], 1),
                         request(20, [1, 2, 3, 4, 6]), request(30, [1, 2, 3, 5, 7])))

    assert edges(columns) == [
        ("t/0", "t/1", 9.0, "end"),             # the chain's next turn
        ("t/0", "t/2", 0.0, "end"),             # across, since it had ended
        ("t/1", "t/2", 2.0, "start"),           # the fork
        ("t/1", "t/3", 5.0, "end"),
        ("t/2", "t/3", 0.0, "end"),
        ("t/2", "t/4", 17.0, "end"),
        ("t/3", "t/4", 0.0, "end")]
    assert columns.waits.not_before_ns.tolist() == [0, 10_000_000_000, 12_000_000_000, 20_000_000_000, 30_000_000_000]


def test_another_model_is_another_chain():
    columns = read(trace(request(0, [1]), request(5, [1, 2], model="n"), request(9, [1, 3])))

    # the third shares a block with the first, its chain's last, and goes on with it; the second forked there
    assert ("t/0", "t/1", 4.0, "end") in edges(columns)
    assert ("t/0", "t/2", 8.0, "end") in edges(columns)


def test_a_long_pause_ends_a_chain_unless_much_is_shared():
    def chained(second):
        return edges(read(trace(request(0, [1, 2, 3, 4]), request(4000, second))))

    # A fork waits for what has ended in other chains, too.
    assert chained([1, 2, 9]) == [("t/0", "t/1", 3999.0, "end")]
    assert chained([1, 9]) == [("t/0", "t/1", 0.0, "end"), ("t/0", "t/1", 3999.0, "end")]


def test_a_background_subagent_is_not_joined():
    requests = [request(0, [1], 5.0), None, request(20, [1, 2])]
    blocking, background = (
        edges(read(trace(requests[0], subagent(3, 9, request(0, [7]), request(4, [7, 8]), status=status), requests[2])))
        for status in ("completed", "async_launched"))

    assert background == [("t/0", "t/2", 15.0, "end"), ("t/0", "t/a/0", 3.0, "start"), ("t/a/0", "t/a/1", 3.0, "end")]
    assert blocking == sorted([*background, ("t/a/1", "t/2", 12.0, "end")])


def test_what_ids_do_not_cover_is_the_requests_own():
    columns = read(trace(request(0, [1, 2], tail=10), request(9, [1], tail=200), request(19, [], tail=5)),
                   trace(request(0, [1]), id="u"))

    assert columns.prompts.num_segments.tolist() == [2, 2, 0, 1]
    assert columns.prompts.num_tokens.tolist() == [128, 10, 64, 200, 64]
    own = [stream >> 2 for stream in columns.prompts.streams.tolist() if stream & 3 == 1]
    assert own == [0, 1]
    assert columns.prompts.streams[0] == columns.prompts.streams[2] != columns.prompts.streams[4]


def test_what_is_missing_is_told():
    nameless = request(0, [1], out=0)
    del nameless["api_time"]
    columns = read(trace(nameless, subagent(1, 1), request(3, [1, 2])))

    assert columns.output_tokens.tolist() == [0, 1]
    assert columns.notes == (
        "requests of the trace without api_time, which count as answered at once where it was recorded: 1",
        "subagents of the trace without requests, which are left out: 1")


def test_lines_of_one_file_are_traces():
    text = "\n".join(json.dumps(trace(request(0, [1]), id=name)) for name in "ab")
    columns = Weka().read("w.jsonl.gz", text.encode())

    assert columns.request_ids == ["a/0", "b/0"]
    with pytest.raises(InputErrors, match=r"w\.jsonl:2: id: expected one that w\.jsonl:1 does not have"):
        Weka().read("w.jsonl", text.replace('"b"', '"a"').encode())


@pytest.mark.parametrize(("bad", "message"), [
    (trace(), "requests: a trace needs one of its own, beside subagents"),
    (trace(request(0, [1]), subagent(1, 1, request(0, [2]), status="failed")),
     'requests: subagent "a": status: expected "completed" or "async_launched", found "failed"'),
    (trace(subagent(1, 1, request(0, [2])), request(5, [1])),
     'requests: subagent "a": no request comes before it, which could have called it'),
    (trace(request(0, [1]) | {"hash_ids": [1, 2, 3]}),
     "hash_ids: expected 1 id at t = 0, blocks of 64 tokens for in 64, found 3"),
    (trace({"t": 0, "type": "n", "in": 5}), "requests: the one at t = 0 has no `out`"),
    (trace(request(-1, [1])), None),
    (trace(request(0, [1]), hash_id_scope="global"),
     "hash_id_scope: Invalid enum value 'global', found \"global\""),
])
def test_a_trace_that_cannot_be_is_refused(bad, message):
    found = fault(bad)
    assert found == f"0.json: {message}" if message else found.startswith("0.json: requests[0].t: expected a number")


def test_an_empty_directory_has_no_traces(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputErrors, match=r"no file in it is called \*\.json or \*\.jsonl"):
        play(tmp_path, tmp_path / "empty", "weka")


def random_requests(draws, first_id):
    """Return requests whose prompts grow, fork and overlap in time, by their beginning."""
    texts, requests, t = [[first_id]], [], 0.0
    for place in range(draws.integers(1, 12)):
        base = texts[draws.integers(0, len(texts))]
        text = base[:draws.integers(1, len(base) + 1)] if draws.random() < 0.4 else base
        text = [*text, *(first_id + 100 * (place + 1) + k for k in range(draws.integers(0, 4)))]
        t += float(draws.choice([0.0, 1.0, 7.5, 4000.0], p=[0.1, 0.5, 0.3, 0.1]))
        requests.append(request(t, text, float(draws.choice([0.0, 0.5, 3.0, 20.0])), tail=5,
                                model=str(draws.choice(["m", "m", "n"]))))
        texts.append(text)
    return requests


def random_weka(seed):
    draws = np.random.default_rng(seed)
    entries = []
    for each in random_requests(draws, 1):
        entries.append(each)
        while draws.random() < 0.15:
            number = len(entries)
            marker = subagent(each["t"] + float(draws.integers(0, 5)), 0.0, *random_requests(draws, 10**6 * number),
                              status=str(draws.choice(["completed", "async_launched"])))
            marker["agent_id"] = f"a{number}"
            marker["duration_ms"] = 1000 * max(inner["t"] + inner["api_time"] for inner in marker["requests"])
            entries.append(marker)
    return trace(*entries)


def recorded(given):
    """Return recorded begin and end of each request, s, in the order of the columns."""
    times = []
    for entry in given["requests"]:
        for each in entry["requests"] if entry["type"] == "subagent" else [entry]:
            begin = each["t"] + (entry["t"] if entry["type"] == "subagent" else 0.0)
            times.append((begin, begin + each["api_time"]))
    return times


@pytest.mark.parametrize("seed", range(40))
def test_what_takes_as_long_as_recorded_comes_when_it_was_recorded(seed):
    given = random_weka(seed)
    columns, times = read(given), recorded(given)
    waits, first_s = columns.waits, min(begin for begin, _ in recorded(given))
    if waits is None:
        return

    assert (waits.delays_ns >= 0).all()
    offsets_s = waits.not_before_ns / 1e9 if waits.not_before_ns is not None else np.zeros(len(columns))
    assert offsets_s == pytest.approx([begin - first_s for begin, _ in times], abs=1e-8)
    for source, target, delay_ns, from_dispatch in zip(waits.sources, waits.targets, waits.delays_ns,
                                                       waits.from_dispatch, strict=True):
        begin, end = times[source]
        assert (begin if from_dispatch else end) + delay_ns / 1e9 <= times[target][0] + 1e-5
