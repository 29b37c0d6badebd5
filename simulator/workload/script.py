"""Who comes when, and after whom: what lets the requests of a workload come where not all times are known before."""
import msgspec
import numpy as np


class Edges(msgspec.Struct, frozen=True):
    """Requests that wait for others; arrays (m,).

    sources, targets : int64, rows; the target waits for the source.
    delays_ns : int64, >= 0, from the source's end to the target.
    from_dispatch : bool, the time counts from the source's arrival, not from its end.
    from_any_end : bool, the target comes however the source ended, which waits for nobody but by such edges; None: only
        if it was completed.
    """

    sources: np.ndarray
    targets: np.ndarray
    delays_ns: np.ndarray
    from_dispatch: np.ndarray
    from_any_end: np.ndarray | None = None


class Turns(msgspec.Struct, frozen=True):
    """How one slot serves several plays, one request at a time.

    It has the plays of its group from the beginning on. When it is free and has fewer than it may, it takes the next
    one of `Script.spare`, and that goes first; then those of its group that have not begun; then who has been ready
    longest.

    most_plays : that it has at once, and that its group has.
    most_requests : after so many the slot lets nobody come; None: no end.
    leaves : nor from the instant on in which the slot is free, has fewer plays than it may, and finds none, or in which
        one of its clients gave up waiting, whatever else it has. If not, it goes on with what it has.
    stops_all : from then on nobody comes by other such slots, either.
    """

    most_plays: int
    most_requests: int | None = None
    leaves: bool = False
    stops_all: bool = False


class Slots(msgspec.Struct, frozen=True):
    """When slots let plays come; arrays (k,).

    Times count from the beginning of their group.

    opens_ns : int64, when each slot opens.
    closes_ns : int64, from then on it lets nobody come; plays that have begun go on. None: never.
    reopens : bool, it is no slot of its own, but the one before it, which opens once more; None: each is a slot.
    """

    opens_ns: np.ndarray
    closes_ns: np.ndarray | None = None
    reopens: np.ndarray | None = None


class Group(msgspec.Struct, frozen=True):
    """Plays that share slots; times count from the group's beginning.

    plays : int64 (p,), indices of plays in the order in which they come; their `start_ns` must not fall.
    slots : None: there is no limit.
    holds_play : a slot is held until its play is over; else each request holds one from its arrival to its end.
    turns : of its slot, of which there is one; None: a slot is for whoever is ready.
    ends_ns : nobody comes at or after it; None: no end.
    after : index of the earlier group that must be over before this one begins; -1: it begins at 0. A group without
        plays is over when it begins.
    after_dispatch : that one is over when its last request has come, not when all have ended.
    interval_ns : from then to the beginning.
    lasts_ns : those that follow it begin no earlier than so long after its beginning.
    client_delay_ns : from each end to whatever the client does because of it; None: as the script says.
    cancel_ns : from then on the clients of all that still runs give up; None: they never do.
    has_times : `start_ns` says when its plays come, as far as slots let them; else slots alone do.
    is_stage : it is one of [[workload.load.stages]]; without slots, `start_ns` says when its plays come, too.
    is_open_ended : only its end, or that of its slots, bounds it: there may be too few plays for it, or too many.
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
    is_stage: bool = False
    is_open_ended: bool = False


class Script(msgspec.Struct, frozen=True):
    """What lets the `n` requests of a workload come, in `p` plays.

    A play is one request, a session, or a graph of requests. A request is ready when its play has begun, `offset_ns`
    have passed since, and all that it waits for have let it go; it comes when it is ready and has a slot. When one
    ended otherwise than completed, those that wait for it, and for these, are not sent.

    groups : of plays; each play is in one, or is spare.
    spare : int64 (q,), plays that begin when a group with `turns` takes them, in this order; their `start_ns` are 0.
    play_begins : int64 (p + 1,), the first row of each play, and n; None: each request is a play.
    start_ns : int64 (p,), when each play may begin, since its group did.
    offset_ns : int64 (n,), >= 0 and 0 for one request of each play that waits for nobody; None: all 0.
    edges : None: nobody waits for another. Between two plays only where the group of the target begins after the end of
        that of the source.
    rest_ns : int64 (n,), how long the slot of a request rests after its end; None: not at all.
    rest_share : float64 (n,), of the time from a request's arrival to its end, by which that rest is shorter; None: 0.
    client_delay_ns : of groups that do not say it: from each end to whatever the client does because of it.
    goes_on_after_rejection : a request that was refused lets others go as if it had been completed then.
    idle_cap_ns : a play in which nothing runs or rests in a slot for longer goes on after so long; None: no cap.
    timeout_ns : int64 (n,), limits.MISSING: none; the client gives up so long after arrival. None: nobody does.
    waits_on : it does not give up then, and the answer is late.
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
        """Clients of some group give up whatever still runs at an instant."""
        return any(group.cancel_ns is not None for group in self.groups)

    @property
    def gives_up(self) -> bool:
        """Some client may give up."""
        return self.timeout_ns is not None or self.cancels
