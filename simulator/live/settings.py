"""Settings of a session."""
from typing import NamedTuple

LOOPBACK = "127.0.0.1"


class Limits(NamedTuple):
    """Limits of connections.

    body_bytes, header_bytes : of a request; header_bytes is that of one line. connections : at once. idle_s : time for
    which a connection may stay without a request.
    """

    body_bytes: int = 8 * 2**20
    header_bytes: int = 2**16
    connections: int = 10_000
    idle_s: float = 75.0


class Settings(NamedTuple):
    """Where and how long a session is served.

    port, admin_port : 0: any; admin_port None: no port for an admin. duration_s, idle_s : end of the
    session, after its beginning, and after the last request has ended; None: a signal ends it. replica_ports : a port
    for each replica, in place of `port`; (): none.
    """

    host: str
    port: int
    admin_port: int | None
    duration_s: float | None
    idle_s: float | None
    limits: Limits = Limits()
    replica_ports: tuple[int, ...] = ()
