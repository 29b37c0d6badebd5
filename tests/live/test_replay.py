"""A session is repeated by a run of its record, to the nanosecond."""
import numpy as np
import pytest

import simulator
from simulator.domain import records
from simulator.live.session import differing_rows, write_session
from support.live_sessions import Session, fleet_of

WAYS = {
    "vllm": ["cluster.routing.policy=round_robin"],
    "preemptions": ["engine.num_gpu_blocks=26", "engine.enable_prefix_caching=false", "topology.replicas=1",
                    "engine.max_model_len=96"],
    "prefix_router": ["cluster.routing.policy=weighted",
                      'cluster.routing.scorers=[{name="prefix-affinity",weight=3.0},{name="queue-depth",weight=2.0}]'],
    "priority": ["engine.policy=priority", "topology.replicas=1", "cluster.routing.policy=random"],
    "host": ["latency.host.output_token_us=700.0", "latency.host.queue_base_us=1500.0",
             "latency.host.completion_us=300.0", "cluster.routing.policy=least_loaded"],
    "autoscaling": ["cluster.routing.policy=least_loaded", 'pools=[{name="all",replicas=1,max_replicas=3}]',
                    'autoscaling={policy="utilisation",target=0.3,interval_s=0.05,'
                    "scale_down_stabilization_window_s=0.1,provisioning_delay={mean_s=0.05}}"],
    "sglang": ["engine.scheduler=sglang", "engine.num_gpu_blocks=200", "engine.block_size=1"],
}
ROLES = ['pools=[{name="p",replicas=1,role="prefill"},{name="d",replicas=1,role="decode"}]',
         "kv_transfer={kv_bytes_per_token=10000,bandwidth_gb_per_s=1.0}"]
STOPS = 'failures=[{kind="stop",mtbf_s=0.3,mttr_s=0.1}]'
COPIES = "bandwidth_gb_per_s=1.0,kv_bytes_per_token=10000"
TIER = "cpu_gib=0.01,kv_bytes_per_token=10000,d2h_gb_per_s=1.0,h2d_gb_per_s=1.0"
# Overrides of a feature -> a column of the run in which it shows, or a status.
FEATURES = {
    "stops": ([STOPS, "cluster.retry={}", "cluster.cooldown={}"], "retries"),
    "losses": (['failures=[{kind="link",mtbf_s=0.3,mttr_s=0.1,which="each",on_failure="lost"}]',
                "cluster.health={detection_delay_s=0.02}", "cluster.breaker={}"], records.DROPPED),
    "rolling_restart": (["restarts=[{at_s=0.2,loading_delay={mean_s=0.1}}]"], None),
    "speculation": (['engine.speculative={method="eagle",num_tokens=2,drafter_share=0.1,'
                     "acceptance={mean_length=1.9}}"], None),
    "host_tier": ([f"kv_tiers={{{TIER}}}", "engine.num_gpu_blocks=46"], "loaded_tokens"),
    "shared_store": ([f'kv_tiers={{{TIER},secondary=[{{name="s",scope="cluster",capacity_gib=1.0,read_gb_per_s=1.0,'
                      "write_gb_per_s=1.0}]}"], "loaded_tokens"),
    "prefill_decode": (ROLES, "transfer_bytes"),
    "prefill_decode_stops": ([*ROLES, STOPS, f"kv_tiers={{{TIER}}}"], "retries"),
    "admission": (['cluster.admission={policy="token_bucket",capacity_tokens=200,refill_tokens_per_s=1000.0}'],
                  records.REJECTED),
    "queue_limits": (["engine.max_num_queued_reqs=2"], records.REJECTED),
    "gateway_queue": (['slo.classes=[{name="gold",priority=5,ttft_ms=50.0},{name="bronze",priority=-3}]',
                       'cluster.gateway_queue={order="slo_deadline"}'], None),
    "reclamation": (['slo.classes=[{name="gold",priority=5,ttft_ms=50.0},{name="bronze",priority=-3}]',
                     'cluster.gateway_queue={max_bytes=4000,in_flight_eviction=true,reclamation={grace_s=0.01},'
                     'saturation={detector="concurrency",max_concurrency=2}}'], records.FAILED),
    "filters": (['cluster.routing={policy="weighted",scorers=[{name="session-affinity",weight=1.0}],'
                 'filters=[{name="utilization",max_active_requests=3}]}'], records.REJECTED),
    "ranks": (["topology.data_parallel=2", STOPS], "retries"),
    "tenants": (["engine.scheduler=vtc", 'cluster.routing={policy="consistent_hash",key="tenant"}'], None),
    "adapters": (["engine.lora={max_loras=1,rank=16,adapter_mb=50.0,disk_gb_per_s=2.0,h2d_gb_per_s=25.0}",
                  'workload.adapters={names=["l1","l2","l3"]}'], None),
    "grammars": (["engine.structured_outputs={compile_ms=30.0,cpus=2}", "engine.num_gpu_blocks=200"], None),
    "failing_grammars": (["engine.structured_outputs={failing_fraction=0.9,compile_ms=5.0}"], records.FAILED),
    "grammars_of_sglang": (["engine.scheduler=sglang", "engine.num_gpu_blocks=200", "engine.block_size=1",
                            "engine.structured_outputs={compile_ms=30.0,failing_fraction=0.3}"], None),
    **{f"migration_{mode}": ([f'cluster.rescheduling={{policy="rebalance",mode="{mode}",interval_s=0.02,{COPIES}}}'],
                             "migrations") for mode in ("live", "blocking", "recompute")},
    "llumnix": (['cluster.rescheduling={policy="llumnix",interval_s=0.02,policies=["neutral_load"],'
                 'neutral_load_threshold=0.1,load_balance_threshold=0.01,req_select_rule="NUM_REQ",'
                 'req_select_value=1.0,status_push_interval_s=0.0,status_poll_interval_s=0.0,'
                 f"{COPIES}}}", "cluster.routing.policy=round_robin"], "migrations"),
    "migration_and_stops": ([f"cluster.rescheduling={{interval_s=0.01,least_difference=0.02,{COPIES}}}", STOPS,
                             "cluster.cooldown={}"], "migrations"),
    "router_queue": (['cluster.routing={policy="dynamo",queue={threshold=0.1}}'], None),
    "bursts": (['cluster.routing={policy="weighted",scorers=[{name="burst-prefix",weight=1.0,window_s=0.02}]}'], None),
}
SCHEDULE = ('autoscaling={policy="schedule",max_replicas=4,provisioning_delay={mean_s=0.02},'
            'loading_delay={mean_s=0.01,law="exponential"},actuation_delay={mean_s=0.005}}')
ACTED = {
    "schedule": [SCHEDULE, "cluster.routing.policy=least_loaded"],
    "roles": [*ROLES, SCHEDULE, "cluster.health={detection_delay_s=0.02}"],
    "ranks": ["topology.data_parallel=2", "latency.host.queue_base_us=1500.0"],
    "failures": [STOPS, SCHEDULE],
}
NAMES = {"tenant": ["", "a", "b", "c"], "session": ["x", "y", ""], "slo_class": ["bronze", "gold", "unknown"],
         "adapter": ["l3", "l1", ""]}
GRAMMARS = {"grammar": ["", "json-1", "regex-2", "choice-3"]}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("way", WAYS)
def test_a_run_of_the_record_gives_the_rows_that_were_served(tmp_path, way, seed):
    experiment, session, _ = _replayed(tmp_path, WAYS[way], seed)
    served = session.fleet.served()
    assert set(np.unique(served.requests["status"])) == {records.COMPLETED, records.TIMED_OUT}
    assert (served.requests["replica"].max() == 2) == (way == "autoscaling")
    assert served.requests["preemptions"].any() or way != "preemptions"
    assert served.requests["cached_tokens"].any() == experiment.engine.enable_prefix_caching


@pytest.mark.parametrize("feature", FEATURES)
def test_features_are_repeated(tmp_path, feature):
    overrides, shows_in = FEATURES[feature]
    _, session, result = _replayed(tmp_path, overrides, 1, NAMES | GRAMMARS if "grammars" in feature else NAMES)
    served = session.fleet.served()
    for column in ("tenant", "session"):        # numbered as they come, as in the run: some policies hash the numbers
        assert (served.demands[column] == result.requests[column]).all()
    for column in ("slo_class", "adapter", "grammar"):
        assert ((served.demands[column] >= 0) == (result.requests[column] >= 0)).all()
    if isinstance(shows_in, str):
        assert (result.requests[shows_in] > 0).any()
    elif shows_in is not None:
        assert shows_in in served.requests["status"]


@pytest.mark.parametrize(("way", "seed"), [
    *((way, seed) for way in ACTED for seed in range(2)), ("roles", 9)])     # 9: a replica begins anew, without hits
def test_actions_of_an_admin_are_repeated(tmp_path, way, seed):
    _, session, _ = _replayed(tmp_path, ACTED[way], seed, has_admin=True)
    verbs = {action.verb for action in session.fleet.actions.taken}
    assert len(verbs) >= 3
    assert (tmp_path / "session/actions.csv").read_text().count("\n") == len(session.fleet.actions.taken) + 1
    assert (np.diff([action.time_ns for action in session.fleet.actions.taken]) > 0).all()


def _replayed(folder, overrides, seed, labels=(), has_admin=False):
    """Return an experiment, a session of it, and the run of the record, which does not differ."""
    experiment, fleet = fleet_of(folder, overrides)
    session = Session(fleet, seed, labels=labels, has_admin=has_admin).play()
    served = fleet.served()
    assert fleet.num_open == 0
    assert len(served) >= 40

    recorded = fleet.actions.recorded(experiment)
    result = simulator.run(write_session(recorded, served, folder / "session", fleet.actions.taken))

    assert differing_rows(served, result.requests) == []
    _assert_equal_messages(session.messages, result, served)
    return experiment, session, result


def _assert_equal_messages(messages, result, served):
    """Compare the tokens that clients got with the table of token times."""
    begins, times_ns = result.token_times
    for row, found in messages.items():
        *tokens, end = found
        seen = [each.time_ns for each in tokens for _ in range(each.tokens)]
        if served.requests["status"][row] == records.COMPLETED:
            assert seen == times_ns[begins[row]:begins[row + 1]].tolist()
            assert end.time_ns == served.requests["completed_ns"][row]
        assert end.tokens == 0
        assert end.status == served.requests["status"][row]
