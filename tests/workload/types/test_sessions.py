"""Drawn conversations; every iteration lasts 1 ms, numbers worked out by hand."""
from random import Random

import numpy as np
import pytest

import simulator
from simulator.core.random_streams import RandomStreams
from simulator.domain.records import named_stream, output_stream, own_stream
from simulator.errors import InputErrors
from simulator.workload.column_options import ColumnOptions
from simulator.workload.types.sessions import SessionsWorkload
from support.every_key import read
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


def test_a_turn_may_come_a_time_of_thought_after_the_last_one_came(run):
    # Answers take 3 ms: after 5 ms the last one is complete, after 2 ms it is not.
    for think_s, arrivals in ((0.005, [100, 105, 110]), (0.002, [100, 102, 104])):
        result = run(workload__sessions__think_time_from="arrival", workload__sessions__think_time_s=think_s)

        assert ms(result, "arrival_ns")[:3] == arrivals
        assert result.requests["prompt_tokens"].tolist() == [100, 153, 206] * 2
        assert result.requests["cached_tokens"].tolist()[:3] == [0, 96, 144]


def test_without_accumulation_each_turn_stands_alone(run):
    assert run(workload__sessions__accumulate=False).requests["prompt_tokens"].tolist() == [100, 50, 50] * 2


@pytest.mark.parametrize(("keys", "prompts", "cached"), [
    ({}, [100, 134, 168], [0, 96, 128]), ({"history_keeps_reasoning": True}, [100, 140, 180], [0, 112, 144])])
def test_n1_reasoning_is_not_said_again_unless_asked(run, keys, prompts, cached):
    # 100 + 14 + 20; a hit ends at the prompt's end, 100 or 134 tokens, or at KV of 119 and 159 tokens.
    lengths = {"output_tokens": 20, "reasoning_tokens": 6, "new_tokens": 20}
    given = keys | {key: {"distribution": "constant", "value": each} for key, each in lengths.items()}
    result = run(**{f"workload__sessions__{key}": each for key, each in given.items()}, output__token_times=True)

    assert result.requests["prompt_tokens"].tolist() == prompts * 2
    assert result.requests["cached_tokens"].tolist() == cached * 2
    assert result.requests["reasoning_tokens"].tolist() == [6] * 6


def pieces_of(columns):
    """Return the prompt of each row, [(stream, tokens)]."""
    pieces = list(zip(columns.prompts.streams.tolist(), columns.prompts.num_tokens.tolist(), strict=True))
    ends = np.cumsum(columns.prompts.num_segments).tolist()
    return [pieces[end - count:end] for end, count in zip(ends, columns.prompts.num_segments.tolist(), strict=True)]


def told(rows, oldest, row, longest, given, columns, new, prompts):
    """Return the prompt of a turn, literally: what is said from turn `oldest` on."""
    prompt = [(named_stream(0), 16)] * given["prefix"]
    for each in rows[oldest:rows.index(row)]:
        output, limit = columns.output_tokens[each].item(), columns.max_tokens[each].item()
        said = limit if given["history"] == "declared" else max(0, min(
            output, limit, longest - sum(tokens for _, tokens in prompts[each])))
        thought = columns.facts["reasoning_tokens"][each].item()
        answer = (output_stream(each), said)
        if thought and not given["keeps"]:
            answer = (named_stream(given["prefix"] + each), said - thought)
        prompt += [(own_stream(each), new[each]), answer]
    return [piece for piece in (*prompt, (own_stream(row), new[row])) if piece[1] > 0]


@pytest.mark.parametrize("seed", range(30))
def test_prompts_are_as_a_literal_twin_tells_them(seed):
    rng = Random(seed)
    given = {"prefix": rng.randint(0, 1), "history": rng.choice(["actual", "declared"]), "keeps": rng.random() < 0.5}
    few = {"distribution": "uniform", "min": 1, "max": 40}
    sessions = dict.fromkeys(("new_tokens", "output_tokens", "max_tokens", "reasoning_tokens"), few) | {
        "rounds": {"distribution": "uniform", "min": 1, "max": 9}, "prefix_groups": given["prefix"],
        "prefix_tokens": 16 * given["prefix"], "history": given["history"], "history_keeps_reasoning": given["keeps"],
        "on_overflow": "slide"}
    longest = rng.choice([60, 90, 10_000])
    experiment = read({"engine": {"num_gpu_blocks": 9, "max_model_len": 100}, "latency": {"backend": "linear"},
                       "workload": {"type": "sessions", "num_sessions": 6, "sessions": sessions,
                                    "arrival": {"process": "constant", "rate_per_s": 1.0}}})
    columns = SessionsWorkload(experiment.workload.parameters).columns(
        RandomStreams(seed), ColumnOptions(longest_text=lambda: longest))

    prompts, sessions_of = pieces_of(columns), columns.labels["session"][0].tolist()
    new = [prompt[-1][1] for prompt in prompts]
    for session in set(sessions_of):
        rows = [row for row, each in enumerate(sessions_of) if each == session]
        oldest = 0
        for row in rows:
            while True:
                expected = told(rows, oldest, row, longest, given, columns, new, prompts)
                if sum(tokens for _, tokens in expected) < longest or rows[oldest] == row:
                    break
                oldest += 1
            assert prompts[row] == expected
            assert columns.prompt_tokens[row] == sum(tokens for _, tokens in expected)


def test_answers_of_what_is_measured_count(run):
    given = {"output_tokens": 20, "reasoning_tokens": 6}
    result = run(workload__measure__warmup_requests=2, **{
        f"workload__sessions__{key}": {"distribution": "constant", "value": each} for key, each in given.items()})

    assert result.summary["ttfat_ms"]["mean"] == 7.0            # its seventh token is the first of the answer
    assert result.summary["requests"]["completed"] == 4


@pytest.mark.parametrize(("limit", "history", "prompts"), [
    (8, "actual", [100, 153, 206]), (8, "declared", [100, 158, 216]), (2, "declared", [100, 152, 204]),
    (2, "actual", [100, 152, 204])])
def test_earlier_outputs_are_as_long_as_they_were_or_as_declared(run, limit, history, prompts):
    result = run(workload__sessions__max_tokens={"distribution": "constant", "value": limit},
                 workload__sessions__history=history)

    assert result.requests["prompt_tokens"].tolist() == prompts * 2
    assert result.requests["output_tokens"].tolist() == [min(limit, 3)] * 6


@pytest.mark.parametrize(("history", "third"), [("actual", 41), ("declared", 80)])
def test_what_max_model_len_cuts_off_is_not_said_again(run, history, third):
    # A text has 121 tokens at most: the second turn, of 60 + 40 + 20, gets one token of its 40. The first slides out of
    # the third, 20 + 1 + 20.
    given = {"first_tokens": 60, "new_tokens": 20, "output_tokens": 40}
    result = run(engine__max_model_len=121, workload__sessions__on_overflow="slide",
                 workload__sessions__history=history,
                 **{f"workload__sessions__{key}": {"distribution": "constant", "value": each}
                    for key, each in given.items()})

    assert result.requests["prompt_tokens"].tolist() == [60, 120, third] * 2
    assert result.requests["output_tokens"].tolist() == [40, 1, 40] * 2


@pytest.mark.parametrize(("key", "value", "message"), [
    ("history", "actual", "history: every output of this workload is as long as its max_tokens; leave it out"),
    ("history_keeps_reasoning", True, "history_keeps_reasoning: nothing says what of an output is reasoning")])
def test_keys_of_histories_that_change_nothing_are_refused(run, key, value, message):
    with pytest.raises(InputErrors, match=message):
        run(**{f"workload__sessions__{key}": value})
    with pytest.raises(InputErrors, match=f"{key}: a turn's prompt holds nothing before it, since accumulate = false"):
        run(**{f"workload__sessions__{key}": value, "workload__sessions__accumulate": False})


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
