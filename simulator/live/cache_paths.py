"""Paths of servers that empty prefix caches: vLLM's /reset_prefix_cache, SGLang's /flush_cache.

Sources: vllm-project/vllm b35f7c2b, entrypoints/serve/dev/cache/api_router.py: 200 and no body, whether a cache was
emptied or not, and v1/core/block_pool.py: none is while a block is in use; sgl-project/sglang,
srt/entrypoints/http_server.py (flush_cache with `timeout`): texts and statuses, by all caches together.
"""
import asyncio
import time
from collections.abc import Callable
from typing import Any

from aiohttp import web

from simulator.live.actions import Actions, NotPossible
from simulator.live.bodies import Refused

FLUSHED = ("Cache flushed.\nPlease check backend logs for more details. (When there are running or waiting requests, "
           "the operation will not be performed.)\n")
FAILED = "Flush cache failed.\n"
LOOK_S = 0.005                  # between two looks for the end of requests
TRUE = ("1", "true", "yes", "on", "t", "y")     # as pydantic reads a query


class CachePaths:
    """Routes that empty prefix caches, each that of its door, or all.

    server : which serves requests.
    """

    def __init__(self, server: Any):
        self._server = server

    def routes(self, like: str) -> dict[tuple[str, str], Callable]:
        """Return the handlers by method and path. like : engine that the server is like."""
        if like == "sglang":
            return {("POST", "/flush_cache"): self._flush, ("GET", "/flush_cache"): self._flush}
        return {("POST", "/reset_prefix_cache"): self._reset}

    async def _reset(self, request: web.BaseRequest, door: int) -> web.Response:
        if request.query.get("reset_running_requests", "").lower() in TRUE:
            raise Refused(501, "reset_running_requests: requests that run are not preempted here",
                          "NotImplementedError", "reset_running_requests")
        if request.query.get("reset_external", "").lower() in TRUE and (
                self._actions.has_tiers):
            raise Refused(501, "reset_external: KV tiers are not emptied here", "NotImplementedError",
                          "reset_external")
        self._empty(door)
        return web.Response()

    async def _flush(self, request: web.BaseRequest, door: int) -> web.Response:
        try:
            left_s = float(request.query.get("timeout", 0))
        except ValueError:
            left_s = -1.0
        if not left_s >= 0:
            raise Refused(422, "timeout: expected a number of seconds, at least 0", param="timeout")
        ends_s = time.monotonic() + left_s
        while time.monotonic() < ends_s and self._actions.has_requests(_replica(door)):
            await asyncio.sleep(LOOK_S)
        is_flushed = self._empty(door)
        return web.Response(text=FLUSHED if is_flushed else FAILED, status=200 if is_flushed else 400)

    @property
    def _actions(self) -> Actions:
        return self._server.service.fleet.actions

    def _empty(self, door: int) -> bool:
        """Empty the caches that no request uses; return whether those are all."""
        try:
            return self._server.service.act(self._actions.empty_caches, _replica(door))
        except NotPossible as refused:
            raise Refused(501, str(refused), "NotImplementedError") from None


def _replica(door: int) -> int | None:
    return None if door < 0 else door
