"""The router that was simulated, in the words of llm-d-router and of Dynamo."""
import json
from pathlib import Path

import pytest
import yaml

from simulator import cli
from simulator.config.load import load_experiment
from simulator.errors import InputErrors
from simulator.study.deployment.dynamo_settings import THRESHOLDS
from simulator.study.deployment.formats import left_out_of, text_of
from simulator.study.deployment.lowering import lower, lower_router
from simulator.study.deployment.picker_plugins import SCORERS
from support.goldens import GOLDENS

CONFIGS = Path(__file__).parents[3] / "configs"


def router_of(name, **keys):
    """Return the lowered gateway of a config, with other keys of [cluster.routing]."""
    overrides = {f"cluster.routing.{key}": value for key, value in keys.items()}
    return lower_router(load_experiment(CONFIGS / f"{name}.toml", overrides))


def test_weights_of_llm_d_are_its_own_default_profile():
    lowered = router_of("weighted", profile="llm-d-router", scorers=[])

    document = yaml.safe_load(text_of(lowered, "llm-d-router"))

    assert (document["apiVersion"], document["kind"]) == ("llm-d.ai/v1alpha1", "EndpointPickerConfig")
    assert document["schedulingProfiles"] == [{"name": "default", "plugins": [
        {"pluginRef": "queue-scorer", "weight": 2.0}, {"pluginRef": "kv-cache-utilization-scorer", "weight": 2.0},
        {"pluginRef": "prefix-cache-scorer", "weight": 3.0}, {"pluginRef": "max-score-picker"}]}]
    plugins = {each.get("name", each["type"]): each for each in document["plugins"]}
    assert plugins["approx-prefix-cache-producer"]["parameters"] == {
        "autoTune": False, "lruCapacityPerServer": 31_250, "maxPrefixBlocksToMatch": 2048, "maxPrefixTokensToMatch": 0,
        "blockSizeTokens": 64}
    assert left_out_of(lowered, "llm-d-router") == ()


def test_keys_of_scorers_and_pickers_have_the_names_of_the_plugins():
    scorers = [{"name": name, "weight": number + 1.0} for number, name in enumerate(SCORERS)]
    for scorer in scorers:
        scorer |= {"active-requests": {"idle_threshold": 2}, "load-aware": {"threshold_requests": 7},
                   "token-load": {"threshold_tokens": 9}, "lora-affinity": {"rule": "tiers"},
                   "header-label": {"label": "tenant"}, "burst-prefix": {"window_s": 0.05},
                   "prefix-affinity": {"length_weight": 0.5, "block_tokens": 32}}.get(scorer["name"], {})
    lowered = router_of("weighted", scorers=scorers, picker="weighted-random")

    document = yaml.safe_load(text_of(lowered, "llm-d-router"))

    plugins = {each.get("name", each["type"]): each for each in document["plugins"]}
    weighted = document["schedulingProfiles"][0]["plugins"]
    assert [each.get("weight") for each in weighted] == [*(scorer["weight"] for scorer in scorers), None]
    assert weighted[-1] == {"pluginRef": "weighted-random-picker"}
    assert plugins["active-request-scorer"]["parameters"] == {"idleThreshold": 2}
    assert plugins["load-aware-scorer"]["parameters"] == {"threshold": 7}
    assert plugins["token-load-scorer"]["parameters"] == {"queueThresholdTokens": 9}
    by_producer = {each["parameters"]["prefixMatchInfoProducerName"]: each["parameters"]
                   for each in plugins.values() if each["type"] == "prefix-cache-scorer"}
    assert by_producer["approx-prefix-cache-producer"]["prefixLengthWeight"] == 0.5
    assert "burst-prefix-cache-producer" in by_producer
    assert plugins["burst-prefix-cache-producer"]["parameters"]["windowDurationMs"] == 50
    assert plugins["mm-embeddings-cache-scorer"]["parameters"] == {"producerName": "mm-embeddings-cache-producer"}
    assert plugins["header-label-affinity-scorer"]["parameters"] == {
        "headerName": "x-tenant", "labelKey": "llm-d.ai/pool", "stampResponseHeader": False}
    changed = left_out_of(lowered, "llm-d-router")
    assert "cluster.routing.scorers[].block_tokens = 32: llm-d-router takes 64 at least" in changed
    assert len(changed) == 5 and any("token-producer" in line for line in changed)


def test_each_prefix_score_reads_its_own_record():
    twice = [{"name": "prefix-affinity", "weight": 1.0, "capacity_blocks": size, "block_tokens": 64}
             for size in (100, 200)]

    document = yaml.safe_load(text_of(router_of("weighted", scorers=twice), "llm-d-router"))

    plugins = {each.get("name", each["type"]): each.get("parameters") for each in document["plugins"]}
    assert plugins["approx-prefix-cache-producer-2"]["lruCapacityPerServer"] == 200
    assert plugins["prefix-cache-scorer-2"] == {"prefixMatchInfoProducerName": "approx-prefix-cache-producer-2"}


def test_filters_come_before_scores_and_a_queue_is_flow_control():
    lowered = router_of("llm_d")

    document = yaml.safe_load(text_of(lowered, "llm-d-router"))

    plugins = {each.get("name", each["type"]): each.get("parameters", {}) for each in document["plugins"]}
    first, *_, last = document["schedulingProfiles"][0]["plugins"]
    assert [each.get("weight") for each in document["schedulingProfiles"][0]["plugins"]] == [
        None, None, 2.0, 2.0, 3.0, None]
    assert (first, last) == ({"pluginRef": "prefix-cache-affinity-filter"}, {"pluginRef": "max-score-picker"})
    assert plugins["prefix-cache-affinity-filter"] == {"prefixMatchInfoProducerName": "approx-prefix-cache-producer"}
    assert plugins["utilization-detector"] == {"headroom": 0.2, "metricsStalenessThreshold": "0.2s"}
    assert plugins["utilization-detector-2"] == {"metricsStalenessThreshold": "0.2s"}
    assert document["featureGates"] == ["flowControl"]
    assert document["flowControl"] == {
        "defaultRequestTTL": "60s", "noEndpointRequestTTL": "60s", "defaultPriorityBand": {
            "maxRequests": "5000", "maxBytes": "1E", "fairnessPolicyRef": "global-strict-fairness-policy",
            "orderingPolicyRef": "edf-ordering-policy"},
        "saturationDetector": {"pluginRef": "utilization-detector-2"}}
    assert left_out_of(lowered, "llm-d-router") == ()


@pytest.mark.parametrize(("keys", "plugins", "table", "left_out"), [
    ({"fairness": "las", "las": {"half_life_s": 30.0}, "lowest_ceiling": 0.5, "max_requests": 9, "ttl_s": 1.5},
     {"program-aware-fairness": {"lasHalfLifeSeconds": 30.0},
      "priority-holdback-policy": {"domain": "rank", "minCeiling": 0.5}},
     {"maxRequests": "9", "defaultRequestTTL": "1.5s", "usageLimitPolicyPluginRef": "priority-holdback-policy"}, []),
    ({"limits": {"policy": "holdback", "least_ceiling": 0.4, "spacing": "value"}, "in_flight_eviction": True,
      "saturation": {"detector": "concurrency", "mode": "hybrid", "max_tokens": 500}},
     {"priority-holdback-policy": {"domain": "value", "minCeiling": 0.4, "maxCeiling": 1.0},
      "concurrency-detector": {"concurrencyMode": "hybrid", "maxTokenConcurrency": 500}},
     {"enableEviction": True, "saturationDetector": {"pluginRef": "concurrency-detector"}, "defaultRequestTTL": "0s"},
     []),
    ({"limits": {"policy": "reflective"}, "order": "slo_deadline", "fairness": "round_robin"},
     {"soft-reflective-ceiling-policy": {}, "round-robin-fairness-policy": {}, "slo-deadline-ordering-policy": {}}, {},
     []),
    ({"order": "fifo", "dispatch": "departures"}, {"fcfs-ordering-policy": {}}, {},
     ['cluster.gateway_queue.order = "fifo"', 'cluster.gateway_queue.dispatch = "departures"']),
])
def test_keys_of_the_queue_have_the_names_of_flow_control(keys, plugins, table, left_out):
    overrides = {"cluster.gateway_queue": keys, "cluster.routing.snapshot_refresh_interval_s": 0.0}
    lowered = lower_router(load_experiment(CONFIGS / "weighted.toml", overrides))

    document = yaml.safe_load(text_of(lowered, "llm-d-router"))

    found = {each.get("name", each["type"]): each.get("parameters", {}) for each in document["plugins"]}
    assert {name: found[name] for name in plugins} == plugins
    assert {key: document["flowControl"].get(key) for key in table} == table
    assert [line for line in left_out_of(lowered, "llm-d-router") if line.startswith("cluster.gateway_")] == left_out


@pytest.mark.parametrize(("keys", "fault"), [
    ({"fairness": "las", "las": {"output_weight": 3.0}}, r"las\.output_weight: .*found 3\.0"),
    ({"saturation": {"detector": "never"}}, r'saturation\.detector: .*found "never"'),
    ({"saturation": {"queue_depth_threshold": 2.5}}, r"queue_depth_threshold: .*expected a whole number, found 2\.5"),
])
def test_a_queue_that_is_another_there_is_not_written(keys, fault):
    with pytest.raises(InputErrors, match=fault):
        text_of(lower_router(load_experiment(CONFIGS / "weighted.toml", {"cluster.gateway_queue": keys})),
                "llm-d-router")


@pytest.mark.parametrize(("own", "kind", "parameters"), [
    ({"name": "utilization", "max_kv_usage": 0.9, "max_active_requests": 3, "fallback_on_empty": True},
     "utilization-filter", {"fallbackOnEmpty": True, "conditions": [
         {"metric": "active-requests", "maxValue": 3}, {"metric": "kv-cache-utilization", "maxValue": 0.9}]}),
    ({"name": "session-affinity", "ttl_s": 60.0}, "session-affinity-filter",
     {"strategy": "session_id", "sessionIdConfig": {"evictionTtlSeconds": 60.0}}),
    ({"name": "session-affinity", "ttl_s": 0.0}, "session-affinity-filter", {}),
    ({"name": "concurrency-detector", "mode": "tokens", "headroom": 0.5}, "concurrency-detector",
     {"concurrencyMode": "tokens", "headroom": 0.5}),
    ({"name": "prefix-affinity", "explore_share": 0.01, "capacity_blocks": 7}, "prefix-cache-affinity-filter",
     {"explorationProbability": 0.01, "prefixMatchInfoProducerName": "approx-prefix-cache-producer-2"}),
])
def test_each_filter_has_the_parameters_of_its_plugin(own, kind, parameters):
    filters = [{"name": "prefix-affinity"}] if own["name"] == "prefix-affinity" else []
    document = yaml.safe_load(text_of(router_of("weighted", filters=[*filters, own]), "llm-d-router"))

    found = [each.get("parameters", {}) for each in document["plugins"] if each["type"] == kind]
    assert found[-1] == parameters


@pytest.mark.parametrize(("name", "keys", "fault"), [
    ("stale_signals", {}, r'cluster\.routing\.policy: .*expected "weighted", found "least_loaded"'),
    ("weighted", {"scorers": [{"name": "vllm-dp", "weight": 1.0}]}, r'scorers\[0\]\.name: .*found "vllm-dp"'),
    ("weighted", {"scorers": [{"name": "queue-depth", "weight": 1.0, "load": "effective"}]},
     r'scorers\[0\]\.load: --as llm-d-router: expected "waiting", found "effective"'),
    ("weighted", {"filters": [{"name": "endpoint-attribute", "attribute": "waiting", "threshold": 3.0}]},
     r'filters\[0\]\.name: .*found "endpoint-attribute"'),
    ("weighted", {"scorers": [{"name": "burst-prefix", "weight": 1.0, "balance_by": "tokens"}]},
     r'scorers\[0\]\.balance_by: --as llm-d-router: expected "requests", found "tokens"'),
])
def test_a_part_of_a_policy_is_not_written(name, keys, fault):
    with pytest.raises(InputErrors, match=fault):
        text_of(router_of(name, **keys), "llm-d-router")


def test_the_frontend_of_dynamo_has_the_keys_of_its_router():
    keys = {"policy": "dynamo", "temperature": 0.5, "overlap": "approximate", "prefill_weight": 2.0,
            "track_prefill_tokens": False, "queue": {"threshold": 0.5, "order": "wspt"}}
    overrides = {f"cluster.routing.{key}": value for key, value in keys.items()}
    lowered = lower(load_experiment(CONFIGS / "weighted.toml", overrides))

    front = yaml.safe_load(text_of(lowered, "dynamo"))["spec"]["services"]["Frontend"]

    assert {each["name"].removeprefix("DYN_ROUTER_"): each["value"] for each in front["envs"]} == {
        "MODE": "kv", "PREFILL_LOAD_SCALE": "2.0", "TEMPERATURE": "0.5", "TRACK_PREFILL_TOKENS": "false",
        "USE_KV_EVENTS": "false", "QUEUE_THRESHOLD": "0.5", "QUEUE_POLICY": "wspt"}
    assert [line for line in left_out_of(lowered, "dynamo") if line.startswith("cluster.")] == []


def dynamo_of(queue):
    overrides = {"cluster.routing.policy": "dynamo", "cluster.routing.queue": queue}
    return lower(load_experiment(CONFIGS / "weighted.toml", overrides))


def test_the_policy_file_has_the_queues_by_class():
    queue = {"threshold": 0.25, "busy_ratio": 0.95, "classes": [
        {"order": "wspt", "quantum": 64}, {"min_tokens": 4096, "threshold_tokens": 100, "max_requests": 7},
        {"slo_class": "batch", "max_prompt_tokens": 9000},
        {"slo_class": "batch", "min_tokens": 4096, "threshold": 0.5}]}
    lowered = dynamo_of(queue)

    config_map, graph = yaml.safe_load_all(text_of(lowered, "dynamo"))

    front = graph["spec"]["services"]["Frontend"]
    assert {"name": "DYN_ROUTER_POLICY_CONFIG", "value": "/etc/dynamo/policy.yaml"} in front["envs"]
    assert [each["name"] for each in front["envs"]] == ["DYN_ROUTER_MODE", "DYN_ROUTER_POLICY_CONFIG"]
    assert front["extraPodSpec"]["volumes"][0]["configMap"]["name"] == config_map["metadata"]["name"]
    policy = yaml.safe_load(config_map["data"]["policy.yaml"])
    assert policy["default_policy_family"] == "default"
    assert policy["uncached_isl_buckets"] == [{"min_tokens": 0, "bucket": "from_0"},
                                              {"min_tokens": 4096, "bucket": "from_4096"}]
    classes = {each.pop("name"): each for each in policy["policy_classes"]}
    assert classes["default-from_0"] == {
        "policy_family": "default", "cache_bucket": "from_0", "queue_policy": "wspt", "quantum": 64,
        "prefill_busy_threshold_frac": 0.25, "busy_worker_ratio": 0.95}
    assert classes["default-from_4096"] == {
        "policy_family": "default", "cache_bucket": "from_4096", "queue_policy": "fcfs", "quantum": 8192,
        "prefill_busy_threshold": 100, "prefill_busy_threshold_frac": 0.25, "busy_worker_ratio": 0.95,
        "request_queue_limit_per_worker": 7}
    assert classes["batch-from_0"]["raw_isl_token_queue_limit_per_worker"] == 9000
    assert classes["batch-from_4096"]["prefill_busy_threshold_frac"] == 0.5 and len(classes) == 4
    assert not any(line.startswith("cluster.routing.queue") for line in left_out_of(lowered, "dynamo"))


@pytest.mark.parametrize(("queue", "why"), [
    ({"threshold": 0.5, "classes": [{}, {"slo_class": "batch"}, {"slo_class": "batch", "min_tokens": 9}]},
     "the file has one list of min_tokens for all classes"),
    ({"threshold": 0.5, "classes": [{"order": "lcfs"}]}, "the file has no order lcfs"),
    ({"threshold": 0.5, "classes": [{}, {"slo_class": "my batch"}]}, "names of classes are of letters, digits"),
])
def test_queues_that_the_policy_file_cannot_say_are_left_out_as_a_whole(queue, why):
    lowered = dynamo_of(queue)

    front = yaml.safe_load(text_of(lowered, "dynamo"))["spec"]["services"]["Frontend"]

    left_out = left_out_of(lowered, "dynamo")
    assert front["envs"] == [{"name": "DYN_ROUTER_MODE", "value": "kv"}]
    assert any(line.startswith("cluster.routing.queue.threshold = ") for line in left_out)
    assert any(line.startswith(f"cluster.routing.queue: {why}") for line in left_out)


def test_dynamos_planner_has_the_keys_of_ours():
    pools = [{"name": role, "role": role, "replicas": 1, "max_replicas": 4} for role in ("prefill", "decode")]
    split = {"pools": pools, "kv_transfer": {"protocol": "nixl"}, "topology.replicas": 1}
    base = {"policy": "dynamo_planner", "interval_s": 5.0}
    load = {**base, "target": "load", "scale_up_queue_tokens": 4000, "scale_down_queue_tokens": 500,
            "scale_up_kv_frac": 0.8, "scale_down_kv_frac": 0.3, "min_endpoint": 2, "max_gpus": 16}
    points = {"prefill_profile": [{"prompt_tokens": 256, "ttft_ms": 10.0, "tokens_per_s": 40000.0}],
              "decode_profile": [{"concurrency": 8, "context_tokens": 250, "itl_ms": 6.0, "tokens_per_s": 1300.0}]}
    sla = {**base, **points, "target": "sla", "loop": "both", "ttft_ms": 200.0, "sensitivity": "aggressive",
           "forecast": "kalman", "kalman": {"min_points": 2}, "scales": "decode", "throughput_interval_s": 60.0}

    def config_of(autoscaling):
        lowered = lower(load_experiment(CONFIGS / "quickstart.toml", split | {"autoscaling": autoscaling}))
        planner = yaml.safe_load(text_of(lowered, "dynamo"))["spec"]["services"]["Planner"]
        flag, config = planner["extraPodSpec"]["mainContainer"]["args"]
        assert flag == "--config" and planner["componentType"] == "planner"
        assert not any(line.startswith("autoscaling.") and " = " in line for line in left_out_of(lowered, "dynamo"))
        return json.loads(config)

    assert config_of(load) == {
        "mode": "disagg", "backend": "vllm", "optimization_target": "load", "pre_deployment_sweeping_mode": "none",
        "enable_throughput_scaling": False, "enable_load_scaling": True, "min_endpoint": 2, "max_gpu_budget": 16,
        "min_gpu_budget": -1, "throughput_adjustment_interval_seconds": 180, "load_adjustment_interval_seconds": 5,
        "prefill_scale_up_queue_tokens": 4000, "prefill_scale_down_queue_tokens": 500, "decode_scale_up_kv_rate": 80.0,
        "decode_scale_down_kv_rate": 30.0, "decode_engine_num_gpu": 1, "prefill_engine_num_gpu": 1}
    assert config_of(sla).items() >= {
        "mode": "decode", "optimization_target": "sla", "enable_throughput_scaling": True, "enable_load_scaling": True,
        "ttft_ms": 200.0, "itl_ms": 50.0, "load_scaling_down_sensitivity": 70, "load_min_observations": 3,
        "load_predictor": "kalman", "kalman_min_points": 2, "kalman_q_level": 1.0, "kalman_r": 10.0,
        "throughput_adjustment_interval_seconds": 60, "max_throughput_scaling_replicas": 8}.items()


def test_names_of_the_planners_config_are_those_that_were_recorded():
    path = GOLDENS / "cluster_2026/dynamo_planner_ticks.jsonl"
    if not path.exists():
        pytest.skip("needs ../shared/goldens/cluster_2026")
    recorded = {key for line in path.read_text().splitlines() for key in json.loads(line)["config"]}
    ours = {theirs for theirs, _ in THRESHOLDS.values()} | {
        "mode", "optimization_target", "max_gpu_budget", "min_gpu_budget", "min_endpoint", "enable_throughput_scaling",
        "enable_load_scaling", "max_throughput_scaling_replicas"}
    assert recorded == ours


def test_pools_for_parts_of_requests_have_no_single_profile():
    with pytest.raises(InputErrors, match=r"pools: .*found prefill \(prefill\), decode \(decode\)"):
        router_of("prefill_decode")


def test_a_router_is_exported_without_servers(capsys):
    config = str(CONFIGS / "gym.toml")          # it has no model that a server could load

    assert cli.main(["export", config, "--as", "llm-d-router"]) == 0
    assert "#   cluster.routing.snapshot_refresh_interval_s = 0.5\n" in capsys.readouterr().out
    assert cli.main(["export", config, "--as", "llm-d-router", "--strict"]) == 2
    assert "no server can be told cluster.routing.snapshot_refresh_interval_s = 0.5" in capsys.readouterr().err
