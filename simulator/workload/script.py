"""The script of a workload with arrival times that are not all known before: it releases requests during the run."""
import msgspec
import numpy as np


class Edges(msgspec.Struct, frozen=True):
    """Requests that wait for others; arrays (m,).

    sources, targets : int64, rows; the target waits for the source.
    delays_ns : int64, >= 0, from the source's end to the target.
    from_dispatch : bool, the delay counts from the source's arrival, not from its end.
    from_any_end : bool, the target comes even if the source did not complete; such a source waits for requests only by
        edges of this kind. None: all sources must complete.
    """

    sources: np.ndarray
    targets: np.ndarray
    delays_ns: np.ndarray
    from_dispatch: np.ndarray
    from_any_end: np.ndarray | None = None


class Turns(msgspec.Struct, frozen=True):
    """How one slot serves several plays, one request at a time.

    It has the plays of its group from the start. When it is free and has fewer plays than allowed, it takes the next
    one of `Script.spare`. Order of service: a play just taken, then plays of its group that have not begun, then the
    play that has been ready longest.

    most_plays : plays that it has at once; also the number of plays of its group.
    most_requests : requests that the slot releases; None: no limit.
    leaves : the slot ends, with plays left or not, at the instant when it is free with fewer plays than allowed and
        finds no spare one, or when one of its clients gave up waiting. False: it goes on with the plays that it has.
    stops_all : when this slot ends, all other slots of this kind end, too.
    """

    most_plays: int
    most_requests: int | None = None
    leaves: bool = False
    stops_all: bool = False


class Slots(msgspec.Struct, frozen=True):
    """When slots release plays; arrays (k,).

    Times count from the beginning of their group.

    opens_ns : int64, when each slot opens.
    closes_ns : int64, from then on the slot releases no play; plays that have begun go on. None: never.
    reopens : bool, an entry is no new slot: the slot before opens once more; None: each entry is a slot.
    """

    opens_ns: np.ndarray
    closes_ns: np.ndarray | None = None
    reopens: np.ndarray | None = None


class Group(msgspec.Struct, frozen=True):
    """Plays that share slots; times count from the group's beginning.

    plays : int64 (p,), indices of plays in the order in which they come; their `start_ns` must not fall.
    slots : None: there is no limit.
    holds_play : a play holds its slot until the play is over; else each request holds one from its arrival to its end.
    turns : of its only slot; None: a slot takes any play that is ready.
    ends_ns : all arrivals are before it; None: no end.
    after : index of the earlier group that must be over before this one begins; -1: it begins at 0. A group without
        plays is over when it begins.
    after_dispatch : the earlier group is over when its last request has come, not when all its requests have ended.
    interval_ns : from the end of the earlier group to the beginning of this one.
    lasts_ns : groups that follow this one begin no earlier than this time after its beginning.
    client_delay_ns : from each end to the client's reaction to it; None: as in the script.
    cancel_ns : at this time clients give up all requests that still run; None: they never do.
    has_times : `start_ns` gives the times of its plays, as far as slots allow; else slots alone, if there are any.
    is_open_ended : only its end, or that of its slots, bounds it: there may be too few plays for it, or too many.
    is_counted : its end bounds it, and it has as many plays as came before that end, or the end of the run.
    """

    plays: np.ndarray
    slots: Slots | None = None
    holds_play: bool = False
    turns: Turns | None = None
    ends_ns: int | None = None
    after: int = -1
    after_dispatch: bool = False
    interval_ns: int = 0
    lasts_ns: int = 0
    client_delay_ns: int | None = None
    cancel_ns: int | None = None
    has_times: bool = False
    is_open_ended: bool = False
    is_counted: bool = False


class Script(msgspec.Struct, frozen=True):
    """Releases the `n` requests of a workload, in `p` plays.

    A play is one request, a session, or a graph of requests. A request is ready when its play has begun, `offset_ns`
    have passed since, and all requests that it waits for have released it; it comes when it is ready and has a slot.
    If a request does not complete, all requests that wait for it, directly or not, are not sent.

    groups : of plays; each play is in one, or is spare.
    spare : int64 (q,), plays that begin when a group with `turns` takes them, in this order; their `start_ns` are 0.
    play_begins : int64 (p + 1,), the first row of each play, and n; None: each request is a play.
    start_ns : int64 (p,), when each play may begin, since its group did.
    offset_ns : int64 (n,), >= 0, and 0 for one request without dependencies of each play; None: all 0.
    edges : None: no request waits for another. Between two plays only where the group of the target begins after the
        end of the source's group.
    rest_ns : int64 (n,), how long the slot of a request pauses after its end; None: not at all.
    rest_share : float64 (n,), share of the time from a request's arrival to its end that shortens the pause; None: 0.
    client_delay_ns : from each end to the client's reaction to it, for groups without a value of their own.
    goes_on_after_rejection : a rejected request releases its dependents as if it had completed at that instant.
    idle_cap_ns : longest time in which a play has nothing running and no slot pausing; then it goes on. None: no cap.
    timeout_ns : int64 (n,), time after arrival at which the client gives up; limits.MISSING: never. None: all never.
    waits_on : the client does not give up at the timeout; the answer is late.
    from_engine : the client reacts to an end in the engine, not to the last token that it sees.
    """

    groups: tuple[Group, ...]
    start_ns: np.ndarray
    play_begins: np.ndarray | None = None
    offset_ns: np.ndarray | None = None
    edges: Edges | None = None
    rest_ns: np.ndarray | None = None
    client_delay_ns: int = 0
    goes_on_after_rejection: bool = False
    idle_cap_ns: int | None = None
    timeout_ns: np.ndarray | None = None
    waits_on: bool = False
    from_engine: bool = False
    spare: np.ndarray | None = None
    rest_share: np.ndarray | None = None

    @property
    def cancels(self) -> bool:
        """Clients of some group give up all running requests at an instant."""
        return any(group.cancel_ns is not None for group in self.groups)

    @property
    def gives_up(self) -> bool:
        """Some client may give up."""
        return self.timeout_ns is not None or self.cancels
