"""Drawn conversations; every iteration lasts 1 ms, numbers worked out by hand."""
import numpy as np
import pytest

import simulator
from simulator.errors import InputErrors
from workload.test_loads import EXPERIMENT, ms

TALK = """[workload]
type = "sessions"
num_sessions = 2
arrival = {process = "constant", rate_per_s = 10.0}
[workload.sessions]
rounds = {distribution = "constant", value = 3}
first_tokens = {distribution = "constant", value = 100}
new_tokens = {distribution = "constant", value = 50}
output_tokens = {distribution = "constant", value = 3}
think_time_s = 0.005
"""


@pytest.fixture
def run(tmp_path):
    def run(text=TALK, **overrides):
        (tmp_path / "experiment.toml").write_text(EXPERIMENT + text)
        return simulator.run(tmp_path / "experiment.toml", {key.replace("__", "."): each
                                                            for key, each in overrides.items()})
    return run


def test_a_turn_waits_for_the_last_answer_and_holds_all_before_it(run):
    result = run()

    assert ms(result, "arrival_ns") == [100, 108, 116, 200, 208, 216]
    assert result.requests["prompt_tokens"].tolist() == [100, 153, 206] * 2
    # KV of 102 and 155 tokens is there in blocks of 16: the last token of an answer was never fed back.
    assert result.requests["cached_tokens"].tolist() == [0, 96, 144] * 2
    assert result.requests["session"].tolist() == [0, 0, 0, 1, 1, 1]


def test_without_accumulation_each_turn_stands_alone(run):
    assert run(workload__sessions__accumulate=False).requests["prompt_tokens"].tolist() == [100, 50, 50] * 2


def test_sessions_share_the_prompt_of_their_group(run):
    result = run(workload__sessions__prefix_groups=1, workload__sessions__prefix_tokens=64)

    assert result.requests["prompt_tokens"].tolist() == [164, 217, 270] * 2
    assert result.requests["cached_tokens"].tolist() == [0, 160, 208, 64, 160, 208]


def test_s1_s2_a_session_holds_its_slot_or_not(run):
    held = run(workload__load={"mode": "concurrency", "concurrency": 1, "unit": "session"})
    shared = run(workload__load={"mode": "concurrency", "concurrency": 1})

    assert ms(held, "arrival_ns") == [0, 8, 16, 19, 27, 35]
    # At 3 the slot goes to the other session, whose first turn is ready since 0; at 8 and 11 the seconds are ready.
    assert ms(shared, "arrival_ns") == [0, 8, 16, 3, 11, 19]


def test_sessions_end_where_texts_do_not_fit_or_slide(run):
    ended = run(engine__max_model_len=200)
    slid = run(engine__max_model_len=200, workload__sessions__on_overflow="slide")

    assert ended.requests["prompt_tokens"].tolist() == [100, 153] * 2
    assert any("2 turns of 2 sessions were left out" in line for line in ended.summary["diagnosis"])
    assert slid.requests["prompt_tokens"].tolist() == [100, 153, 103] * 2   # without the first turn and its answer
    assert slid.requests["cached_tokens"].tolist()[2] == 0
    with pytest.raises(InputErrors, match="turn 2 of session 0 has a prompt of 206 tokens, at most 199"):
        run(engine__max_model_len=200, workload__sessions__on_overflow="error")


def test_users_join_in_the_middle_of_their_sessions(run):
    # Two users, of whom the second is half through: one of its three turns is in the past.
    result = run(workload__load={"mode": "user_rate", "users": 2, "rate_per_s": 100.0})

    assert ms(result, "arrival_ns") == [0, 20, 40, 10, 30]
    assert result.requests["prompt_tokens"].tolist() == [100, 153, 206, 153, 206]


def test_the_number_of_sessions_in_flight_may_be_large(run):
    result = run(workload__num_sessions=10_000, workload__arrival={"process": "constant", "rate_per_s": 1e6},
                 workload__sessions__think_time_s={"distribution": "exponential", "mean": 5.0},
                 topology__replicas=4, engine__max_num_seqs=1024)

    assert result.summary["requests"]["completed"] == 30_000
    turns = result.requests[np.lexsort((result.requests["request_id"], result.requests["session"]))]
    same = turns["session"][1:] == turns["session"][:-1]
    assert (turns["arrival_ns"][1:] >= turns["completed_ns"][:-1])[same].all()


def test_the_same_seed_gives_the_same_turns_under_any_engine(run):
    drawn = {"workload__sessions__new_tokens": {"distribution": "lognormal", "mean": 60.0, "cv": 1.0},
             "workload__sessions__rounds": {"distribution": "uniform", "min": 1, "max": 5}}
    one, other = run(**drawn), run(**drawn, engine__max_num_seqs=1, topology__replicas=3)

    assert one.requests["prompt_tokens"].tolist() == other.requests["prompt_tokens"].tolist()


def test_sessions_begin_at_a_rate_that_changes(run):
    rate = 'rate = {kind = "piecewise", times_s = [0.0, 0.05], rates_per_s = [0.0, 10.0]}\n'
    result = run(TALK.replace(', rate_per_s = 10.0}\n', "}\n" + rate))

    assert ms(result, "arrival_ns")[::3] == [150, 250]          # nobody for 50 ms, then every 100 ms
    loop = {"mode": "concurrency", "concurrency": 1}
    with pytest.raises(InputErrors, match="says when sessions begin; leave it out"):
        run(TALK.replace(', rate_per_s = 10.0}\n', "}\n" + rate), workload__load=loop)


def test_turns_that_were_not_sent_appear_nowhere_but_in_the_table(run, tmp_path):
    result = run(workload__duration_s=0.21, output={"chrome_trace": True, "token_times": True})
    assert result.summary["requests"]["not_sent"] == 1
    assert result.summary["not_completed"]["requests"] == 0

    simulator.run(tmp_path / "experiment.toml", {"workload.duration_s": 0.21, "output.chrome_trace": True},
                  out=tmp_path / "out")
    assert "not_sent" not in (tmp_path / "out/trace.json").read_text()
    assert "-1" not in (tmp_path / "out/trace.json").read_text().replace('"pid":-1', "")
