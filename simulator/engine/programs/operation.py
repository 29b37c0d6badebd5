"""Programs of agents at the gateways of a cluster: a policy decides when their turns go to replicas."""
from simulator.domain.run import added_up
from simulator.engine.operations.python_operation import PythonOperation
from simulator.engine.programs.door import ProgramDoor
from simulator.engine.programs.gate import NO_PROGRAM, Account, ProgramGate
from simulator.engine.programs.urgency import Urgency

WAIT_NS, HELD_NS, JUMP = "program_wait_ns", "program_held_ns", "program_priority_jump"


class Programs(PythonOperation):
    """A gate for each gateway.

    new_policy : function that returns a ProgramPolicy, called for each gateway.
    signs : as `urgency.Urgency` takes them.
    """

    def __init__(self, new_policy, signs, experiment, *cluster):
        super().__init__(experiment, *cluster)
        self._new_policy = new_policy
        self._doors = [ProgramDoor(gateway, self.fleet) for gateway in self.gateways]
        self._account = Account(self.fleet.workload)
        self._urgency = Urgency(self.fleet.workload.demands, signs)
        self.gates: list[ProgramGate] = []

    def begin(self, call_at) -> None:
        """See PythonOperation."""
        for door in self._doors:
            door.gate = ProgramGate(self._new_policy(), door, self._account, self._urgency, call_at)
            self.gates.append(door.gate)
            if door.gate.policy.interval_ns:
                call_at(door.gate.policy.interval_ns, door.gate.tick)

    def ended(self, row: int, now_ns: int) -> None:
        """See PythonOperation."""
        for gate in self.gates:
            gate.ended(row, now_ns)
        program = int(self._account.sessions[row])
        self._account.num_left[program] -= 1
        for gate in self.gates if program != NO_PROGRAM and not self._account.num_left[program] else ():
            gate.end_program(program)

    def report(self, run) -> None:
        """See PythonOperation: columns of /requests, and the counts of the policies."""
        self._urgency.restore()
        run.columns[WAIT_NS], run.columns[HELD_NS] = self._account.wait_ns, self._account.held_ns
        run.columns[JUMP] = self._urgency.jumps
        run.records["jumps_in_vain"] = self._urgency.num_in_vain
        run.records["overlapping_turns"] = sum(gate.num_overlapping for gate in self.gates)
        run.records["programs"] = added_up(gate.policy.counts for gate in self.gates)
