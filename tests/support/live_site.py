"""A session that is served at ports of this machine while a scenario talks to it."""
import asyncio
import json

import pytest

from simulator.config.load import load_experiment
from simulator.domain.serving import ServeLimits
from simulator.live.clock import FAST
from simulator.live.opening import Session
from simulator.live.settings import LOOPBACK, Settings
from support.live_sessions import EXPERIMENT

aiohttp = pytest.importorskip("aiohttp")
COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
LIMITS = ServeLimits()
HELLO = {"model": "served", "prompt": "Hello there, you simulated model!", "max_tokens": 6, "ignore_eos": True}
TALK = {"messages": [{"role": "user", "content": "Hello"}], "max_completion_tokens": 4, "ignore_eos": True}


class Site:
    """A session of the experiment, served while a scenario talks to it.

    tls : contexts of the server and of its client; None: plain HTTP.
    """

    def __init__(self, folder, speed=FAST, key="", most_requests=64, overrides=(), has_doors=False, tls=None):
        file = folder / "served.toml"
        file.write_text(EXPERIMENT)
        self.session = Session(load_experiment(file, list(overrides)), speed, most_requests, key=key,
                               has_doors=has_doors)
        self.has_doors, self.tls = has_doors, tls or (None, True)
        self.requests = self.session.fleet.workload.requests

    def talk(self, scenario, limits=LIMITS):
        """Serve until scenario(client, admin) returns; return what it does."""
        return asyncio.run(self._talk(scenario, limits))

    async def _talk(self, scenario, limits):
        from simulator.live.hosting import Host
        ports = asyncio.get_running_loop().create_future()
        doors = (0,) * self.session.num_replicas if self.has_doors else ()
        host = Host(self.session.service, self.session.server, Settings(LOOPBACK, 0, 0, None, None, limits, doors,
                                                                           self.tls[0]),
                    lambda *found: ports.set_result(found))
        served = asyncio.create_task(host.serve())
        self.ports, admin_port = await ports
        try:
            async with aiohttp.ClientSession(f"http{'s' * (self.tls[0] is not None)}://{LOOPBACK}:{self.ports[0]}",
                                             connector=aiohttp.TCPConnector(ssl=self.tls[1])) as client, \
                    aiohttp.ClientSession(f"http://{LOOPBACK}:{admin_port}") as admin:
                return await scenario(client, admin)
        finally:
            host.stop()
            await asyncio.wait_for(served, 60)

    def ask(self, path, body):
        """Return status and JSON of the answer to one request."""
        async def scenario(client, admin):
            return await post(client, path, body)
        return self.talk(scenario)


async def post(client, path, body):
    async with client.post(path, json=body) as answer:
        return answer.status, await answer.json()


async def events_of(client, path, body):
    async with client.post(path, json=body | {"stream": True}) as answer:
        assert answer.status == 200
        assert answer.headers["Content-Type"] == "text/event-stream; charset=utf-8"
        lines = (await answer.read()).decode().split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]
