"""Programs of agents: their turns pass a policy before the router, for [cluster.programs]."""
from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any

from msgspec import Meta
from msgspec.structs import replace

from simulator import registry
from simulator.assembly.parts.base import Part
from simulator.config import features as has
from simulator.config.conflicts import Conflict, Feature
from simulator.config.experiment import Section
from simulator.domain.columns import Column
from simulator.errors import InputErrors, KeyFault
from simulator.results.programs import SUMMARY_KEYS, metrics_of

KEY = "cluster.programs"
PROGRAMS = Feature("programs of agents", KEY)
ENCODERS = Feature("encode pools", "embeddings", phrase='pools of role "encode"')
NO_SESSIONS = (f"{KEY}: expected requests with a session, a program is a session; found none: give a trace a column "
               'session, or workload.type = "sessions"')
NO_PRIORITIES = (f"[{KEY}] %d turns of demoted or resumed programs keep their priority, since their engine does not "
                 'look at priorities (vllm: engine.policy = "priority"; sglang: engine.enable_priority_scheduling = '
                 'true; blis: engine.policy = "priority-fcfs")')
OVERLAPPING = (f"[{KEY}] %d turns came while another turn of their session waited or ran: a program counts with the "
               "tokens of the turn that came last, and runs a tool when none of its turns waits or runs")
BLIS_POLICIES = ("priority-fcfs", "reverse-priority")
NO_TIERS = (f"[{KEY}] the capacity of a replica is that of its KV blocks: [kv_tiers] do not count, unless "
            "offload_tokens says how many tokens they hold")


class ProgramsTable(Section, kw_only=True):
    """Turns of agents before the router, [cluster.programs], with the policy's keys."""

    policy: Annotated[str, Meta(description=(
        "policy that holds turns of programs back and chooses their replica; a program is a session, with tools "
        "that run between its turns. none: programs are only measured"))] = "thunderagent"
    parameters: Annotated[Any, Meta(extra={"kind": "programs"})]


class AgentPrograms(Part):
    """Policies for the programs of agents."""

    keys = {KEY: Annotated[ProgramsTable | None, Meta(description=(
        "turns of agents pass a policy before the router; absent: none, and programs are not measured"))]}
    columns = {
        "program_wait_ns": Column("ns", "[cluster.programs] held the turn that long; 0: not at all"),
        "program_held_ns": Column("ns", "after the turn, time in which tools ran and its program was not paused"),
        "program_priority_jump": Column("", "by how much [cluster.programs] made the turn more urgent")}
    summary_keys = SUMMARY_KEYS
    summary_before = "itl_ms"
    conflicts = (
        Conflict(PROGRAMS, has.ROLES, "a program has one replica, and a turn would have several"),
        Conflict(PROGRAMS, ENCODERS, "a gateway holds requests back for one of the two"),
        Conflict(PROGRAMS, Feature("rescheduling", "cluster.rescheduling"),
                 "it would move turns off the replica of their program"),
    )

    def repeated(self, replicas: int, span_s: float) -> Iterator[tuple[str, float, str]]:
        if interval_s := getattr(self.experiment.cluster.programs.parameters, "scheduler_interval_s", None):
            yield f"{KEY}.scheduler_interval_s", span_s / interval_s, "ticks"

    def meet(self, prepared) -> None:
        """See Part."""
        if len(prepared.workload) and (prepared.workload.demands["session"] < 0).all():
            raise InputErrors([KeyFault(NO_SESSIONS)])

    def plan(self, plan, sink):
        """See Part; the run goes on until turns that wait in vain are let go."""
        policy = self._new_policy()
        longest_ns = policy.timeout_ns + policy.interval_ns if policy.timeout_ns else 0
        return replace(super().plan(plan, sink), keeps_journeys=True,
                       give_up_ns=max(plan.give_up_ns, longest_ns),
                       give_up_failing_ns=max(plan.give_up_failing_ns, longest_ns))

    def operations(self, sink) -> tuple:
        from simulator.engine.programs.operation import Programs

        signs = tuple(urgent_sign(pool.engine) for pool in self.experiment.all_pools())
        return (partial(Programs, self._new_policy, signs, self.experiment),)

    def _new_policy(self):
        table = self.experiment.cluster.programs
        return registry.load("programs", table.policy)(table.parameters)

    def summary(self, run, summary: dict) -> dict:
        """See Part."""
        columns = {name: run.columns[f"program_{name}"] for name in ("wait_ns", "held_ns")}
        counts = run.records["programs"]
        notes = []
        if in_vain := run.records["jumps_in_vain"]:
            notes.append(NO_PRIORITIES % in_vain)
        is_given = getattr(self.experiment.cluster.programs.parameters, "offload_tokens", 1)
        if not is_given and any(pool.kv_tiers for pool in self.experiment.all_pools()):
            notes.append(NO_TIERS)
        if overlapping := run.records["overlapping_turns"]:
            notes.append(OVERLAPPING % overlapping)
        return {"programs": metrics_of(run, columns, counts), "diagnosis": notes}


def urgent_sign(engine) -> int:
    """Return the sign of a change of priority that makes a request more urgent.

    0: the engine does not look at priorities.
    """
    given = engine.parameters
    if engine.scheduler == "vllm":
        return -1 if given.policy == "priority" else 0
    if engine.scheduler == "sglang" and given.enable_priority_scheduling:
        return -1 if given.schedule_low_priority_values_first else 1
    if engine.scheduler == "blis" and given.priority_policy == "class":
        return -1 if given.policy in BLIS_POLICIES or given.preemption_policy == "priority" else 0
    return 0
