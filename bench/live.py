"""Speed of a live fleet: a session of ten simulated minutes with failures and scaling, and answers over HTTP.

    python bench/live.py session [SECONDS]      # no sockets, a clock set by hand; the run of the record must be equal
    python bench/live.py http [RATE SECONDS]    # `serve` in a process, a client in another
"""
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import numpy as np

import simulator
from simulator.assembly.assemble import prepare
from simulator.config.load import load_experiment
from simulator.live import refusals
from simulator.live.actions import NotPossible
from simulator.live.clock import Clock
from simulator.live.fleet import LiveFleet, LiveRequest
from simulator.live.prompts import Texts
from simulator.live.service import Service
from simulator.live.session import differing_rows, write_session

EXPERIMENT = """
seed = 1
model = {name = "llama-3.1-8b"}
hardware = {name = "h100-sxm-80gb"}
topology = {replicas = 4}
engine = {num_gpu_blocks = 4000, max_model_len = 4096}
latency = {backend = "roofline"}
failures = [{kind = "stop", mtbf_s = 60.0, mttr_s = 10.0}, {kind = "slow", mtbf_s = 90.0, mttr_s = 10.0}]
[workload]
type = "synthetic"
num_requests = 1000
prompt_tokens = {distribution = "uniform", min = 50, max = 600}
output_tokens = {distribution = "uniform", min = 1, max = 200}
arrival = {process = "poisson", rate_per_s = 40.0}
[cluster]
health = {check_interval_s = 0.5, detection_delay_s = 1.0}
[cluster.routing]
policy = "weighted"
scorers = [{name = "prefix-affinity", weight = 3.0}, {name = "queue-depth", weight = 2.0}]
[autoscaling]
policy = "schedule"
max_replicas = 8
loading_delay = {mean_s = 8.0, law = "exponential"}
"""
RATE_PER_S = 40.0
SPAN_S = 600.0
VERBS = ("kill", "slow", "restore", "drain", "scale", "add")


class Wall:
    """A clock that is set by hand."""

    now_ns = 0

    def __call__(self):
        return self.now_ns


class Visitors:
    """Drawn clients of a service, some of which leave, and an admin."""

    def __init__(self, service, wall, draw):
        self.service, self.wall, self.draw, self.texts, self.num_news = service, wall, draw, Texts(), 0
        self.known = []

    def wait(self, until_ns):
        """Let time pass."""
        while (next_ns := self.service.turn()) is not None and next_ns <= until_ns:
            self.wall.now_ns = max(next_ns, self.wall.now_ns)
        self.wall.now_ns = until_ns

    def take(self, message, due_ns):
        """Count news."""
        self.num_news += 1

    def send(self):
        """Send a request; half of the prompts go on from an earlier one."""
        draw, row = self.draw, self.service.fleet.count
        prompt = draw.integers(0, 50_000, draw.integers(50, 600)).astype(np.int32)
        if self.known and draw.random() < 0.5:
            prompt = np.concatenate([self.known[draw.integers(len(self.known))], prompt])[:3000]
        answer = draw.integers(0, 50_000, draw.integers(1, 200)).astype(np.int32)
        self.known = [*self.known[-200:], np.concatenate([prompt, answer])]
        segments = self.texts.add(row, prompt, answer)
        self.service.submit(LiveRequest(len(prompt), 512, len(answer), segments), self.take)

    def act(self):
        """Let the admin try an action."""
        actions, replica = self.service.fleet.actions, int(self.draw.integers(8))
        verb = str(self.draw.choice(VERBS))
        with suppress(NotPossible):
            if verb in ("kill", "slow"):
                self.service.act(actions.fail, verb, replica, on_failure="retry", for_s=float(self.draw.uniform(1, 20)))
            elif verb in ("restore", "drain"):
                self.service.act(getattr(actions, verb), replica)
            else:
                self.service.act(getattr(actions, verb), None, int(self.draw.integers(1, 7)))


def session(span_s=SPAN_S):
    """Play a session, run its record, and print both."""
    folder = Path(tempfile.mkdtemp())
    (folder / "served.toml").write_text(EXPERIMENT)
    experiment = load_experiment(folder / "served.toml")
    refusals.check(experiment)
    wall, draw = Wall(), np.random.default_rng(5)
    service = Service(LiveFleet(prepare(experiment), round(2 * RATE_PER_S * span_s)), Clock(1, wall))
    visitors, began_s = Visitors(service, wall, draw), time.process_time()
    while wall.now_ns < span_s * 1e9:
        visitors.wait(wall.now_ns + int(draw.exponential(1e9 / RATE_PER_S)))
        visitors.send()
        if draw.random() < 0.05 and service.fleet.num_open:
            service.leave(int(draw.choice(service.fleet.open_rows())))
        if draw.random() < 1 / (5 * RATE_PER_S):        # each 5 s
            visitors.act()
    while not service.fleet.is_idle:
        visitors.wait(wall.now_ns + 10**9)
    cpu_s, fleet = time.process_time() - began_s, service.fleet
    served, began_s = fleet.served(), time.process_time()
    result = simulator.run(write_session(fleet.actions.recorded(experiment), served, folder, fleet.actions.taken))
    print(json.dumps({
        "simulated_s": wall.now_ns / 1e9, "requests": len(served), "messages": visitors.num_news,
        "actions": len(fleet.actions.taken), "retries": int(result.requests["retries"].sum()),
        "statuses": np.bincount(served.requests["status"], minlength=9).tolist(), "cpu_s": cpu_s,
        "engine_us_per_message": service.engine_ns / 1e3 / visitors.num_news,
        "engine_us_per_request": service.engine_ns / 1e3 / len(served), "run_cpu_s": time.process_time() - began_s,
        "differing_rows": len(differing_rows(served, result.requests))}))


async def _load(address, rate_per_s, span_s):
    """Send streams of 16 tokens at equal gaps; return their number."""
    import aiohttp  # an extra

    body = {"prompt": "word " * 200, "max_tokens": 16, "ignore_eos": True, "stream": True}

    async def ask(client):
        async with client.post("/v1/completions", json=body) as answer:
            await answer.read()

    async with aiohttp.ClientSession(address, connector=aiohttp.TCPConnector(limit=0)) as client:
        began_s, tasks = time.monotonic(), []
        for i in range(round(rate_per_s * span_s)):
            await asyncio.sleep(max(began_s + i / rate_per_s - time.monotonic(), 0))
            tasks.append(asyncio.create_task(ask(client)))
        await asyncio.gather(*tasks)
    return len(tasks)


def http(rate_per_s=50.0, span_s=10.0):
    """Load `serve` and print its CPU time and lag."""
    folder = Path(tempfile.mkdtemp())
    (folder / "served.toml").write_text(EXPERIMENT.replace("failures", "# failures"))
    command = [sys.executable, "-m", "simulator", "serve", "served.toml", "--port", "0"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        address = process.stdout.readline().split(" at ")[1].split("/v1")[0]
        before = _cpu_s(process.pid)
        count = asyncio.run(_load(address, rate_per_s, span_s))
        cpu_s = _cpu_s(process.pid) - before
        process.terminate()
    report = json.loads(next(folder.glob("results/*/serve.json")).read_text())
    print(json.dumps({"rate_per_s": rate_per_s, "requests": count, "cpu_us_per_request": 1e6 * cpu_s / count,
                      "cpu_us_per_event": 1e6 * cpu_s / count / 16, "shares_s": report["cpu_s"],
                      "lag": report["lag"], "kept_up": report["kept_up"], "differs": len(report["differing_rows"])}))


def _cpu_s(pid):
    """Return the CPU time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    {"session": session, "http": http}[sys.argv[1]](*map(float, sys.argv[2:]))
