"""The start value of a search: a full batch over the predicted time to prefill and decode a mean request in it."""
import numpy as np

from simulator.assembly.latency import latency_model
from simulator.assembly.requests import requests_of
from simulator.assembly.site import Site, sites_of
from simulator.config.experiment import Experiment
from simulator.errors import InputErrors

MOST_SEQUENCES = 256            # of a batch, where the scheduler sets no limit


def estimated_rate(experiment: Experiment) -> float | None:
    """Return the estimated requests a second of an experiment; None: not possible.

    Raises
    ------
    InputErrors
        The experiment cannot run.
    """
    sites = sites_of(experiment)
    workload = requests_of(experiment, sites=sites)
    outputs = np.clip(workload.outcomes["output_tokens"], 1, workload.demands["max_tokens"])
    if not len(outputs):
        return None
    prompt, output = max(round(float(workload.requests["prompt_tokens"].mean())), 1), float(outputs.mean())
    rates = {"both": 0.0, "prefill": 0.0, "decode": 0.0}
    for site in sites:
        pool = site.pool
        if pool.role in rates:
            prefill_s, decode_s = _times_s(site.check(), prompt, output)
            spent_s = {"both": prefill_s + decode_s, "prefill": prefill_s, "decode": decode_s}[pool.role]
            replicas = pool.topology.replicas if pool.replicas is None else pool.replicas
            rates[pool.role] += replicas * pool.topology.data_parallel / spent_s if spent_s > 0 else 0.0
    disaggregated = min(rates["prefill"], rates["decode"])
    return rates["both"] + disaggregated or None


def _times_s(site: Site, prompt: int, output: float) -> tuple[float, float]:
    """Return the seconds of a replica for one request: its prompt, and its share of a full batch's decodes."""
    model = latency_model(site)
    context = max(round(prompt + output / 2), 1)
    kv_tokens = site.num_gpu_blocks * site.block_tokens
    most = site.scheduler_facts.max_running or MOST_SEQUENCES
    batch = max(min(most, kv_tokens // (prompt + round(output))), 1)
    try:
        prefill_s = model.predict([(prompt, 0)], [], 1)
        decode_s = model.predict([], [context] * batch, 1)
    except (ValueError, InputErrors):
        return 0.0, 0.0                         # a backend without such batches
    return prefill_s, decode_s * (output - 1) / batch        # the prompt's iteration gives the first token
