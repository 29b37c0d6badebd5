"""The measured cases: an engine, its policies and its traffic, ready for any number of runs."""
from dataclasses import dataclass, field

import numpy as np
from msgspec.structs import replace
from traffic import chat

from simulator.domain import records
from simulator.domain.deployment import Deployment
from simulator.domain.facts import load_accelerator, load_model
from simulator.domain.host import HostParameters
from simulator.domain.layer_groups import LayerGroups
from simulator.domain.parallelism import Parallelism
from simulator.engine.build import build
from simulator.engine.hand_over.build import Split
from simulator.engine.hand_over.plan import HandOverPlan, Pair, Port
from simulator.engine.output.recorder import Recorder
from simulator.engine.plan import ClusterPlan, GatewayPlan, Hooks, Pool
from simulator.latency.linear import Linear, LinearParameters
from simulator.latency.roofline.model import Roofline, RooflineParameters
from simulator.routing.policies.round_robin import RoundRobin, RoundRobinParameters
from simulator.scheduling.vllm import Vllm, VllmParameters

NO_HOST = HostParameters()
UNLIMITED_BLOCKS = 10_000_000
TOKEN_BYTES = 131_072               # of KV, Llama-3.1-8B
LINK = Port(outer_bytes_per_s=37.5e9)


class NoSink:
    """Takes rows and discards them: the remaining cost is that of producing them."""

    def __init__(self, wants_iterations=False, wants_tokens=False):
        self.wants_iterations = wants_iterations
        self.wants_tokens = wants_tokens

    def iterations(self, rows):
        pass

    def tokens(self, rows):
        pass


@dataclass(frozen=True)
class Case:
    """One measurement; by default that of the lower bound.

    rate_per_s : requests a second at each replica. 25 are 0.8 of a replica's capacity with these lengths.
    ranks : number of replicas in lock step.
    num_gpu_blocks : of each replica, with `block_size` tokens. system_prompts : see `traffic.chat`.
    engine : further fields of ClusterPlan.
    front : the gateway's plan; None: round robin.
    backend : "linear" or "roofline" (Llama-3.1-8B on one H100; the linear prices are close to it).
    scheduler, parameters : of each replica. stages : pipeline stages, of equal length; "linear" only.
    layer_groups : LayerGroups with block tables of their own; None: all layers share one.
    tier : makes the KV tier of a replica; None: there is none.
    labels : number of names of "adapter" and "grammar"; each request has one.
    decode_replicas : number of replicas that decode prompts computed by the others.
    host : time outside the accelerator.
    """

    num_requests: int = 100_000
    replicas: int = 1
    rate_per_s: float = 25.0
    system_prompts: tuple = (0, 0)
    num_gpu_blocks: int = UNLIMITED_BLOCKS
    block_size: int = 16
    ranks: int = 1
    backend: str = "linear"
    engine: dict = field(default_factory=dict)
    front: GatewayPlan | None = None
    scheduler: type = Vllm
    parameters: object = VllmParameters()
    stages: int = 1
    layer_groups: LayerGroups | None = None
    tier: object = None
    decode_replicas: int = 0
    labels: dict = field(default_factory=dict)
    host: HostParameters = NO_HOST

    def traffic(self):
        """Draw the requests."""
        return chat(self.num_requests, self.rate_per_s * self.replicas, self.system_prompts)


class Prepared:
    """A case with its requests drawn, to be run any number of times.

    finished : the last `Run`.
    """

    def __init__(self, case):
        self.case = case
        self.traffic = case.traffic()
        self.workload = _labelled(self.traffic.workload(), case.labels)
        self.finished = None
        self.keep_untouched()

    def keep_untouched(self):
        """Begin each run with the requests as they are now."""
        self._untouched = self.workload.requests.copy()

    def ready(self, sink=None):
        """Return a function that runs the event loop once, and nothing else; `sink` takes rows."""
        cluster = self.cluster(sink)

        def run():
            self.finished = cluster.run()

        return run

    def cluster(self, sink=None):
        """Return a new cluster with all requests still to come."""
        case = self.case
        self.workload.requests[:] = self._untouched
        front = case.front or GatewayPlan(RoundRobin, RoundRobinParameters())
        latency = _latency(case.backend, case.stages)
        for go_around in case.scheduler.around(case.parameters, None):
            latency = go_around(latency)
        pool = Pool(case.scheduler, case.parameters, latency,
                    num_gpu_blocks=case.num_gpu_blocks, block_size=case.block_size, max_model_len=16384,
                    replicas=case.replicas, ranks=case.ranks, layer_groups=case.layer_groups, tier=case.tier,
                    host=case.host)
        plan = ClusterPlan((pool,), front, **case.engine)
        if case.decode_replicas:
            plan = _apart(plan, case.decode_replicas)
        sink = sink or NoSink()
        recorder = Recorder(sink, sink.wants_iterations, sink.wants_tokens)
        return build(self.workload, plan, Hooks(recorder))

    def total(self, name):
        """Return a field of the replicas' statistics of the last run, summed."""
        return int(self.finished.replicas[name].sum())

    def means_ms(self):
        """Return mean TTFT and E2EL of the last run; all requests must have completed."""
        requests = self.workload.requests
        assert np.all(requests["status"] == records.COMPLETED)
        first_token_ns = requests["first_token_ns"] - requests["arrival_ns"]
        end_to_end_ns = requests["completed_ns"] - requests["arrival_ns"]
        return first_token_ns.mean() / 1e6, end_to_end_ns.mean() / 1e6


def _labelled(workload, counts):
    """Return the workload with adapters and grammars."""
    generator = np.random.default_rng(2)
    for name, count in counts.items():
        workload.demands[name] = generator.integers(0, count, len(workload))
    return replace(workload, labels=workload.labels | {name: [*map(str, range(n))] for name, n in counts.items()})


def _apart(plan, decode_replicas):
    """Return the plan with a pool for each role and a KV transfer between them, as in vLLM's nixl."""
    pool, front = plan.pools[0], plan.front
    pools = (replace(pool, name="prefill", role="prefill", replicas=pool.replicas - decode_replicas),
             replace(pool, name="decode", role="decode", replicas=decode_replicas))
    split = Split(HandOverPlan((LINK, LINK), {(0, 1): Pair(TOKEN_BYTES)}, front, front, base_ns=400_000))
    return replace(plan, pools=pools, split=split)


def _latency(backend, stages):
    if backend == "linear":
        model = Linear(LinearParameters())
        if stages > 1:
            model.set_stages([1] * stages)
        return model
    deployment = Deployment(
        model=load_model("llama-3.1-8b"), accelerator=load_accelerator("h100-sxm-80gb"), node=None,
        parallelism=Parallelism(), weight_dtype=None, kv_cache_dtype="auto", gpu_memory_utilization=0.9)
    return Roofline(RooflineParameters(), deployment)
