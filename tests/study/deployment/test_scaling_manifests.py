"""The autoscaler that was simulated, as Kubernetes and KEDA read it."""
import re
from pathlib import Path

import msgspec
import pytest
import yaml

from simulator import cli
from simulator.config.load import load_experiment
from simulator.domain.autoscaling import Rates
from simulator.scaling.hpa import Hpa
from simulator.study.deployment.formats import left_out_of, lowered_for, text_of

CONFIGS = Path(__file__).parents[3] / "configs"
OTHER = {"targets": [{"metric": "kv_cache", "value": 0.75}, {"metric": "waiting", "average_value": 2.5}],
         "tolerance": 0.05, "min_replicas": 2, "scale_up_stabilization_window_s": 30.0,
         "scale_down_stabilization_window_s": 120.0,
         "rates": {"up": [{"replicas": 2, "period_s": 60.0}], "down": [{"percent": 10, "period_s": 90.0}],
                   "select": "min", "select_down": "disabled"}}


def lowered(name, **keys):
    overrides = {f"autoscaling.{key}": value for key, value in keys.items()}
    return lowered_for(load_experiment(CONFIGS / "hpa.toml", overrides), name)


def toml(value):
    """Return a value, or a table of one key, as TOML."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml(each)}" for key, each in value.items()) + "}"
    return f'"{value}"' if isinstance(value, str) else str(value)


def documents(name, **keys):
    return list(yaml.safe_load_all(text_of(lowered(name, **keys), name)))


def read_back(behaviour, low):
    """Return the keys of [autoscaling] by the table of docs/howto/autoscalers.md."""
    up, down = behaviour["scaleUp"], behaviour["scaleDown"]
    names = {"Percent": "percent", "Pods": "replicas"}
    rates = {way: [{names[each["type"]]: each["value"], "period_s": each["periodSeconds"]}
                   for each in own["policies"]] for way, own in (("up", up), ("down", down))}
    rates |= {"select": up["selectPolicy"].lower(), "select_down": down["selectPolicy"].lower()}
    return {"min_replicas": low, "scale_up_stabilization_window_s": up["stabilizationWindowSeconds"],
            "scale_down_stabilization_window_s": down["stabilizationWindowSeconds"], "rates": rates,
            "tolerance": float(up.get("tolerance", 0.1))}


@pytest.mark.parametrize("keys", [{}, OTHER], ids=["defaults", "other"])
def test_a_horizontal_pod_autoscaler_is_read_back_to_the_same_keys(keys):
    given = lowered("hpa", **keys).autoscaling
    document, = documents("hpa", **keys)
    spec = document["spec"]

    back = lowered("hpa", **read_back(spec["behavior"], spec["minReplicas"]))

    assert (document["apiVersion"], document["kind"]) == ("autoscaling/v2", "HorizontalPodAutoscaler")
    assert spec["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "Deployment", "name": "all"}
    assert spec["maxReplicas"] == 8 and back.autoscaling.min_replicas == given.min_replicas
    windows = [getattr(given, f"scale_{way}_stabilization_window_s") for way in ("up", "down")]
    assert [back.autoscaling.scale_up_stabilization_window_s, back.autoscaling.scale_down_stabilization_window_s] == [
        default if value is None else value for value, default in zip(windows, Hpa.windows_s, strict=True)]
    rates = given.rates or Rates()
    assert back.autoscaling.rates == msgspec.structs.replace(rates, select_down=rates.select_down or rates.select)
    assert back.autoscaling.parameters.tolerance == given.parameters.tolerance


def test_metrics_of_pods_have_means_and_others_sums():
    document, = documents("hpa", **OTHER)

    assert document["spec"]["metrics"] == [
        {"type": "Pods", "pods": {"metric": {"name": "vllm_kv_cache_usage_perc"}, "target": {
            "type": "AverageValue", "averageValue": "0.75"}}},
        {"type": "External", "external": {"metric": {"name": "waiting_sum"}, "target": {
            "type": "AverageValue", "averageValue": "2.5"}}}]
    notes = [line for line in left_out_of(lowered("hpa", **OTHER), "hpa") if "adapter" in line]
    assert notes[0].endswith("serves vllm_kv_cache_usage_perc as vllm:kv_cache_usage_perc")
    assert notes[1].endswith("serves waiting_sum as sum(vllm:num_requests_waiting)")


@pytest.mark.parametrize(("target", "kind", "query"), [
    ({"metric": "running", "value": 4.0}, "Value", "avg(vllm:num_requests_running)"),
    ({"metric": "queued", "average_value": 4.0}, "AverageValue", "sum(llm_d_epp_flow_control_queue_size)"),
    ({"metric": "in_flight", "average_value": 4.0}, "AverageValue",
     "sum(vllm:num_requests_waiting + vllm:num_requests_running)"),
    ({"metric": "ttft", "value": 4.0}, "Value", "sum(rate(vllm:time_to_first_token_seconds_sum[30s])) / "
                                                "sum(rate(vllm:time_to_first_token_seconds_count[30s]))"),
    ({"metric": "ttft", "value": 4.0, "quantile": 0.9}, "Value",
     "histogram_quantile(0.9, sum by (le) (rate(vllm:time_to_first_token_seconds_bucket[30s])))"),
])
def test_a_scaled_object_has_a_query_for_each_target(target, kind, query):
    document, = documents("keda", targets=[target], **{"metrics.window_s": 30.0})

    trigger, = document["spec"]["triggers"]
    assert (document["apiVersion"], document["kind"]) == ("keda.sh/v1alpha1", "ScaledObject")
    assert (trigger["metricType"], trigger["metadata"]["query"], trigger["metadata"]["threshold"]) == (kind, query, "4")
    assert "pollingInterval" not in document["spec"] and document["spec"]["minReplicaCount"] == 1


def test_zero_replicas_are_those_of_keda():
    zero = {"poll_s": 10.0, "cooldown_s": 60.0, "activation": 3}
    spec = documents("keda", zero=zero, **{"metrics.aggregate": "mean"})[0]["spec"]

    assert (spec["pollingInterval"], spec["cooldownPeriod"], spec["minReplicaCount"]) == (10, 60, 0)
    assert spec["triggers"][0]["metadata"]["activationThreshold"] == "3"
    assert "avg_over_time(vllm:num_requests_waiting[60s])" in spec["triggers"][0]["metadata"]["query"]
    assert set(spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]) == {"scaleUp", "scaleDown"}


@pytest.mark.parametrize(("config", "name", "keys", "fault"), [
    ("autoscaling", "hpa", {}, r'autoscaling\.policy: --as hpa: expected "hpa", found "utilisation"'),
    ("linear", "keda", {}, r'autoscaling: missing; --as keda writes the autoscaler "hpa"'),
    ("hpa", "keda", {"stabilization": "unbroken"}, r"autoscaling\.stabilization: .*found \"unbroken\""),
    ("hpa", "hpa", {"zero": {"poll_s": 10.0}}, r"autoscaling\.zero: --as hpa: expected none; --as keda writes it"),
    ("hpa", "hpa", {"scale_down_stabilization_window_s": 1.5}, "window_s: --as hpa: expected whole seconds, found 1.5"),
    ("hpa", "hpa", {"min_replicas": 0}, r"autoscaling\.min_replicas: --as hpa: expected at least 1, found 0"),
])
def test_another_autoscaler_is_not_written(capsys, config, name, keys, fault):
    options = [f"--set=autoscaling.{key}={toml(value)}" for key, value in keys.items()]

    assert cli.main(["export", str(CONFIGS / f"{config}.toml"), "--as", name, *options]) == 2
    assert re.search(fault, " ".join(capsys.readouterr().err.split()))
