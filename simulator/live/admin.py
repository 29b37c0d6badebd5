"""The admin's port: switches of the clock, and actions on the replicas."""
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from aiohttp import web
from msgspec import Meta

from simulator.domain import records
from simulator.live.actions import NotPossible
from simulator.live.bodies import Refused
from simulator.live.changes import changed
from simulator.live.clock import speed_of
from simulator.live.faults import Order
from simulator.live.fleet import LiveFleet
from simulator.live.server import Server
from simulator.live.service import Service
from simulator.results.metrics import count_by_status, latencies

JSON = {"Content-Type": "application/json"}
Replica = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Span = Annotated[float, Meta(gt=0, le=9e9)] | None


class Nothing(msgspec.Struct):
    """Body of an action without arguments."""


class Speed(msgspec.Struct, forbid_unknown_fields=True):
    """Body of POST /admin/speed."""

    speed: float | str

    def __post_init__(self):
        try:
            self.speed = speed_of(self.speed)
        except (TypeError, ValueError):
            raise ValueError('expected {"speed": S}, S from 0.01 to 10000, or "fast"') from None


class OfReplica(msgspec.Struct, forbid_unknown_fields=True):
    """Body of POST /admin/restore and /admin/drain."""

    replica: Replica


class OfAny(msgspec.Struct, forbid_unknown_fields=True):
    """Body of POST /admin/reset_cache; None: all replicas."""

    replica: Replica | None = None


class Loss(OfReplica):
    """Body of POST /admin/kill and /admin/partition; for_s in simulated seconds."""

    on_failure: Literal["retry", "lost"] | None = None
    for_s: Span = None


class Slowness(OfReplica):
    """Body of POST /admin/slow."""

    factor: Annotated[float, Meta(gt=0, le=1e6)] = 2.0
    for_s: Span = None


class More(msgspec.Struct, forbid_unknown_fields=True):
    """Body of POST /admin/add."""

    pool: str | None = None
    count: Annotated[int, Meta(ge=1, le=2**20)] = 1


class Scale(msgspec.Struct, forbid_unknown_fields=True):
    """Body of PUT /admin/scale."""

    replicas: Annotated[int, Meta(ge=0, le=2**20)]
    pool: str | None = None


class Setting(msgspec.Struct, forbid_unknown_fields=True):
    """Body of POST /admin/set."""

    key: str
    value: Any


def results(fleet: LiveFleet) -> dict[str, Any]:
    """Return counts and latencies of the requests so far, as summary.json has them."""
    requests = fleet.workload.requests[:fleet.count]
    completed = requests[requests["status"] == records.COMPLETED]
    return {"simulated_ns": max(fleet.reached_ns, 0),
            "requests": count_by_status(requests, np.zeros(len(requests), bool)), **latencies(completed)}


class Admin:
    """Answers the requests of an admin."""

    def __init__(self, service: Service, server: Server):
        self._service, self._server, actions = service, server, service.fleet.actions
        act = service.act
        self._routes = {
            ("POST", "/admin/pause"): (Nothing, lambda body: service.pause()),
            ("POST", "/admin/resume"): (Nothing, lambda body: service.resume()),
            ("POST", "/admin/speed"): (Speed, lambda body: service.change_speed(body.speed)),
            ("POST", "/admin/slow"): (Slowness, lambda body: act(
                actions.fail, "slow", body.replica, factor=body.factor, for_s=body.for_s)),
            ("POST", "/admin/restore"): (OfReplica, lambda body: act(actions.restore, body.replica)),
            ("POST", "/admin/reset_cache"): (OfAny, lambda body: act(actions.reset_cache, body.replica)),
            ("POST", "/admin/drain"): (OfReplica, lambda body: act(actions.drain, body.replica)),
            ("POST", "/admin/add"): (More, lambda body: act(actions.add, body.pool, body.count)),
            ("PUT", "/admin/scale"): (Scale, lambda body: act(actions.scale, body.pool, body.replicas)),
            ("POST", "/admin/faults"): (Order, self._order),
            ("POST", "/admin/set"): (Setting, self._set),
            ("GET", "/admin/results"): (Nothing, lambda body: results(service.fleet)),
            ("GET", "/admin/status"): (Nothing, lambda body: None)}
        for verb in ("kill", "partition"):
            self._routes["POST", f"/admin/{verb}"] = (Loss, lambda body, verb=verb: act(
                actions.fail, verb, body.replica, on_failure=body.on_failure, for_s=body.for_s))

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request."""
        try:
            found = self._answer((request.method, request.path), await request.read())
        except Refused as refused:
            return web.Response(status=refused.status, body=refused.body(), headers=JSON)
        found = found if isinstance(found, dict) else self._status()
        return web.Response(body=msgspec.json.encode(found), headers=JSON)

    def _answer(self, route: tuple[str, str], data: bytes) -> Any:
        if route not in self._routes:
            raise Refused(404, "Not Found", "NotFoundError")
        kind, action = self._routes[route]
        try:
            body = kind() if kind is Nothing else msgspec.json.decode(data, type=kind)
        except msgspec.DecodeError as error:        # ValidationError is one, too
            raise Refused(400, str(error)) from None
        try:
            return action(body)
        except msgspec.ValidationError as error:
            raise Refused(400, str(error)) from None
        except NotPossible as refused:
            raise Refused(409, str(refused), "Conflict") from None

    def _order(self, order: Order) -> None:
        self._service.act(self._service.fleet.actions.note, "faults", msgspec.to_builtins(order))
        self._server.faults.order = order

    def _set(self, setting: Setting) -> None:
        serve = changed(self._server.facts.serve, setting.key, setting.value)
        self._service.act(self._service.fleet.actions.note, "set", msgspec.to_builtins(setting))
        self._server.facts = self._server.facts._replace(serve=serve)

    def _status(self) -> dict[str, Any]:
        service, actions = self._service, self._service.fleet.actions
        taken = [{"time_ns": action.time_ns, "action": action.verb} | action.arguments for action in actions.taken[-1:]]
        return {"speed": service.clock.speed, "paused": service.clock.is_paused,
                "simulated_ns": service.clock.now_ns(), "requests": service.fleet.count,
                "open": service.fleet.num_open, "kept_up": service.lag.kept_up, "replicas": actions.states(),
                "actions": len(actions.taken), "last_action": taken[0] if taken else None}
