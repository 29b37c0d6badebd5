"""Dynamo's ThunderAgent scheduler: every state after every operation of every recorded case.

A case is a line of a file `dynamo_thunderagent*.jsonl` in any folder of the recorded cases. The fields of the lines are
described in the README.md beside them.
"""
import json

import pytest

from simulator.admission.programs.thunderagent import ThunderAgent, ThunderAgentParameters
from support.goldens import GOLDENS

FILES = sorted(GOLDENS.rglob("dynamo_thunderagent*.jsonl"))
OF_SECONDS = {"resume_timeout_seconds": "resume_timeout_s", "scheduler_interval_seconds": "scheduler_interval_s",
              "acting_decay_tau_seconds": "acting_decay_tau_s"}
pytestmark = pytest.mark.skipif(not FILES, reason=f"no recorded cases of ThunderAgent under {GOLDENS}")


def ns(seconds):
    return round(seconds * 1e9)


class Driver:
    """Our policy, driven by the operations of a case."""

    def __init__(self, case):
        config = {OF_SECONDS.get(key, key): value for key, value in case["config"].items()}
        jumps = {key: int(config[key]) for key in ("soft_demote_priority_jump", "resume_priority_boost")}
        self.policy = ThunderAgent(ThunderAgentParameters(**config | jumps))
        self.places = [(worker, rank) for worker, rank, _ in case["capacities"]]
        self.capacities = {i: tokens for i, (_, _, tokens) in enumerate(case["capacities"])}
        self.policy.set_capacities(self.capacities)

    def apply(self, op):
        """Apply an operation; return the turns that may go."""
        policy, key, now_ns = self.policy, op.get("id"), ns(op["t"])
        match op["op"]:
            case "begin":
                go = policy.begin(key, op["estimated_prompt_tokens"], now_ns)
                return [go] if go else []
            case "output":
                policy.observe(key, policy.programs[key].tokens + op["delta_tokens"])
            case "end_request":
                policy.end_turn(key, op["prompt_tokens"] + op["completion_tokens"], now_ns)
            case "end_program":
                return policy.end_program(key)
            case "worker_gone":
                self.capacities = {i: tokens for i, tokens in self.capacities.items()
                                   if self.places[i][0] != op["worker"]}
                policy.set_capacities(self.capacities)
            case "tick":
                return policy.tick(now_ns)
        return []

    def state(self, went):
        """Return the state in the recording's form."""
        at = dict(enumerate(self.places))
        admitted = {go.program: (go.was_paused, go.priority_jump, go.is_demoted, at.get(go.replica)) for go in went}
        programs = [(each.key, "acting" if each.is_acting else "reasoning", "paused" if each.is_paused else "active",
                     at.get(each.replica), each.tokens, each.steps, each.is_marked,
                     each.demoted_until_ns) for each in self.policy.programs.values()]
        return admitted, programs, list(self.policy.paused)


def recorded(op):
    """Return the state that was recorded after an operation."""
    def place(each):
        return tuple(each["at"]) if each["at"] else None

    admitted = {each["id"]: (each["was_paused"], each["priority_jump"], each["soft_demoted"], place(each))
                for each in op["admitted"]}
    programs = [(each["id"], each["status"], each["life"], place(each), each["tokens"], each["steps"], each["marked"],
                 ns(each["demoted_until"])) for each in op["programs"]]
    return admitted, programs, op["paused"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_state_is_that_of_thunderagent(path):
    with open(path) as lines:
        for case in map(json.loads, lines):
            driver = Driver(case)
            for number, op in enumerate(case["ops"]):
                found = driver.state(driver.apply(op))
                driver.policy.check()
                assert found == recorded(op), f"case {case['seed']}, operation {number}: {op['op']}"
