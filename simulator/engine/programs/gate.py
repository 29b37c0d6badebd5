"""The programs behind one gateway: their turns that wait or run, and the calls of their policy."""
from collections import Counter
from collections.abc import Callable

import numpy as np

from simulator.admission.programs.base import Go, ProgramPolicy
from simulator.domain import records
from simulator.errors import BadAnswer

NO_PROGRAM = -1


class Account:
    """Records of each request, for all gateways; arrays (n,).

    wait_ns : int64, time for which the policy held the request.
    held_ns : int64, time after its end in which the KV of its program counted at a replica while a tool ran.
    num_left : requests of each session that have not ended.
    """

    def __init__(self, workload):
        self.requests, self.sessions = workload.requests, workload.demands["session"]
        self.wait_ns, self.held_ns = np.zeros(len(self.requests), np.int64), np.zeros(len(self.requests), np.int64)
        order = np.argsort(self.sessions, kind="stable")
        codes, begins = np.unique(self.sessions[order], return_index=True)
        self._rows = dict(zip(codes.tolist(), np.split(order, begins[1:]), strict=True))
        self.num_left = {code: len(rows) for code, rows in self._rows.items()}

    def is_over(self, program: int) -> bool:
        """Return whether no request of a session runs or will be sent."""
        return bool((self.requests["status"][self._rows[program]] >= records.COMPLETED).all())


class ProgramGate:
    """Asks a policy about each turn that passes a gateway.

    policy : ProgramPolicy. door : door.ProgramDoor of the gateway, or an object with its methods.
    account : Account. urgency : Urgency.
    call_at : `call_at(time_ns, action)`, see PythonOperation.begin.
    """

    def __init__(self, policy: ProgramPolicy, door, account: Account, urgency, call_at: Callable):
        self.policy, self._door, self._account, self._urgency, self._call_at = policy, door, account, urgency, call_at
        self._pools = door.pools()
        self._capacities = [door.capacity_tokens(i, 0) for i in range(len(self._pools))]
        self._routable = b""
        self._waiting: dict[int, list[int]] = {}        # program -> its turns that wait
        self._since_ns: dict[int, int] = {}             # turn that waits -> since when
        self._at_replicas: set[int] = set()             # turns that the policy let go, until they end
        self._num_running: Counter = Counter()          # program -> number of turns at replicas
        self._held: dict[int, tuple[int, int]] = {}     # program with a tool that runs -> its last turn, since when
        self._last: dict[int, int] = {}                 # program -> the turn that began last
        self.num_overlapping = 0                        # turns that came while another of their program was there
        self._broken: set[int] = set()                  # programs with a turn that did not complete

    def holds(self, row: int, now_ns: int) -> bool:
        """Return whether a turn has been sent, or waits; False: it is to be routed."""
        program = int(self._account.sessions[row])
        if program == NO_PROGRAM:
            return False
        is_again = row in self._at_replicas
        if is_again:
            self._drop(row, program)
        self.num_overlapping += not is_again and (self._num_running[program] > 0 or program in self._waiting)
        self._stop_holding(program, now_ns)
        self._see_replicas()
        if self.policy.looks(program):
            self._observe(now_ns)
        self._last[program] = row
        go = self.policy.begin(program, int(self._account.requests["prompt_tokens"][row]), now_ns, is_again)
        if go is None:
            self._waiting.setdefault(program, []).append(row)
            self._since_ns[row] = now_ns
            if self.policy.timeout_ns:
                self._call_at(now_ns + self.policy.timeout_ns, lambda then_ns: self._expire(row, now_ns, then_ns))
            return True
        return self._send(row, go, now_ns)

    def ended(self, row: int, now_ns: int) -> None:
        """Take note of a request that has left the cluster."""
        program = int(self._account.sessions[row])
        if program == NO_PROGRAM:
            return
        if row in self._since_ns:
            self._cancel(row, program, now_ns)
        elif row in self._at_replicas:
            self._drop(row, program)
            if not self._num_running[program]:
                self._end_turn(row, program, now_ns)
        if program in self._last and self._account.requests["status"][row] != records.COMPLETED:
            self._broken.add(program)

    def end_program(self, program: int) -> None:
        """Forget a program without a turn that runs or will be sent."""
        self._broken.discard(program)
        self._held.pop(program, None)
        self._last.pop(program, None)
        del self._num_running[program]
        self.policy.end_program(program)

    def tick(self, now_ns: int) -> None:
        """Have the policy look at all programs."""
        for program in sorted(each for each in self._broken if self._account.is_over(each)):
            self.end_program(program)
        self._observe(now_ns)
        self._release(self.policy.tick(now_ns), now_ns)
        self._note_freed(now_ns)
        self._call_at(now_ns + self.policy.interval_ns, self.tick)

    # ---- turns

    def _send(self, row: int, go: Go, now_ns: int) -> bool:
        """Send a turn where the policy says; return whether it was sent: else the router chooses."""
        program = go.program
        if go.replica is not None and go.replica not in range(len(self._pools)):
            raise BadAnswer(self.policy, "begin", f"a replica of 0 to {len(self._pools) - 1}, or None", go.replica)
        self._at_replicas.add(row)
        self._num_running[program] += 1
        self._urgency.change(row, go.priority_jump, None if go.replica is None else self._pools[go.replica])
        if go.replica is None:
            return False
        self._door.send(row, go.replica, now_ns)
        return True

    def _release(self, gone: list[Go], now_ns: int) -> None:
        """Send the turns of programs that wait no more."""
        for go in gone:
            for row in self._waiting.pop(go.program, ()):
                self._account.wait_ns[row] += now_ns - self._since_ns.pop(row)
                if not self._send(row, go, now_ns):
                    self._door.send(row, -1, now_ns)

    def _expire(self, row: int, since_ns: int, now_ns: int) -> None:
        """Let a turn go that has waited too long, if it still does."""
        if self._since_ns.get(row) == since_ns:
            self._observe(now_ns)
            self._release([self.policy.expire(int(self._account.sessions[row]), now_ns)], now_ns)

    def _cancel(self, row: int, program: int, now_ns: int) -> None:
        """Take out a turn with a client that gave up."""
        self._account.wait_ns[row] += now_ns - self._since_ns.pop(row)
        self._waiting[program].remove(row)
        if not self._waiting[program]:
            del self._waiting[program]
            self.policy.cancel(program, now_ns)

    def _drop(self, row: int, program: int) -> None:
        self._at_replicas.discard(row)
        self._num_running[program] -= 1

    def _end_turn(self, row: int, program: int, now_ns: int) -> None:
        request = self._account.requests[row]
        self._held[program] = row, now_ns
        self.policy.end_turn(program, int(request["prompt_tokens"]) + int(request["output_tokens"]), now_ns)
        self._note_freed(now_ns)

    # ---- the policy's view of the replicas

    def _see_replicas(self) -> None:
        """Show the policy which replicas can be routed to."""
        routable = self._door.routable()
        if routable != self._routable:
            self._routable = routable
            self.policy.set_capacities({i: self._capacities[i] for i, is_open in enumerate(routable) if is_open})

    def _observe(self, now_ns: int) -> None:
        """Show the policy the replicas, and the tokens of turns that run."""
        self._see_replicas()
        for row, tokens in self._door.running(now_ns) if self.policy.reads_tokens else ():
            program = int(self._account.sessions[row])
            if self._last.get(program) == row:
                self.policy.observe(program, tokens)

    # ---- KV of programs with tools that run

    def _stop_holding(self, program: int, now_ns: int) -> None:
        row, since_ns = self._held.pop(program, (NO_PROGRAM, now_ns))
        if row >= 0:
            self._account.held_ns[row] += now_ns - since_ns

    def _note_freed(self, now_ns: int) -> None:
        """Note which programs with tools that run the policy paused, or resumed."""
        for program, is_paused in self.policy.freed:
            if is_paused:
                self._stop_holding(program, now_ns)
            elif program in self._last:
                self._held[program] = self._last[program], now_ns
        self.policy.freed.clear()
