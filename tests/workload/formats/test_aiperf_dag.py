"""AIPerf's graphs of sessions; iterations of 1 ms."""
import json

import pytest

from simulator.errors import InputErrors
from simulator.workload.formats.aiperf_dag import AiperfDag
from support.traces import json_lines, play, shared

LANES = {"mode": "lanes", "lanes": 1}


def session(name, *turns):
    return {"session_id": name, "turns": list(turns)}


def turn(prompt=10, output=1, **others):
    return {"input_tokens": prompt, "max_tokens": output, "messages": []} | others


def fault(*lines):
    with pytest.raises(InputErrors) as caught:
        AiperfDag().read("d.jsonl", json_lines(*lines).encode())
    [only] = caught.value.faults
    return only


def with_lengths(path):
    """Return the lines of a trace with prompts that grow by 10 tokens a turn."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        tokens = 0
        for each in line["turns"]:
            each["input_tokens"] = tokens + 10
            tokens += 10 + each["max_tokens"]
    return json_lines(*lines)


def test_d7_a_spawned_session_is_joined(tmp_path):
    (tmp_path / "d.jsonl").write_text(with_lengths(shared("aiperf_dag/spawn_join.dag.jsonl")))
    played = play(tmp_path, tmp_path / "d.jsonl", "aiperf_dag", load=LANES, engine={"block_size": 1})

    assert [played.ms(f"parent.{place}") for place in range(3)] == [(0, 32), (32, 56), (72, 88)]
    assert [played.ms(f"worker-a.{place}") for place in range(2)] == [(32, 56), (56, 72)]
    assert played.of("parent.1", "cached_tokens") == 10 + 31       # all that turn 0 fed
    assert played.of("worker-a.0", "cached_tokens") == 0


def test_trees_are_plays(tmp_path):
    (tmp_path / "d.jsonl").write_text(with_lengths(shared("aiperf_dag/two_spawn_trees.dag.jsonl")))
    played = play(tmp_path, tmp_path / "d.jsonl", "aiperf_dag", load=LANES)

    assert (played.ms("alpha.2"), played.ms("beta.0"), played.ms("beta.2")) == ((72, 88), (88, 120), (160, 176))


def test_forked_sessions_go_on_with_their_parents_text(tmp_path):
    (tmp_path / "d.jsonl").write_text(json_lines(
        session("p", turn(20, 4, forks=[{"child": "beside", "background": True}]),
                turn(30, 1, delay=2, forks=["after"])),
        session("beside", turn(25, 1, delay=1)), session("after", turn(40, 1))))
    played = play(tmp_path, tmp_path / "d.jsonl", "aiperf_dag", load=LANES, engine={"block_size": 1})

    # p.0 0-4; beside 1 ms later; p.1 2 ms later, joins at 6; after when that ends
    assert [played.ms(name) for name in ("p.0", "beside.0", "p.1", "after.0")] == [(0, 4), (5, 6), (6, 7), (7, 8)]
    cached = [played.of(name, "cached_tokens") for name in ("beside.0", "p.1", "after.0")]
    assert cached == [23, 24, 30]       # `beside` fed the last token that p.0 had generated


def test_children_are_joined_by_the_next_turn(tmp_path):
    (tmp_path / "d.jsonl").write_text(json_lines(
        session("p", turn(spawns=["a", {"children": ["b"]}]), turn(20), turn(30)),
        session("a", turn(10, 5)), session("b", turn(10, 7))))
    played = play(tmp_path, tmp_path / "d.jsonl", "aiperf_dag", load=LANES)

    assert [played.ms(f"p.{place}") for place in range(3)] == [(0, 1), (8, 9), (9, 10)]


@pytest.mark.parametrize(("lines", "message"), [
    ([session("p", {"max_tokens": 5})],
     "1: turns[0].input_tokens: is missing; there is no tokenizer here: count the tokens of the whole prompt with the "
     "model's own and write their number there"),
    ([session("p", {"input_tokens": 5})],
     "1: turns[0].max_tokens: says how long the output is, and is missing"),
    ([session("p", turn(10, 5), turn(14))],
     "1: input_tokens: expected 15 at least in turn p.1, the prompt and output of the turn before it, found 14"),
    ([session("p", turn(spawns=["x"]))], '1: turns[0]: expected the session_id of a line, found "x"'),
    ([session("p", turn(spawns=["p"]))], "1: turn p.0 waits for itself, by way of others"),
    ([session("p", turn(forks=["c"]), turn(20)), session("c", turn(20))],
     '1: turns[0].forks: the session ends with the fork "c", but more turns follow; is it a background one?'),
    ([session("p", turn(spawns=[{"children": ["c"], "join_at": 5}]), turn(20)), session("c", turn())],
     "1: turns[0].spawns: join_at: expected a later turn, 1 to 1, found 5"),
    ([session("p", turn(spawns=["c", "c"])), session("c", turn())],
     '1: turns[0]: session "c" is called twice; write it out twice'),
    ([session("p", turn()), session("p", turn())],
     '2: session_id: expected one that no other line has, found "p"'),
    ([session("p", turn(delay=3))],
     "1: turns[0].delay: nobody calls the session, so there is nothing to wait for"),
    ([session("p", turn()) | {"pre_session_spawns": []}],
     "1: pre_session_spawns: is not understood; write its sessions out, with spawns"),
])
def test_a_session_that_cannot_be_is_named(lines, message):
    assert fault(*lines) == f"d.jsonl:{message}"
