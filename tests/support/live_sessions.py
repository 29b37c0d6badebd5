"""Sessions of drawn requests, given to a LiveFleet by a clock that no one waits for."""
from contextlib import suppress

import numpy as np

from simulator.assembly.assemble import prepare
from simulator.config.load import load_experiment
from simulator.live import refusals
from simulator.live.actions import KINDS, NotPossible
from simulator.live.fleet import LiveFleet, LiveRequest
from simulator.live.prompts import Texts

EXPERIMENT = """
name = "served"
seed = 3
[topology]
replicas = 2
[engine]
max_num_seqs = 6
max_num_batched_tokens = 64
max_model_len = 180
num_gpu_blocks = 48
block_size = 4
[latency]
backend = "linear"
base_us = 5000.0
per_sequence_us = 10.0
per_prefill_token_us = 20.0
per_context_token_us = 0.05
[workload]
type = "synthetic"
num_requests = 20
[workload.arrival]
process = "constant"
rate_per_s = 8.0
[workload.prompt_tokens]
distribution = "constant"
tokens = 16
[workload.output_tokens]
distribution = "uniform"
min = 1
max = 30
[output]
token_times = true
"""


def fleet_of(folder, overrides=(), most_requests=64, text=EXPERIMENT):
    """Return the experiment and its LiveFleet."""
    file = folder / "served.toml"
    file.write_text(text)
    experiment = load_experiment(file, list(overrides))
    refusals.check(experiment)
    return experiment, LiveFleet(prepare(experiment), most_requests)


class Session:
    """Drawn clients: some prompts are new, some repeat others, some go on from an answer; some clients leave early.

    labels : names to draw from, by column. has_admin : an admin takes drawn actions.
    """

    def __init__(self, fleet, seed, count=40, mean_gap_ns=20_000_000, labels=(), has_admin=False):
        self.labels, self.has_admin = dict(labels), has_admin
        self.fleet, self.draw, self.count, self.gap_ns = fleet, np.random.default_rng(seed), count, mean_gap_ns
        self.texts, self.known, self.messages, self.now_ns = Texts(), [], {}, 0

    def play(self):
        """Send all requests, and wait for the last answer."""
        for _ in range(self.count):
            self.wait(self.now_ns + int(self.draw.exponential(self.gap_ns)))
            for _ in range(self.draw.integers(1, 3) if self.fleet.count + 2 < self.count else 1):
                self.send()
            if self.has_admin:
                self.act()
            if self.draw.random() < 0.25 and self.fleet.num_open:
                rows = self.fleet.open_rows()
                self.fleet.cancel(int(self.draw.choice(rows)), self.now_ns)
            if self.fleet.count >= self.count:
                break
        for replica in range(4) if self.has_admin else ():      # requests may wait for a replica
            with suppress(NotPossible):
                self.fleet.actions.restore(replica, self.now_ns)
        self.wait(None)
        return self

    def act(self):
        """Let the admin try some action."""
        actions, replica, pool = self.fleet.actions, int(self.draw.integers(4)), None
        verb = str(self.draw.choice(["kill", "partition", "slow", "restore", "drain", "scale", "add", "reset_cache",
                                     "empty_caches"]))
        with suppress(NotPossible):
            if verb in KINDS:
                for_s = None if self.draw.random() < 0.5 else float(self.draw.uniform(0.01, 0.2))
                on_failure = str(self.draw.choice(["retry", "lost"]))
                actions.fail(verb, replica, self.now_ns, on_failure=on_failure, factor=3.5, for_s=for_s)
            elif verb in ("restore", "drain", "reset_cache", "empty_caches"):
                getattr(actions, verb)(replica, self.now_ns)
            else:
                getattr(actions, verb)(pool, int(self.draw.integers(1, 4)), self.now_ns)

    def wait(self, until_ns):
        """Let time pass; None: until nothing is left to do."""
        while (next_ns := self.fleet.next_ns()) is not None and (
                not self.fleet.is_idle if until_ns is None else next_ns < until_ns):
            step_ns = next_ns if self.draw.random() < 0.5 else next_ns + int(self.draw.integers(0, 10_000_000))
            self.fleet.advance(step_ns if until_ns is None else min(step_ns, until_ns - 1))
            self.take(step_ns)
        self.now_ns = self.now_ns if until_ns is None else until_ns

    def take(self, now_ns):
        for message in self.fleet.due(now_ns):
            self.messages.setdefault(message.row, []).append(message)

    def send(self):
        prompt, answer = self.prompt(), self.draw.integers(0, 3, self.draw.integers(1, 25)).astype(np.int32)
        row = self.fleet.count
        segments = self.texts.add(row, prompt, answer)
        self.known.append(np.concatenate([prompt, answer]))
        labels = {column: str(self.draw.choice(names)) for column, names in self.labels.items()}
        request = LiveRequest(len(prompt), len(answer) + int(self.draw.integers(0, 5)), len(answer), segments,
                              int(self.draw.integers(0, 3)), labels=labels, ids=self.known[-1])
        assert self.fleet.submit(request, self.now_ns) == row

    def prompt(self):
        new = self.draw.integers(0, 3, self.draw.integers(1, 60)).astype(np.int32)
        if self.known and self.draw.random() < 0.7:
            earlier = self.known[self.draw.integers(len(self.known))]
            new = np.concatenate([earlier[:self.draw.integers(1, len(earlier) + 1)], new])
        return new[:self.fleet.max_model_len - 56]
