"""Dynamo's ThunderAgent scheduler: programs are paused where their KV would not fit, and resumed where it does.

Source: ai-dynamo 1.6.1, dynamo.thunderagent_router (ThunderAgentScheduler), rules and recorded decisions in
shared/specs/cluster_2026.md, section 4.1.
"""
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Annotated

import msgspec
from msgspec import Meta

from simulator.admission.programs.base import Go, ProgramPolicy

Share = Annotated[float, Meta(ge=0, le=1)]
Jump = Annotated[int, Meta(ge=-2**20, le=2**20, extra={"unit": "priorities"})]
DEMOTED_INTERVALS = 1.5     # a demotion lasts this many intervals; recorded are 7.5 s for 5 s alone


class ThunderAgentParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Thresholds are shares of a replica's tokens of KV; defaults are Dynamo's."""

    pause_threshold: Annotated[Share, Meta(description=(
        "share of its KV above which programs of a replica are paused"))] = 0.95
    pause_target: Annotated[Share, Meta(extra={"unit": "ratio"}, description=(
        "share of its KV down to which programs are paused"))] = 0.8
    soft_demote_threshold: Annotated[Share, Meta(description=(
        "share of its KV from which on programs of a replica are demoted, below pause_threshold"))] = 0.8
    soft_demote_priority_jump: Annotated[Jump, Meta(description=(
        "by how much turns of demoted programs are more urgent; negative: less"))] = -2
    resume_priority_boost: Annotated[Jump, Meta(description=(
        "by how much a turn is more urgent that waited until its program was resumed"))] = 1
    resume_hysteresis: Annotated[Share, Meta(description=(
        "programs are resumed up to pause_threshold less this share of the KV"))] = 0.1
    acting_token_weight: Annotated[Share, Meta(description=(
        "weight of the tokens of programs that run a tool"))] = 1.0
    acting_decay_tau_s: Annotated[Annotated[float, Meta(gt=0, le=1e6)], Meta(description=(
        "half-life of the tokens of programs that run a tool, in the choice of a replica at resume_timeout_s"))] = 1.0
    buffer_per_program: Annotated[int, Meta(ge=0, le=2**31 - 1, extra={"unit": "tokens"}, description=(
        "tokens counted for each program beside its own"))] = 100
    offload_tokens: Annotated[int, Meta(ge=0, le=2**40, description=(
        "tokens of offloaded KV that a replica has room for, added to those of its KV blocks"))] = 0
    scheduler_interval_s: Annotated[Annotated[float, Meta(ge=1e-3, le=1e6)], Meta(description=(
        "time between two looks at all programs"))] = 5.0
    resume_timeout_s: Annotated[Annotated[float, Meta(gt=0, le=1e6)], Meta(description=(
        "a turn that has waited this long goes to the replica with the most room"))] = 1800.0

    def __post_init__(self):
        if self.pause_target > self.pause_threshold:
            raise ValueError(f"pause_target = {self.pause_target}: expected at most pause_threshold = "
                             f"{self.pause_threshold}")
        if self.resume_hysteresis > self.pause_threshold:
            raise ValueError(f"resume_hysteresis = {self.resume_hysteresis}: expected at most pause_threshold = "
                             f"{self.pause_threshold}")


@dataclass(eq=False)
class Program:
    """All turns of one agent.

    key : of the program. tokens : of its last prompt and outputs. steps : turns that began.
    is_acting : a tool runs; else a turn waits or runs. is_paused : it has no replica until it is resumed.
    is_marked : it is paused when its turn ends. replica : key; None: it has none.
    demoted_until_ns, acting_since_ns : instants. before : tokens and is_acting before the turn that waits.
    charge, charged_to : tokens that it counts for, and the replica.
    """

    key: int
    tokens: int = 0
    steps: int = 0
    is_acting: bool = False
    is_paused: bool = False
    is_marked: bool = False
    replica: int | None = None
    demoted_until_ns: int = 0
    acting_since_ns: int = 0
    before: tuple[int, bool] = (0, False)
    charge: int = 0
    charged_to: int | None = None


class ThunderAgent(ProgramPolicy):
    """Admits programs with KV that fits a replica, and pauses some of full replicas."""

    Parameters = ThunderAgentParameters
    reads_tokens = True

    def __init__(self, parameters: ThunderAgentParameters):
        super().__init__(parameters)
        self.interval_ns = round(parameters.scheduler_interval_s * 1e9)
        self.timeout_ns = round(parameters.resume_timeout_s * 1e9)
        self.capacities: dict[int, int] = {}        # replica -> tokens
        self.used: dict[int, int] = {}              # replica -> tokens of its programs
        self.programs: dict[int, Program] = {}      # oldest first
        self.paused: dict[int, Program] = {}        # those that are paused, in that order

    def set_capacities(self, capacities: Mapping[int, int]) -> None:
        """See ProgramPolicy; programs of other replicas are placed at their next turn."""
        offloaded = self.parameters.offload_tokens
        self.capacities = {key: tokens + offloaded for key, tokens in capacities.items()}
        self.used = dict.fromkeys(capacities, 0)
        for program in self.programs.values():
            program.charged_to = None
            self._account(program)

    def looks(self, program: int) -> bool:
        """See ProgramPolicy."""
        known = self.programs.get(program)
        return known is None or not (known.is_paused or known.replica in self.capacities)

    def observe(self, program: int, tokens: int) -> None:
        """See ProgramPolicy."""
        if program in self.programs:
            self.programs[program].tokens = tokens
            self._account(self.programs[program])

    def begin(self, program: int, prompt_tokens: int, now_ns: int, is_again: bool = False) -> Go | None:
        """See ProgramPolicy."""
        is_new = program not in self.programs
        known = self.programs.setdefault(program, Program(program))
        known.before = known.tokens, known.is_acting
        known.is_acting = False
        known.steps += not is_again
        if prompt_tokens > 0:
            known.tokens = prompt_tokens
        if not known.is_paused and known.replica not in self.capacities:
            known.replica = None
            fitting = [key for key, capacity in self.capacities.items()
                       if capacity - self.used[key] >= self._size(known)]
            if is_new and (self.paused or not fitting):
                self._pause(known)
            elif fitting:
                known.replica = min(fitting, key=self.used.__getitem__)
        self._account(known)
        return None if known.is_paused else self._go(known, now_ns)

    def end_turn(self, program: int, tokens: int, now_ns: int) -> None:
        """See ProgramPolicy."""
        if program not in self.programs:
            return
        known = self.programs[program]
        known.tokens, known.is_acting, known.acting_since_ns = tokens, True, now_ns
        if known.is_marked:
            self._pause(known)
        self._account(known)

    def cancel(self, program: int, now_ns: int) -> None:
        """See ProgramPolicy; the program is as before the turn."""
        known = self.programs[program]
        known.steps -= 1
        known.tokens, known.is_acting = known.before
        if known.steps == 0:
            self.end_program(program)
        else:
            self._account(known)

    def expire(self, program: int, now_ns: int) -> Go:
        """See ProgramPolicy."""
        known = self.programs[program]
        room = dict(self.capacities)
        for each in self.programs.values():
            if each.charged_to is not None:
                room[each.charged_to] -= int(self._decayed(each, now_ns)) + self.parameters.buffer_per_program
        self._resume(known, max(room, key=room.__getitem__) if room else None)
        self.counts["forced_resumes"] += 1
        return self._go(known, now_ns, was_paused=True)

    def end_program(self, program: int) -> list[Go]:
        """See ProgramPolicy."""
        known = self.programs.pop(program, None)
        if known is None:
            return []
        self._discharge(known)
        was_waiting = self.paused.pop(program, None) is not None and not known.is_acting
        return [Go(program)] * was_waiting

    def tick(self, now_ns: int) -> list[Go]:
        """See ProgramPolicy."""
        self._demote(now_ns)
        gone = self._resume_some(now_ns)
        self._pause_some()
        return gone

    # ---- the three steps of a tick

    def _demote(self, now_ns: int) -> None:
        """Demote the programs of replicas that are nearly full."""
        given, until_ns = self.parameters, now_ns + round(DEMOTED_INTERVALS * self.interval_ns)
        for key, capacity in self.capacities.items():
            if not given.soft_demote_threshold <= self.used[key] / capacity < given.pause_threshold:
                continue
            for program in self._programs_of(key):
                if not program.is_marked:
                    self.counts["demotions"] += program.demoted_until_ns <= now_ns
                    program.demoted_until_ns = until_ns

    def _resume_some(self, now_ns: int) -> list[Go]:
        """Resume the programs that fit, largest first; return the turns that waited."""
        room = self._room()
        left, chosen = sum(room.values()), []
        for program in sorted(self.paused.values(), key=_urgency):
            if self._size(program) <= left:
                left -= self._size(program)
                chosen.append(program)
        chosen.sort(key=attrgetter("tokens"), reverse=True)
        resumed = []
        for program in chosen if room else ():
            freest = max(room, key=room.__getitem__)
            if room[freest] < self._size(chosen[-1]):
                break
            if self._size(program) <= room[freest]:
                room[freest] -= self._size(program)
                self._resume(program, freest)
                resumed.append(program)
        return [self._go(program, now_ns, was_paused=True) for program in resumed if not program.is_acting]

    def _room(self) -> dict[int, int]:
        """Return the tokens up to which replicas may be filled again, for those with room; the freest first."""
        given = self.parameters
        share = given.pause_threshold - given.resume_hysteresis
        room = {key: int(share * capacity) - self.used[key] for key, capacity in self.capacities.items()}
        return {key: tokens for key, tokens in sorted(room.items(), key=lambda each: -each[1])
                if tokens > given.buffer_per_program}

    def _pause_some(self) -> None:
        """Pause programs with tools that run, smallest first, where a replica is too full; mark all, if need be."""
        given = self.parameters
        for key, capacity in self.capacities.items():
            if self.used[key] <= given.pause_threshold * capacity:
                continue
            programs = list(self._programs_of(key))
            for program in sorted((each for each in programs if each.is_acting), key=attrgetter("tokens")):
                if self.used[key] <= given.pause_target * capacity:
                    break
                self._pause(program)
            if self.used[key] > given.pause_target * capacity:
                for program in programs:
                    program.is_marked = program.is_marked or not program.is_acting

    # ---- single programs

    def _programs_of(self, key: int) -> Iterator[Program]:
        return (each for each in self.programs.values() if each.charged_to == key)

    def _size(self, program: Program) -> int:
        """Return the tokens that a replica must have left for a program."""
        return program.tokens + self.parameters.buffer_per_program

    def _go(self, program: Program, now_ns: int, was_paused: bool = False) -> Go:
        given, is_demoted = self.parameters, program.demoted_until_ns > now_ns
        jump = given.resume_priority_boost * was_paused + given.soft_demote_priority_jump * is_demoted
        return Go(program.key, program.replica, jump, was_paused, is_demoted)

    def _pause(self, program: Program) -> None:
        program.is_paused, program.is_marked, program.replica = True, False, None
        self.paused[program.key] = program
        self.counts["pauses"] += 1
        if program.is_acting:
            self.freed.append((program.key, True))
        self._account(program)

    def _resume(self, program: Program, replica: int | None) -> None:
        program.is_paused, program.replica = False, replica
        del self.paused[program.key]
        self.counts["resumes"] += 1
        if program.is_acting:
            self.freed.append((program.key, False))
        self._account(program)

    def _weighted(self, program: Program) -> float:
        return program.tokens * (self.parameters.acting_token_weight if program.is_acting else 1)

    def _decayed(self, program: Program, now_ns: int) -> float:
        """Return the tokens of a program, halved for each half-life in which its tool has run."""
        if not program.is_acting:
            return program.tokens
        idle_s = (now_ns - program.acting_since_ns) / 1e9
        return self._weighted(program) * 2.0 ** (-idle_s / self.parameters.acting_decay_tau_s)

    def _account(self, program: Program) -> None:
        """Count the tokens of a program at its replica."""
        self._discharge(program)
        if not program.is_paused and program.replica in self.used:
            program.charge = int(self._weighted(program)) + self.parameters.buffer_per_program
            program.charged_to = program.replica
            self.used[program.replica] += program.charge

    def _discharge(self, program: Program) -> None:
        if program.charged_to is not None:
            self.used[program.charged_to] -= program.charge
            program.charged_to = None

    def check(self) -> None:
        """Raise AssertionError unless the tokens of replicas are those of their programs."""
        for key, tokens in self.used.items():
            assert tokens == sum(each.charge for each in self._programs_of(key))
        assert all(each.is_paused and each.replica is None for each in self.paused.values())


def _urgency(program: Program) -> tuple[int, int]:
    """Return the key of the order in which paused programs are resumed."""
    rank = 1 if program.steps == 1 else 2 if program.is_acting else 0
    return rank, program.tokens
