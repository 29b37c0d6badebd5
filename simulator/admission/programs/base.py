"""Base of the policies for programs: when a turn of an agent may go to a replica, and to which."""
from collections.abc import Mapping
from typing import ClassVar, NamedTuple

import msgspec


class Go(NamedTuple):
    """A turn that may go to a replica.

    program : its key.
    replica : key of the replica; None: the router chooses.
    priority_jump : by how much the turn is more urgent than its client says.
    was_paused : the turn has waited.
    is_demoted : its program is demoted.
    """

    program: int
    replica: int | None = None
    priority_jump: int = 0
    was_paused: bool = False
    is_demoted: bool = False


class ProgramPolicy:
    """Base of the policies: `begin` is overridden, other methods as needed.

    A policy is built as `Policy(parameters)`, with its own frozen `Parameters`. A program is known by a key from its
    first turn until `end_program`. All times are in ns; a tick comes each `interval_ns`.

    interval_ns : time between two ticks; 0: there are none.
    timeout_ns : time after which a turn that waits is let go by `expire`; 0: never.
    reads_tokens : `observe` is to be called before calls that look at replicas.
    counts : names of events -> how often they happened, for the summary.
    freed : (program, bool) of programs with a tool that runs, since the caller last emptied the list: True: it was
        paused, its KV is not counted any more; False: it was resumed.
    """

    interval_ns = 0
    timeout_ns = 0
    reads_tokens = False
    COUNTS: ClassVar[tuple[str, ...]] = ("pauses", "resumes", "demotions", "forced_resumes")

    def __init__(self, parameters: msgspec.Struct):
        self.parameters = parameters
        self.counts = dict.fromkeys(self.COUNTS, 0)
        self.freed: list[tuple[int, bool]] = []

    def set_capacities(self, capacities: Mapping) -> None:
        """Take the replicas that can be routed to: key -> tokens of KV."""

    def looks(self, program: int) -> bool:
        """Return whether `begin` looks at replicas for the next turn of a program."""
        return False

    def observe(self, program: int, tokens: int) -> None:
        """Take the tokens of a program with a turn that runs.

        tokens : of its prompt and its outputs so far.
        """

    def begin(self, program: int, prompt_tokens: int, now_ns: int, is_again: bool = False) -> Go | None:
        """Return how a turn that arrived goes on; None: it waits.

        prompt_tokens : 0: not known. is_again : the turn was at a replica, and is sent again.
        """
        raise NotImplementedError

    def end_turn(self, program: int, tokens: int, now_ns: int) -> None:
        """Note that a turn at a replica has ended: tools run now.

        tokens : of its prompt and outputs.
        """

    def cancel(self, program: int, now_ns: int) -> None:
        """Note that the client gave up a turn that waited."""

    def expire(self, program: int, now_ns: int) -> Go:
        """Return how a turn goes on that has waited for `timeout_ns`."""
        return Go(program, was_paused=True)

    def end_program(self, program: int) -> list[Go]:
        """Forget a program; return how its turn goes on, if one waits."""
        return []

    def tick(self, now_ns: int) -> list[Go]:
        """Return the turns that need not wait any more."""
        return []
