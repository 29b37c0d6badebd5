"""What a scheduler in Python may not do, what it sees, and how it ends where it does nothing."""
import re
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from scheduling.lab import Fcfs, completed, serve
from simulator.domain import records
from simulator.scheduling.python_scheduler import LocalRequest, NextBatch, PythonScheduler
from support import engine
from support.scenario import load
from support.traffic import random_traffic
from support.workloads import plain_workload


def scheduler_that(form_batch):
    return type("Lab", (PythonScheduler,), {"form_batch": form_batch})


MISUSES = {
    "run a request that waits": (
        lambda self, batch, now_ns: batch.run(batch.waiting[0]), "cannot run request 0: it waits; admit it first"),
    "admit one that runs": (
        lambda self, batch, now_ns: [batch.admit(request) for request in batch.waiting[:1] * 2],
        "cannot admit request 0: it was admitted by this very batch"),
    "run one twice": (
        lambda self, batch, now_ns: [batch.run(batch.running[0]) for _ in range(2)] if batch.running
        else batch.admit(batch.waiting[0]) and None,
        "cannot run request 0: it has 1 tokens in this batch already"),
    "run one that was admitted just now": (
        lambda self, batch, now_ns: batch.run([*batch.waiting, batch.admit(batch.waiting[0])][0]),
        "cannot run request 0: it was admitted by this very batch"),
    "preempt one that was admitted just now": (
        lambda self, batch, now_ns: batch.preempt([*batch.waiting, batch.admit(batch.waiting[0])][0]),
        "cannot preempt request 0: it was admitted by this very batch"),
    "admit again what was preempted": (
        lambda self, batch, now_ns: [batch.preempt(batch.running[0]), batch.admit(batch.waiting[0])] if batch.running
        else batch.admit(batch.waiting[0]) and None,
        "cannot admit request 0: it was preempted by this very batch"),
    "too many tokens": (
        lambda self, batch, now_ns: batch.admit(batch.waiting[0], 7),
        "cannot admit request 0: expected 1 to 6 tokens, what remains of its text, found 7"),
    "no tokens": (
        lambda self, batch, now_ns: batch.admit(batch.waiting[0], 0),
        "cannot admit request 0: expected 1 to 6 tokens, what remains of its text, found 0"),
    "half a token": (
        lambda self, batch, now_ns: batch.admit(batch.waiting[0], 0.5),
        "cannot admit request 0: expected a whole number of tokens, found 0.5"),
    "more than the budget": (
        lambda self, batch, now_ns: [batch.admit(request, 6) for request in batch.waiting],
        "cannot admit request 1: 6 tokens are more than the 2 left of max_num_batched_tokens = 8"),
    "more than may run": (
        lambda self, batch, now_ns: [batch.admit(request, 1) for request in batch.waiting],
        "cannot admit request 2: max_num_seqs = 2 requests run"),
    "an answer": (
        lambda self, batch, now_ns: [(batch.waiting[0], 6)], "form_batch: expected None, since calls to the batch"),
    "a row": (
        lambda self, batch, now_ns: batch.admit(0), "cannot admit 0: expected one of batch.waiting or batch.running"),
}


@pytest.mark.parametrize("misuse", sorted(MISUSES))
def test_misuse_is_refused_with_request_and_reason(misuse):
    form_batch, message = MISUSES[misuse]
    kind = scheduler_that(form_batch)

    with pytest.raises((ValueError, TypeError), match=re.escape(f"Lab{'.' if 'answer' in misuse else ': '}{message}")):
        serve(kind, plain_workload([0] * 3, [6, 6, 6], 3),
              parameters=kind.Parameters(max_num_seqs=2, max_num_batched_tokens=8))


def test_a_batch_is_of_no_use_after_its_call():
    kept = []

    def form_batch(self, batch, now_ns):
        kept.extend([batch, batch.waiting[0]])

    serve(scheduler_that(form_batch), plain_workload(0, 6, 3))

    with pytest.raises(ValueError, match="Lab: a batch is formed only while form_batch runs"):
        kept[0].admit(kept[1])


def test_a_request_that_has_left_is_known_as_such():
    seen = []

    def form_batch(self, batch, now_ns):
        seen.extend(batch.waiting)
        for request in batch.waiting:
            batch.admit(request)
        if now_ns > 0:
            batch.run(seen[0])

    # both are done after one iteration; the third comes when they have left
    with pytest.raises(ValueError, match="Lab: cannot run request 0: it has left"):
        serve(scheduler_that(form_batch), plain_workload([0, 0, 10**9], 6, 1))


def test_a_request_of_another_replica_is_none_of_ours():
    seen = []

    def form_batch(self, batch, now_ns):
        seen.extend(batch.waiting)
        if len(seen) == 2:
            batch.admit(seen[0])

    with pytest.raises(ValueError, match="Lab: cannot admit request 0: it is not in this replica"):
        serve(scheduler_that(form_batch), plain_workload([0, 1], 6, 5), replicas=2)


def test_no_room_changes_nothing():
    answers = []

    def form_batch(self, batch, now_ns):
        if batch.waiting:
            answers.append((batch.admit(batch.waiting[0]), batch.free_blocks, batch.budget, len(batch.waiting)))
        for request in batch.running:
            if not request.scheduled_tokens:
                batch.run(request)

    recording = serve(scheduler_that(form_batch), plain_workload([0] * 2, [30, 30], 1))

    # 30 tokens take 8 of 10 blocks; the second finds 2, and all of the budget but the first one's token
    assert answers == [(True, 2, 8192 - 30, 1), (True, 2, 8192 - 30, 0)] and completed(recording)


def test_a_scheduler_that_never_schedules_ends_with_a_diagnosis():
    recording = serve(scheduler_that(lambda self, batch, now_ns: None), plain_workload([0] * 2, [6, 6], 3))

    assert recording.diagnosis == [
        "replica 0: stuck: request 0 and 1 behind it wait for ever: Lab.form_batch schedules nothing while nothing "
        "else happens"]
    assert recording.requests["status"].tolist() == [records.WAITING] * 2


def test_a_scheduler_that_leaves_running_requests_alone_ends_with_a_diagnosis():
    def form_batch(self, batch, now_ns):
        for request in batch.waiting:
            batch.admit(request)

    recording = serve(scheduler_that(form_batch), plain_workload([0] * 2, [6, 6], 3))

    assert recording.diagnosis == [
        "replica 0: stuck: request 0 and 1 more run and get no tokens for ever: Lab.form_batch schedules nothing while "
        "nothing else happens"]


def test_a_scheduler_that_preempts_for_ever_ends_with_a_diagnosis():
    def form_batch(self, batch, now_ns):
        for request in batch.running:
            batch.preempt(request)
        if not batch.num_preempted:
            batch.admit(batch.waiting[0], 1)

    diagnosis, = serve(scheduler_that(form_batch), plain_workload(0, 6, 3)).diagnosis

    assert "livelock" in diagnosis and diagnosis.endswith("give more blocks, or let fewer requests run at once")


def test_a_scheduler_may_preempt_a_request_that_is_alone_as_often_as_it_likes():
    # The first request fills all ten blocks of four tokens; the second, alone behind it, loses its turn eight times.
    def form_batch(self, batch, now_ns):
        for request in batch.running:
            if request.prompt_tokens == 6 and request.computed_tokens >= 6 and self.turns_lost < 8:
                self.turns_lost += 1
                batch.preempt(request)
            else:
                batch.run(request, request.remaining_tokens)
        if not (batch.num_preempted or batch.running):
            batch.admit(batch.waiting[0], batch.waiting[0].remaining_tokens)

    kind = scheduler_that(form_batch)
    kind.turns_lost = 0
    recording = serve(kind, plain_workload([0, 10**9], [39, 6], [1, 20]))

    assert recording.diagnosis == []
    assert recording.requests["preemptions"].tolist() == [0, 8]
    assert recording.replicas["peak_used_blocks"].tolist() == [10]


def test_an_exception_reaches_the_caller():
    with pytest.raises(ZeroDivisionError):
        serve(scheduler_that(lambda self, batch, now_ns: 1 / 0), plain_workload(0, 6, 3))


def test_the_base_class_says_what_to_override():
    with pytest.raises(NotImplementedError, match="PythonScheduler must override form_batch"):
        serve(PythonScheduler, plain_workload(0, 6, 3))


def test_an_init_that_forgets_its_base_does_no_harm():
    kind = type("Lab", (Fcfs,), {"__init__": lambda self, parameters, context: None})

    assert completed(serve(kind, plain_workload([0] * 2, [6, 6], 3)))


def test_requests_show_what_is_known_and_not_what_time_will_tell():
    seen = []

    def form_batch(self, batch, now_ns):
        for request in [*batch.running, *batch.waiting]:
            seen.append([request.request_id, request.prompt_tokens, request.max_tokens, request.computed_tokens,
                         request.remaining_tokens, request.output_tokens, request.is_running])
            batch.run(request) if request.is_running else batch.admit(request)

    workload = plain_workload(0, 6, 2)
    workload.demands["max_tokens"] = 9
    serve(scheduler_that(form_batch), workload)

    assert seen == [[0, 6, 9, 0, 6, 0, False], [0, 6, 9, 6, 1, 1, True]]


def test_requests_are_the_same_object_while_they_are_there():
    seen = []

    def form_batch(self, batch, now_ns):
        seen.append([*batch.running, *batch.waiting][0])
        batch.run(seen[-1]) if batch.running else batch.admit(seen[-1])

    serve(scheduler_that(form_batch), plain_workload(0, 6, 4))

    assert len(seen) == 4 and len(set(map(id, seen))) == 1


def test_prompts_found_in_the_cache_are_not_computed_again():
    looked = []

    class Looking(Fcfs):
        def form_batch(self, batch, now_ns):
            looked.extend(batch.cached_tokens(request) for request in batch.waiting)
            super().form_batch(batch, now_ns)

    description = {"options": {"block_size": 4, "num_blocks": 20}, "prices": {"base_us": 1000.0},
                   "requests": [{"id": name, "arrival": at, "output_len": 1, "prompt": [["group", "a", 9]]}
                                for name, at in (("a", 0.0), ("b", 1.0))]}
    scenario = replace(load(description), parameters=Looking.Parameters())
    recording = engine.run(scenario, scheduler=Looking, details=False)

    # two full blocks of 4 tokens
    assert looked == [0, 8] and recording.requests["cached_tokens"].tolist() == [0, 8]


def test_batches_and_requests_are_made_by_the_engine_alone():
    for kind in (NextBatch, LocalRequest):
        with pytest.raises(TypeError, match=f"a {kind.__name__} is made by the engine alone"):
            kind()


# ---- whatever it does

class Erratic(PythonScheduler):
    """Does anything to anybody, allowed or not, and now and then what lets a request go on."""

    rng = Random(0)

    def form_batch(self, batch, now_ns):
        self.check()
        known.extend(batch.waiting)
        for _ in range(self.rng.randint(0, 12)):
            request = self.rng.choice(known)
            deed = self.rng.choice((batch.admit, batch.run, batch.preempt, batch.cached_tokens))
            tokens = self.rng.choice(((), (1,), (5,), (-1,), (10**12,))) if deed in (batch.admit, batch.run) else ()
            try:
                deed(request, *tokens)
            except ValueError:
                refused.append(request.row)
        for request in batch.running:
            if not request.scheduled_tokens and now_ns > 10**9:
                batch.run(request)


known, refused = [], []


@pytest.mark.parametrize("seed", range(12))
def test_no_sequence_of_calls_corrupts_anything(seed):
    description, replicas = random_traffic(seed)
    description["options"] |= {"vllm_version": "0.32", "async_scheduling": False, "num_speculative_tokens": 0}
    scenario = load(description)
    parameters = Erratic.Parameters(max_num_seqs=scenario.parameters.max_num_seqs, max_num_batched_tokens=64)
    known.clear(), refused.clear()
    Erratic.rng = Random(seed)

    recording = engine.run(
        replace(scenario, parameters=parameters), scheduler=Erratic, details=False, replicas=replicas)

    # it ends, with all served or a reason why not; nobody got more than was asked for
    left = np.isin(recording.requests["status"], (records.WAITING, records.RUNNING))
    assert refused and (not left.any() or recording.diagnosis)
    assert (recording.requests["output_tokens"] <= scenario.workload.demands["max_tokens"]).all()
