"""An experiment as servers of vLLM: the arguments of each server, and the keys that no server has.

The lowered deployment is exactly the simulated one: nothing is rounded up, no margin added.
"""
import json
from collections.abc import Iterator
from typing import NamedTuple

from simulator.assembly.site import Site
from simulator.config.experiment import Experiment, Pool, Routing
from simulator.domain.autoscaling import Autoscaling
from simulator.domain.deployment import Deployment
from simulator.domain.gateway import GatewayQueueParameters
from simulator.domain.rank_weights import rank_weights
from simulator.domain.vllm_versions import behaviour_of
from simulator.errors import InputErrors, KeyFault, collect_faults
from simulator.study.deployment.event_keys import events_flag
from simulator.study.deployment.flags import flags_of
from simulator.study.deployment.given_values import given_values

CONNECTORS = {"nixl": "NixlConnector", "mooncake": "MooncakeConnector"}
KV_ROLES = {"NixlConnector": {"prefill": "kv_both", "decode": "kv_both"},
            "MooncakeConnector": {"prefill": "kv_producer", "decode": "kv_consumer"}}
IN_FRONT = ("cluster", "kv_transfer", "autoscaling", "embeddings")      # tables that no server reads
OF_A_SERVER = ("model", "topology", "engine", "latency", "kv_tiers")
# Keys that say how the experiment is computed, not how it is deployed.
UNASKED = {"engine.fast_forward", "engine.allow_long_max_model_len", "topology.node", "topology.replicas", "model.name",
           "model.config"}
LONGER_WHY = {
    "latency": "predicts times; a server takes its own",
    "engine.speculative.acceptance": "a server accepts what its model does",
    "model.dtype": "choose a checkpoint that stores its weights so",
}


class Server(NamedTuple):
    """One kind of server.

    name : of the pool. role : both, prefill or decode. replicas : number of servers. gpus : per server.
    model : repository on the Hugging Face hub. version : of vLLM. arguments : flag and its value, None: no value.
    weights_bytes : of the checkpoint. gpus_per_node : None: not known.
    """

    name: str
    role: str
    replicas: int
    gpus: int
    model: str
    version: str
    arguments: tuple[tuple[str, str | None], ...]
    weights_bytes: int
    gpus_per_node: int | None

    def command(self) -> list[str]:
        """Return the words of `vllm serve`."""
        return ["vllm", "serve", self.model, *self.words()]

    def words(self) -> list[str]:
        """Return flags and values as words."""
        return [word for pair in self.arguments for word in pair if word is not None]


class Lowered(NamedTuple):
    """An experiment lowered to servers.

    servers : one for each pool. connector : of vLLM, for KV transfer; None: none.
    routing, queue : of the gateway; None: requests do not wait there.
    left_out : keys that no server has, "key = value: why"; a format may have some for its router.
    block_size : of the replicas, in tokens; None: not known, or not needed.
    autoscaling, pools : of the experiment, for formats of autoscalers.
    """

    name: str
    servers: tuple[Server, ...]
    routing: Routing
    connector: str | None
    left_out: tuple[str, ...]
    block_size: int | None = None
    queue: GatewayQueueParameters | None = None
    autoscaling: Autoscaling | None = None
    pools: tuple[Pool, ...] = ()


def lower(experiment: Experiment) -> Lowered:
    """Return the servers of an experiment.

    Raises
    ------
    InputErrors
        A scheduler that is not vLLM's, a model without a repository, a KV transfer that no connector of vLLM does, a
        deployment that does not fit.
    """
    connector, servers = collect_faults(
        lambda: _connector(experiment),
        lambda: collect_faults(*(lambda pool=pool: _server(experiment, pool) for pool in experiment.all_pools())))
    left_out = [*_before_servers(experiment, connector), *(line for _, lines in servers for line in lines)]
    return Lowered(
        experiment.name, tuple(_with(_connected(server, connector), events_flag(experiment.serve))
                               for server, _ in servers),
        experiment.cluster.routing, connector, tuple(dict.fromkeys(left_out)), autoscaling=experiment.autoscaling,
        pools=experiment.all_pools())


def lower_router(experiment: Experiment) -> Lowered:
    """Return the gateway of an experiment alone, without servers.

    Raises
    ------
    InputErrors
        Requests are split over pools: each part has a gateway of its own.
    """
    split = [f"{pool.name} ({pool.role})" for pool in experiment.all_pools() if pool.role != "both"]
    if split:
        raise InputErrors([KeyFault(f"pools: --as llm-d-router writes one profile, for whole requests; found "
                                    f"{', '.join(split)}")])
    left_out = [f"{key} = {json.dumps(value)}" for key, value in given_values(experiment.cluster, "cluster.")]
    sizes = {pool.engine.block_size for pool in experiment.all_pools()}
    return Lowered(experiment.name, (), experiment.cluster.routing, None, tuple(left_out),
                   sizes.pop() if len(sizes) == 1 else None, experiment.cluster.gateway_queue)


def lower_scaling(experiment: Experiment) -> Lowered:
    """Return the autoscaler of an experiment alone, without servers."""
    given = given_values(experiment.autoscaling, "autoscaling.") if experiment.autoscaling is not None else ()
    left_out = tuple(f"{key} = {json.dumps(value)}" for key, value in given)
    return Lowered(experiment.name, (), experiment.cluster.routing, None, left_out, autoscaling=experiment.autoscaling,
                   pools=experiment.all_pools())


def _server(experiment: Experiment, pool: Pool) -> tuple[Server, list[str]]:
    place = f"pools.{pool.name}." if experiment.pools else ""
    if pool.engine.scheduler != "vllm":
        raise InputErrors([KeyFault(f'{place}engine.scheduler: expected "vllm", whose servers are written, found '
                                    f'"{pool.engine.scheduler}"')])
    if pool.model is None:
        raise InputErrors([KeyFault(f"{place}model: missing: a server serves a model")])
    site = Site(pool).check()
    model, node = site.deployment.model, site.deployment.node
    for spec in (model, *((site.draft.model,) if site.draft is not None else ())):
        if not spec.hf_id:
            raise InputErrors([KeyFault(f"{place}model: {spec.name} has no hf_id, the repository that a server loads")])
    values = {key: value for table in OF_A_SERVER if getattr(pool, table) is not None
              for key, value in given_values(getattr(pool, table), f"{table}.")}
    flags = flags_of(pool, values, site)
    values.setdefault("latency.backend", pool.latency.backend)
    left_out = [f"{place}{line}" for line in _unsaid(values, flags.said)]
    if pool.engine.num_gpu_blocks is None:
        left_out.append(f"{place}engine.num_gpu_blocks = {site.num_gpu_blocks}, as planned: a server measures its own")
    server = Server(pool.name, pool.role, pool.replicas, site.deployment.parallelism.num_accelerators, model.hf_id,
                    behaviour_of(pool.engine.parameters.vllm_version).release, tuple(flags.arguments),
                    _weights_bytes(site.deployment), node.num_accelerators if node is not None else None)
    return server, left_out


def _unsaid(values: dict, said: set[str]) -> Iterator[str]:
    for key, value in values.items():
        if key not in said and key not in UNASKED:
            why = next((why for known, why in LONGER_WHY.items() if f"{key}.".startswith(f"{known}.")), "")
            yield f"{key} = {json.dumps(value)}" + (f": {why}" if why else "")


def _before_servers(experiment: Experiment, connector: str | None) -> Iterator[str]:
    """Yield the keys for everything in front of the servers, and for failures."""
    for table in IN_FRONT:
        struct = getattr(experiment, table)
        for key, value in given_values(struct, f"{table}.") if struct is not None else ():
            if not (connector is not None and key == "kv_transfer.protocol"):
                yield f"{key} = {json.dumps(value)}"
    if experiment.failures:
        yield f"failures: {len(experiment.failures)} tables [[failures]]"
    if experiment.encode_pools():
        yield f"pools with role = \"encode\": {', '.join(pool.name for pool in experiment.encode_pools())}"


def _connector(experiment: Experiment) -> str | None:
    transfer = experiment.kv_transfer
    if transfer is None:
        return None
    if transfer.protocol not in CONNECTORS:
        raise InputErrors([KeyFault(f'kv_transfer.protocol: expected one of {", ".join(map(json.dumps, CONNECTORS))}, '
                                    f'which vLLM has connectors for, found "{transfer.protocol}"')])
    return CONNECTORS[transfer.protocol]


def _connected(server: Server, connector: str | None) -> Server:
    if connector is None or server.role == "both":
        return server
    said = json.dumps({"kv_connector": connector, "kv_role": KV_ROLES[connector][server.role]})
    return _with(server, (("--kv-transfer-config", said),))


def _with(server: Server, arguments: tuple[tuple[str, str | None], ...]) -> Server:
    return server._replace(arguments=(*server.arguments, *arguments))


def _weights_bytes(deployment: Deployment) -> int:
    """Return the bytes of the checkpoint: all weights once, as it stores them."""
    whole = Deployment(model=deployment.model, accelerator=None)
    return round(rank_weights(whole, range(deployment.model.num_layers)).num_bytes)
