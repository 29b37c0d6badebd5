"""Contract of schedulers."""
import os
from collections.abc import Mapping
from typing import Any

from simulator import registry
from simulator.domain import records
from simulator.testing.contract import expect, verify
from simulator.testing.runs import ENGINE, WORKLOADS, experiment_of, holds_in_a_cluster, run_seen

LIMITS = {"max_num_seqs", "max_num_batched_tokens"}


def check_scheduler(name: str, parameters: Mapping[str, Any] | None = None, **sections: Any) -> None:
    """Check that a scheduler keeps the contract of schedulers.

    Parameters
    ----------
    name : a built-in name, or "module:Class".
    parameters : keys of [engine]; None: defaults, within small limits.
    sections : other tables of the experiment, such as workload={"output_knowledge": {"predictor": "exact"}}.

    Raises
    ------
    AssertionError
        The rules that it breaks, a line each.
    """
    chosen = registry.load("scheduler", name, [os.getcwd()])
    known = registry.parameters_of(chosen).__struct_fields__
    foreign = dict.fromkeys(LIMITS - set(known))            # keys that other schedulers have
    changes = {"engine": {"scheduler": name, **foreign, **(parameters or {})}, **sections}
    limits = {key: (parameters or {}).get(key, ENGINE[key]) for key in LIMITS & set(known)}
    verify(name, (every_request_completes, batches_keep_their_limits), changes, limits)
    holds_in_a_cluster(name, changes)


def every_request_completes(changes, _):
    """Each request that fits the KV cache alone completes."""
    for workload in WORKLOADS:
        table = run_seen(experiment_of(workload, changes)).result.requests
        left = table[(table["status"] == records.WAITING) | (table["status"] == records.RUNNING)]
        expect(not len(left), f"{workload}: {len(left)} of {len(table)} requests do not complete")


def batches_keep_their_limits(changes, limits):
    """A batch keeps max_num_seqs, max_num_batched_tokens and the KV blocks."""
    for workload in WORKLOADS:
        seen = run_seen(experiment_of(workload, changes))
        rows, num_blocks = seen.result.iterations, seen.cluster.replicas[0].scheduler.kv.num_blocks
        most = {"max_num_seqs": rows["sequences"].max(),
                "max_num_batched_tokens": (rows["prefill_tokens"] + rows["decode_tokens"]).max()}
        over = {key: int(most[key]) for key in most.keys() & limits.keys() if most[key] > limits[key]}
        expect(not over, f"{workload}: {over}, limits {limits}")
        used = rows["used_blocks"].max()
        expect(used <= num_blocks, f"{workload}: {used} of {num_blocks} blocks")
