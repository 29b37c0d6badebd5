"""A LiveFleet on a clock: requests come in, news go out when they are due. It knows nothing of sockets."""
import time
from collections.abc import Callable

from simulator.domain import records
from simulator.live.clock import BEHIND_NS, Clock, Lag
from simulator.live.fleet import LiveFleet, LiveRequest, Message

TURN_NS = 5_000_000             # CPU time of a turn that is behind, so that others have theirs
FIRST_SLICE_NS, MOST_SLICE_NS = 10**7, 10**12          # of simulated time in such a turn

Listener = Callable[[Message, int], None]       # takes news, and the time of the wall at which they were due


class Service:
    """Moves the fleet on with the clock.

    wake : called when something has come in, so that `turn` is called soon. stretches : time that is behind the wall
    by more than `BEHIND_NS` goes on from the next event.
    """

    def __init__(self, fleet: LiveFleet, clock: Clock, wake: Callable[[], None] = lambda: None,
                 stretches: bool = False):
        self.fleet, self.clock, self.wake = fleet, clock, wake
        self.lag = Lag()
        self.stretched_ns, self._stretches = 0, stretches   # wall time for which simulated time waited
        self.engine_ns = 0                      # CPU time of the engine
        self.observer: Callable[[Message], None] | None = None      # called with all news
        self._listeners: dict[int, Listener] = {}
        self._slice_ns = FIRST_SLICE_NS

    def submit(self, request: LiveRequest, listener: Listener) -> int:
        """Let a request arrive now; return its row. Raises fleet.Full."""
        row = self.fleet.submit(request, self._now_ns())
        self._listeners[row] = listener
        self.wake()
        return row

    def leave(self, row: int) -> None:
        """Let the client of a request leave; it gets no more news."""
        if self._listeners.pop(row, None) is not None:
            self.fleet.cancel(row, self._now_ns())
            self.wake()

    def step(self) -> int | None:
        """Do due work for about `TURN_NS`; return as `turn` does."""
        began_ns = time.thread_time_ns()
        found = self.turn(self._slice_ns)
        share = TURN_NS / max(time.thread_time_ns() - began_ns, 1)
        self._slice_ns = min(max(round(self._slice_ns * min(share, 2.0)), 1), MOST_SLICE_NS)
        return found

    def turn(self, most_ns: int | None = None) -> int | None:
        """Do all that is due; return the time of the wall at which more is.

        None: nothing is until something comes in.

        most_ns : simulated time that this may take from the next event on; None: any.
        """
        began_ns = time.thread_time_ns()
        if self.clock.is_fast:
            if self.fleet.is_idle:              # an autoscaler would let time run on for ever
                return None
            if not self.clock.is_paused and (next_ns := self.fleet.next_ns()) is not None:
                self.clock.jump(next_ns)
        now_ns = self._now_ns()
        if most_ns is not None and (next_ns := self.fleet.next_ns()) is not None:
            now_ns = min(now_ns, next_ns + most_ns)
        self.fleet.advance(now_ns)
        news = self.fleet.due(now_ns)
        self.engine_ns += time.thread_time_ns() - began_ns
        for message in news:
            self._pass_on(message)
        next_ns = self.fleet.next_ns()
        if self.fleet.is_stopped or (next_ns is None and not self.fleet.is_idle):   # requests wait for ever
            self.fleet.is_stopped = True
            self.fail_all()
        if next_ns is None:
            return None
        return self.clock.wall_at(next_ns)

    def fail_all(self) -> None:
        """End all requests: the engine cannot go on."""
        for row in [*self._listeners]:
            self._pass_on(Message(self.clock.now_ns(), 0, row, 0, records.FAILED))

    def _now_ns(self) -> int:
        """Return the simulated time, which waits for events that are late if it may."""
        if self._stretches and (next_ns := self.fleet.next_ns()) is not None:
            due_ns = self.clock.wall_at(next_ns)
            if due_ns is not None and (late_ns := self.clock.wall_ns() - due_ns) > BEHIND_NS:
                self.clock.go_back(next_ns)
                self.stretched_ns += late_ns
        return self.clock.now_ns()

    def pause(self) -> None:
        """Halt the time, once all that is due is done."""
        self.turn()
        self.clock.pause()

    def resume(self) -> None:
        """Let the time go on."""
        self.clock.resume()
        self.wake()

    def change_speed(self, speed: float | str) -> None:
        """Set the speed, once all that is due is done."""
        self.turn()
        self.clock.change(speed)
        self.wake()

    def act(self, action: Callable[..., int], *arguments, **options) -> int:
        """Take one of the fleet's actions, once all that is due is done.

        Returns its instant, or its result. Raises actions.NotPossible.
        """
        self.turn()
        found = action(*arguments, now_ns=self.clock.now_ns(), **options)
        self.wake()
        return found

    def abort(self) -> None:
        """Let all clients leave, and the requests with them."""
        for row in self.fleet.open_rows():
            self.fleet.cancel(row, self.clock.now_ns())
        while not self.fleet.is_idle and (next_ns := self.fleet.next_ns()) is not None:
            self.fleet.advance(next_ns)
            for message in self.fleet.due(next_ns):
                self._pass_on(message)

    def _pass_on(self, message: Message) -> None:
        if self.observer is not None:
            self.observer(message)
        listener = self._listeners.get(message.row)
        if message.tokens == 0:
            self._listeners.pop(message.row, None)
        if listener is not None:
            listener(message, self.clock.wall_at(message.time_ns) or self.clock.wall_ns())
