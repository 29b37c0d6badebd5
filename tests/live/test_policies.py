"""Each policy of the registry: serve takes it, and a run of the record repeats it; or serve says why not."""
import pytest

import simulator
from simulator import registry
from simulator.live.session import differing_rows, write_session
from simulator.live.supported import WHY_NOT
from support.live_sessions import Session, fleet_of

NAMES = {"tenant": ["", "a", "b", "c"], "session": ["x", "y", ""], "slo_class": ["bronze", "gold", "unknown"]}
CLASSES = ('slo.classes=[{name="gold",priority=5,ttft_ms=50.0,tpot_ms=9.0},'
           '{name="bronze",priority=-3,ttft_ms=200.0,tpot_ms=30.0}]')
TWO = 'pools=[{name="gold",replicas=1},{name="bronze",replicas=1}]'
GROWS = 'pools=[{name="all",replicas=1,max_replicas=3}]'
ROLES = ['pools=[{name="p",replicas=1,max_replicas=2,role="prefill"},'
         '{name="d",replicas=1,max_replicas=2,role="decode"}]',
         "kv_transfer={kv_bytes_per_token=10000,bandwidth_gb_per_s=1.0}"]
COPIES = "bandwidth_gb_per_s=1.0,kv_bytes_per_token=10000"
# What a policy needs besides its name.
KEYS = {
    ("scheduler", "sglang"): ["engine.num_gpu_blocks=200", "engine.block_size=1"],
    ("scheduler", "split_wise"): [
        "cluster.routing.policy=split_wise", "topology={replicas=2,pd_node_ratio=0.5}", "engine.num_gpu_blocks=400",
        'kv_transfer={protocol="simai",kv_bytes_per_token=10000,bandwidth_gb_per_s=1.0}'],
    ("router", "split_wise"): [
        "topology={replicas=2,pd_node_ratio=0.5}", "engine.scheduler=split_wise", "engine.num_gpu_blocks=400",
        'kv_transfer={protocol="simai",kv_bytes_per_token=10000,bandwidth_gb_per_s=1.0}'],
    ("admission", "tenant_budgets"): ['budgets=[{tenant="a",share=0.1}]', 'inner={policy="always"}'],
    ("filter", "utilization"): ["max_active_requests=3"],
    ("scorer", "header-label"): [TWO],
    ("filter", "label-selector"): ['pools=["gold"]', TWO],
    ("filter", "endpoint-attribute"): ['attribute="in_flight"', "threshold=2.0"],
    ("scorer", "endpoint-attribute"): ['attribute="in_flight"'],
    ("autoscaler", "mix"): ["input_tokens=[30,90]", "output_tokens=[8,20]",
                            'profiles=[{pool="all",requests_per_s=[[90.0,60.0],[40.0,20.0]]}]'],
    ("autoscaler", "queueing"): ["alpha=5.0", "beta=0.5", "gamma=0.001"],
    ("autoscaler", "planner"): [
        "itl_ms=9.0", "prefill_profile=[{prompt_tokens=20,ttft_ms=6.0,tokens_per_s=900.0},"
        "{prompt_tokens=80,ttft_ms=8.0,tokens_per_s=2000.0}]",
        "decode_profile=[{concurrency=1,context_tokens=50,itl_ms=6.0,tokens_per_s=100.0},"
        "{concurrency=4,context_tokens=50,itl_ms=7.0,tokens_per_s=300.0}]"],
    ("autoscaler", "slo_attainment"): ["ttft_ms=20.0"],
    ("autoscaler", "schedule"): ["changes=[{at_s=0.1,replicas=3},{at_s=0.4,replicas=1}]"],
}
OF_ROLES = ("planner",)


def _overrides(kind, name):
    """Return the overrides of an experiment with a policy."""
    given = KEYS.get((kind, name), [])
    own, others = [each for each in given if _is_own(each)], [each for each in given if not _is_own(each)]
    keys = "".join(f",{each}" for each in own)
    if kind == "scheduler":
        return [CLASSES, f"engine.scheduler={name}", *given]
    if kind == "router":
        return [CLASSES, f"cluster.routing.policy={name}", *given]
    if kind == "admission":
        return [CLASSES, f'cluster.admission={{policy="{name}"{keys}}}']
    if kind == "scorer":
        return [CLASSES, *others, f'cluster.routing={{policy="weighted",scorers=[{{name="{name}",weight=1.0{keys}}}]}}']
    if kind == "filter":
        return [CLASSES, *others, 'cluster.routing={policy="weighted",scorers=[{name="queue-depth",weight=1.0}],'
                f'filters=[{{name="{name}"{keys}}}]}}']
    if kind == "rescheduler":
        return [f'cluster.rescheduling={{policy="{name}",interval_s=0.02,{COPIES}}}']
    pools = ROLES if name in OF_ROLES else [GROWS]
    every = "" if name == "schedule" else ",interval_s=0.05"
    return [CLASSES, *pools, f'autoscaling={{policy="{name}"{every}{keys}}}']


def _is_own(text):
    """Return whether an override is a key of the policy itself."""
    return "." not in text.partition("=")[0] and not text.startswith(("pools=[{", "kv_transfer", "topology"))


KINDS = ("scheduler", "router", "admission", "scorer", "filter", "rescheduler", "autoscaler")
TAKEN = [(kind, name) for kind in KINDS for name in sorted(registry.KINDS[kind].entries)
         if name not in WHY_NOT.get(kind, {})]


@pytest.mark.parametrize(("kind", "name"), TAKEN)
def test_a_run_repeats_each_policy_that_serve_takes(tmp_path, kind, name):
    experiment, fleet = fleet_of(tmp_path, _overrides(kind, name))
    Session(fleet, 7, labels=NAMES).play()
    served = fleet.served()

    result = simulator.run(write_session(fleet.actions.recorded(experiment), served, tmp_path / "session"))

    assert len(served) >= 40
    assert fleet.num_open == 0
    assert differing_rows(served, result.requests) == []
