"""vLLM's multi-turn benchmark: its files, its clients; every iteration lasts 1 ms, numbers worked out by hand."""
import json

import numpy as np
import pytest
import tomli_w

import simulator
from simulator.core.random_streams import RandomStreams
from simulator.errors import InputErrors
from simulator.workload.types.vllm_multi_turn import VllmMultiTurn, VllmMultiTurnParameters
from support.traces import ONE_MS
from workload.drawing.test_conversations import given, of

NO_DELAY = {"client_delay_s": 0.0}


@pytest.fixture
def run(tmp_path):
    """Run the tool's clients on a file, step by step and fast-forward; return what is the same in both."""
    def run(content, engine=None, warmup=None, load=NO_DELAY, **keys):
        (tmp_path / "c.json").write_text(json.dumps(content))
        sections = ({"load": load} if load else {}) | ({"warmup": warmup} if warmup else {})
        results = []
        for fast_forward in (False, True):
            table = ONE_MS | {"engine": ONE_MS["engine"] | {"fast_forward": fast_forward} | (engine or {}),
                              "workload": {"type": "vllm_multi_turn", "path": "c.json"} | sections | keys}
            (tmp_path / "experiment.toml").write_text(tomli_w.dumps(table))
            results.append(simulator.run(tmp_path / "experiment.toml"))
        assert results[0].requests.tobytes() == results[1].requests.tobytes()
        return results[1]
    return run


def talks(*outputs):
    """Return conversations with these outputs, whose user texts have 16 tokens."""
    return [{"id": f"c{k}", "messages": [
        message for output in turns for message in ({"role": "user", "content": "", "num_tokens": 16},
                                                    {"role": "assistant", "content": "", "num_tokens": output})]}
            for k, turns in enumerate(outputs)]


def ms(result, field="arrival_ns"):
    return [None if time < 0 else time / 1e6 for time in result.requests[field].tolist()]


GENERATED = given(common=of("constant", value=32), prefix=of("constant", value=16), asked=of("constant", value=40),
                  answered=of("constant", value=2))


def test_generated_conversations_share_what_is_common(run):
    result = run(GENERATED)

    # One client, one conversation at a time: first turns of 40 + 16 tokens, second ones of 56 + 2 + 40.
    assert ms(result) == [0, 2, 4, 6, 8, 10]
    assert result.requests["prompt_tokens"].tolist() == [56, 98] * 3
    # KV of 57 tokens is there for a second turn, in blocks of 16; of the common prefix all 32.
    assert result.requests["cached_tokens"].tolist() == [0, 48, 32, 48, 32, 48]
    assert result.labels["session"] == ["CONV_ID_0", "CONV_ID_1", "CONV_ID_2"]


def test_clients_miss_the_iteration_in_which_their_answer_ends(run):
    # As with presets: the next turn comes 1 us later; the server is idle then.
    assert ms(run(GENERATED, load=None)) == pytest.approx([0, 2.001, 4.002, 6.003, 8.004, 10.005], abs=1e-9)


def test_a_client_has_conversations_by_turns(run):
    # Two at once, the second first: c1 0-2, c0 2-3, c1 3-5, then c2, which takes its place, 5-6; it has one turn, and
    # nobody is left: the client stops, and the second turn of c0 is not sent.
    result = run(talks([1, 4], [2, 2], [1]), max_active_conversations=2)

    assert ms(result) == [2, None, 0, 3, 5]


def test_it_goes_on_without_early_stop_as_long_as_it_finds_conversations(run):
    # Client 0 has c0 until 9; client 1 has c1 0-1, and finds c2 at 1 and nobody at 2.
    stopped = run(talks([9, 1], [1], [1]), num_clients=2)
    gone_on = run(talks([9, 1], [1], [1]), num_clients=2, early_stop=False)

    assert ms(stopped) == [0, None, 0, 1]
    assert ms(gone_on) == [0, 9, 0, 1]


def test_requests_are_shared_out(run):
    # Five of two clients: two each. Client 1 is done at 2, and stops client 0 before its second.
    keys = {"num_clients": 2, "max_num_requests": 5}
    assert ms(run(talks([5, 1, 1], [1, 1, 1]), **keys)) == [0, None, None, 0, 1, None]
    assert ms(run(talks([5, 1, 1], [1, 1, 1]), **keys, early_stop=False)) == [0, 5, None, 0, 1, None]


@pytest.mark.parametrize(("most", "turns"), [(1, 1), (2, 1), (3, 2), (4, 2), (9, 3)])
def test_long_conversations_end_early(run, most, turns):
    assert len(run(talks([1, 1, 1], [1]), max_turns=most).requests) == turns + 1


def test_first_turns_warm_up(run):
    # Two clients: c0 0-3, c1 0-1, c2 1-2; from 3 on second turns, c1 has none.
    result = run(talks([3, 2], [1], [1, 1]), num_clients=2, warmup_step=True, early_stop=False)

    names = [result.labels["session"][code] for code in result.requests["session"].tolist()]
    assert list(zip(names, ms(result), result.requests["measured"].tolist(), strict=True)) == [
        ("c0", 3, 1), ("c2", 3, 1), ("c0", 0, 0), ("c1", 0, 0), ("c2", 1, 0)]
    assert result.requests["cached_tokens"].tolist() == [16, 16, 0, 0, 0]


def test_after_a_warm_up_the_second_turn_is_sent_however_few_there_may_be(run):
    assert ms(run(talks([1, 1, 1]), max_turns=2, warmup_step=True, early_stop=False)) == [1, 0]


def test_only_so_many_warm_up_as_may_be_sent_and_the_others_are_gone(run):
    result = run(talks([1, 1], [1, 1], [1, 1], [1, 1]), max_num_requests=2, warmup_step=True)

    assert ms(result) == [2, 3, 0, 1]


def test_clients_sleep_for_what_the_request_leaves_of_their_interval(run):
    # A client's mean interval is 10 ms; it sleeps for an exponential time of mean 10 ms less what the request took.
    outputs = [1, 4, 9, 15, 2, 1]
    result = run(talks(outputs), request_rate_per_s=100.0)
    draws = RandomStreams(0).generator("think").standard_exponential(len(outputs))

    expected = [0.0]
    for output, draw in zip(outputs[:-1], draws.tolist(), strict=False):
        expected.append(expected[-1] + output + draw * max(0, 10 - output))
    assert ms(result) == pytest.approx(expected, abs=1.0)       # an iteration may be under way
    assert ms(result)[4] == ms(result, "completed_ns")[3]       # 15 ms were too many: the next is sent at once


def test_a_conversation_that_is_refused_is_dropped(run):
    # The second turn of c0, 16 + 60 + 16 tokens, is longer than any text may be; the client goes on with c1.
    result = run(talks([60, 1, 1], [1]), engine={"max_model_len": 80})

    assert ms(result) == [0, 60, None, 60]
    assert result.summary["requests"]["rejected"] == 1


def test_clients_give_up_and_leave(run):
    # The first answer would take 4 ms: after 2.5 the client gives up, which is seen at 3, and with it all leave.
    result = run(talks([4, 1], [1], [2, 1]), num_clients=2, request_timeout_s=0.0025)

    assert ms(result) == [0, None, 0, 1, None]
    assert result.summary["requests"]["timed_out"] == 1


def test_long_answers_may_take_long(tmp_path):
    (tmp_path / "c.json").write_text(json.dumps(talks([599, 600, 1004])))
    columns = VllmMultiTurn(VllmMultiTurnParameters(path=str(tmp_path / "c.json"))).columns(RandomStreams(0))

    assert (columns.timeout_ns // 10**9).tolist() == [120, 120, 200]


def test_the_same_options_by_hand_send_the_same(run, tmp_path):
    result = run(talks([1, 4], [2, 2], [1], [3, 3]), max_active_conversations=2)
    load = {"mode": "concurrency", "concurrency": 1, "unit": "session", "sessions_per_slot": 2,
            "ends_with": "first_slot"}
    table = ONE_MS | {"workload": {"type": "trace", "format": "sharegpt", "path": "c.json", "load": load}}
    (tmp_path / "experiment.toml").write_text(tomli_w.dumps(table))
    by_hand = simulator.run(tmp_path / "experiment.toml")

    assert ms(result) == ms(by_hand)
    assert result.requests["cached_tokens"].tolist() == by_hand.requests["cached_tokens"].tolist()


def test_what_is_resolved_can_be_run_again(run, tmp_path):
    first = run(talks([1, 4], [2, 2], [1]), max_active_conversations=2, request_rate_per_s=3.0, warmup_step=True)
    simulator.run(tmp_path / "experiment.toml", out=tmp_path / "out")
    again = simulator.run(tmp_path / "out" / "resolved.toml")

    assert first.requests.tobytes() == again.requests.tobytes()


@pytest.mark.parametrize(("keys", "message"), [
    ({"conversation_sampling": "random"}, "would have to be drawn while requests are served"),
    ({"num_clients": 3, "max_active_conversations": 2}, "max_active_conversations = 2: expected num_clients, 3"),
    ({"num_clients": 3, "max_num_requests": 2}, "max_num_requests = 2: expected num_clients, 3, at least"),
    ({"num_clients": 3}, "3 clients need 3 conversations, "),
    ({"max_active_conversations": 3}, "1 clients need 3 conversations, "),
    ({"seed": 1}, "holds conversations, which are not generated; leave it out"),
    ({"least_user_tokens": 2}, "holds conversations, which are not generated; leave it out"),
    ({"load": {"mode": "concurrency", "concurrency": 5}},
     'workload.load.concurrency: type = "vllm_multi_turn" has 1, found 5; leave it out'),
    ({"load": {"max_in_flight": 5}}, 'workload.load.max_in_flight: type = "vllm_multi_turn" has 0, found 5'),
    ({"warmup": {"copies_of_first": 2}}, 'workload.warmup.copies_of_first: type = "vllm_multi_turn" has 0, found 2'),
    ({"num_requests": 3}, "workload.num_requests: unknown key; did you mean max_num_requests?"),
    ({"warmup_step": True, "max_num_requests": 1, "max_active_conversations": 2}, "1 clients need 2 conversations, "),
])
def test_what_cannot_be_is_refused(run, keys, message):
    with pytest.raises(InputErrors) as caught:
        run(talks([1, 1], [1]), **keys)
    assert message in str(caught.value)


def test_texts_without_lengths_are_refused(run):
    with pytest.raises(InputErrors, match="num_tokens: is missing beside a text; there is no tokenizer here"):
        run([{"id": "a", "messages": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}]}])


def test_prompts_do_not_depend_on_the_experiments_seed(run):
    content = given(turns=of("uniform", min=2, max=9), asked=of("uniform", min=1, max=99), num_conversations=5)
    one = run(content, seed=7)

    assert one.requests["prompt_tokens"].tolist() == run(content, seed=7).requests["prompt_tokens"].tolist()
    assert not np.array_equal(one.requests["prompt_tokens"], run(content, seed=8).requests["prompt_tokens"])
