"""Settings of a session."""
import ssl
from typing import NamedTuple

from simulator.domain.serving import ServeLimits

LOOPBACK = "127.0.0.1"


class Settings(NamedTuple):
    """Where and how long a session is served.

    port, admin_port : 0: any; admin_port None: no port for an admin. duration_s, idle_s : end of the
    session, after its beginning, and after the last request has ended; None: a signal ends it. replica_ports : a port
    for each replica, in place of `port`; (): none. tls : of all ports but the admin's; None: plain HTTP.
    """

    host: str
    port: int
    admin_port: int | None
    duration_s: float | None
    idle_s: float | None
    limits: ServeLimits = ServeLimits()
    replica_ports: tuple[int, ...] = ()
    tls: ssl.SSLContext | None = None
