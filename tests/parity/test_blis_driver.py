"""The driver that turns commands of BLIS into experiments, on commands that nobody recorded."""
import gzip
import json
import re

import pytest

from simulator.domain import facts
from support.blis import Case
from support.blis_experiment import experiment_of
from support.blis_flags import DEFAULTS, DEFAULTS_OF, IGNORED, LEFT_OUT, REFINING, options_of, unknown_flags
from support.blis_models import catalogue, model_named
from support.blis_random import GoRandom, router_words, seed_of
from support.blis_repeat import repeat, report_of
from support.blis_yaml import read_yaml

# The flags of `replay` by version; v0.7.10 and v0.7.1 share all with the newest but those that came later.
LATER_THAN_07 = """
    dispatch-tick-interval dp enable-expert-parallel encode-decider encode-instances fairness-policy in-flight-eviction
    kv-cache-dtype kv-offload-config lora-adapter-capacity lora-config lora-footprint-bytes-per-rank
    lora-load-bandwidth-bytes-us lora-load-base-latency-us lora-scorer-weight max-num-batched-tokens max-num-seqs
    metrics-path moe-comm-backend prefill-decode-instances per-band-capacity preemption-policy queue-shedding
    request-ttl slo-targets usage-limit-threshold concurrent-sessions total-sessions shuffle-corpus think-time-dist
    detectors saturation-config saturation-report saturation-final-window slo-ttft slo-itl slo-e2e lazy-generation"""
COMMON = """
    admission-latency admission-policy alpha-coeffs beta-coeffs block-size-in-tokens cache-signal-delay counterfactual-k
    decode-hardware decode-instances decode-latency-model decode-max-model-len decode-routing-scorers decode-tp
    defaults-filepath dispatch-order fitness-weights flow-control gpu-memory-utilization hardware hardware-config
    horizon kv-cache-util-threshold kv-cpu-blocks kv-offload-threshold kv-transfer-bandwidth kv-transfer-base-latency
    latency-model log long-prefill-token-threshold max-concurrency max-gateway-queue-depth max-model-len
    max-num-running-reqs max-num-scheduled-tokens model model-autoscaler-interval-us model-config-folder num-instances
    pd-decider pd-prefix-threshold pd-transfer-bandwidth pd-transfer-base-latency pd-transfer-contention policy-config
    prefill-hardware prefill-instances prefill-latency-model prefill-max-model-len prefill-routing-scorers prefill-tp
    queue-depth-threshold results-path routing-latency routing-policy routing-scorers saturation-detector scheduler seed
    session-mode snapshot-refresh-interval summarize-trace think-time-ms token-bucket-capacity token-bucket-refill-rate
    total-kv-blocks tp trace-data trace-header trace-level trace-output vllm-version"""
OLDER = "priority-policy pd-direct-decode-threshold"
RECORDED_OF_069 = """
    alpha-coeffs beta-coeffs hardware horizon kv-cpu-blocks kv-offload-threshold kv-transfer-bandwidth
    kv-transfer-base-latency max-num-running-reqs model results-path total-kv-blocks tp workload-spec"""
FLAGS = {"head": f"{COMMON} {LATER_THAN_07}", "bb": f"{COMMON} {OLDER} preemption-policy", "v071": f"{COMMON} {OLDER}",
         "v069": RECORDED_OF_069}

COLUMNS = ("request_id,client_id,tenant_id,slo_class,session_id,round_index,prefix_group,prefix_length,streaming,"
           "input_tokens,output_tokens,text_tokens,image_tokens,audio_tokens,video_tokens,reason_ratio,model,deadline_us,"
           "server_input_tokens,arrival_time_us,send_time_us,first_chunk_time_us,last_chunk_time_us,num_chunks,status,"
           "error_message,finish_reason")
BLACKBOX = "--model unit --hardware H100 --latency-model blackbox --trace-data .../trace.csv"


@pytest.fixture
def written(tmp_path):
    """Return a function that writes a case: flags, version, rows of (SLO class, prompt, outputs, arrival in us)."""
    def write(flags="", version="head", rows=(("standard", 16, 2, 10),), files=()):
        (tmp_path / "command.txt").write_text(f"cd .../blis\n.../blis replay {BLACKBOX} {flags}\n")
        lines = [f"{i},c,t,{name},,0,,0,false,{prompt},{outputs},0,0,0,0,0,,0,0,{at_us},0,0,0,0,ok,,"
                 for i, (name, prompt, outputs, at_us) in enumerate(rows)]
        (tmp_path / "trace.csv").write_text("\n".join([COLUMNS, *lines]) + "\n")
        (tmp_path / "output.json").write_text(json.dumps({"binary": version, "requests": [], "aggregate": {
            "instance_id": "cluster", "preemption_count": 0, "still_queued": 0, "still_running": 0}}))
        with gzip.open(tmp_path / "events.log.gz", "wt") as log:
            log.write('msg="Starting replay with 100 KV blocks, alphaCoeffs=[1000 2.5 50], betaCoeffs=[5000 20 15]"\n')
        for name, text in files:
            (tmp_path / name).write_text(text)
        return Case(tmp_path)
    return write


@pytest.mark.parametrize("version", sorted(FLAGS))
def test_every_flag_of_a_version_is_known(version):
    assert unknown_flags(options_of([f"--{flag}=x" for flag in FLAGS[version].split()])) == []


def test_a_flag_is_translated_or_ignored_or_left_out_and_nothing_else():
    kinds = [DEFAULTS.keys(), IGNORED.keys(), LEFT_OUT.keys(), REFINING]
    assert sum(map(len, kinds)) == len(set().union(*kinds))


def test_an_unknown_flag_is_named(written):
    with pytest.raises(AssertionError, match="--frobnicate"):
        written("--frobnicate 3").obstacle()


def test_a_key_of_a_policy_file_that_is_unknown_is_named(written):
    with pytest.raises(ValueError, match=r"routing\.frobnicate"):
        written("--policy-config .../p.yaml", files=[("p.yaml", "routing:\n  frobnicate: 1\n")]).obstacle()


@pytest.mark.parametrize(("flags", "reason"), [
    ("--kv-offload-config x.yaml", "a file of KV tiers"), ("--encode-instances 1", "encode"),
    ("--prefill-instances 1 --decode-instances 1 --prefill-tp 2", "pools of unlike replicas"),
    ("--concurrent-sessions 2", "sessions"), ("--think-time-dist exp", "times to think"),
    ("--lora-adapter-capacity 3", "LoRA"),
    ("--latency-model trained-roofline", "trained-roofline")])
def test_what_is_left_out_is_told_by_its_flags(written, flags, reason):
    assert reason in written(flags).obstacle()


def test_a_left_out_flag_without_effect_leaves_nothing_out(written):
    assert written("--kv-cpu-blocks 0 --prefill-instances 0 --kv-offload-threshold 0.5").obstacle() is None


@pytest.mark.parametrize(("version", "snapshot_s", "cache_s"), [
    ("head", 0.05, 0.05), ("bb", 0.0, 0.05), ("v071", 0.0, 2.0)])
def test_absent_flags_take_the_default_of_their_version(written, tmp_path, version, snapshot_s, cache_s):
    experiment = experiment_of(written(version=version), tmp_path)

    routing = experiment["cluster"]["routing"]
    assert (routing["snapshot_refresh_interval_s"], routing["cache_signal_delay_s"]) == (snapshot_s, cache_s)
    assert experiment["engine"]["max_num_seqs"] == 256
    assert experiment["engine"]["max_num_batched_tokens"] == 2048
    assert experiment["horizon_s"] == 20e-6         # twice the last arrival


def test_every_version_has_its_defaults():
    assert all(values.keys() <= DEFAULTS.keys() for values in DEFAULTS_OF.values())
    assert DEFAULTS_OF.keys() == FLAGS.keys()


def test_the_old_names_of_flags_are_those_of_the_new_ones(written, tmp_path):
    engine = experiment_of(written("--max-num-running-reqs 7 --max-num-scheduled-tokens=99"), tmp_path)["engine"]
    assert (engine["max_num_seqs"], engine["max_num_batched_tokens"]) == (7, 99)


def test_a_flag_goes_before_the_policy_file(written):
    case = written("--policy-config .../p.yaml --scheduler sjf", files=[(
        "p.yaml", "scheduler: priority-fcfs\npreemption: {policy: priority}\n")])
    assert (case.settings["scheduler"], case.settings["preemption-policy"]) == ("sjf", "priority")


def test_thresholds_of_another_detector_and_policy_are_left_away(written, tmp_path):
    cluster = experiment_of(written("--max-concurrency 3 --token-bucket-capacity 9 --queue-depth-threshold 2"),
                            tmp_path)["cluster"]
    assert cluster["admission"] == {"latency_s": 0.0, "policy": "always"}
    assert "gateway_queue" not in cluster


def test_the_queue_depth_of_the_oldest_version_counts_those_that_run(written, tmp_path):
    flags = "--routing-policy weighted --routing-scorers queue-depth:2,load-balance:1"
    scorers = [experiment_of(written(flags, version), tmp_path)["cluster"]["routing"]["scorers"][0]
               for version in ("head", "bb", "v071")]
    assert scorers == [{"name": "queue-depth", "weight": 2.0}] * 2 + [
        {"name": "queue-depth", "weight": 2.0, "load": "effective"}]


FORMATS = {"fp8": "fp8", "nvfp4": "fp4", "awq": "int4"}


@pytest.mark.parametrize("name", facts.names("model"))
def test_every_model_of_the_catalogue_can_be_named(name):
    hub_ids = [each for each, ours in catalogue().items() if ours == name]

    found = re.search(r"-(fp8|nvfp4|awq)(-.*)?$", name)
    base = found and name[:found.start()]
    is_copy = base in facts.names("model")      # which BLIS reads as the model with other weights
    assert model_named(name) == ((base, FORMATS[found[1]]) if is_copy else (name, None))
    assert all(model_named(each)[0] == name for each in hub_ids)


@pytest.mark.parametrize(("theirs", "ours"), [
    ("redhatai/llama-4-scout-17b-16e-instruct-fp8-dynamic", ("llama-4-scout", "fp8")),
    ("RedHatAI/Llama-3.3-70B-Instruct-quantized.w4a16", ("llama-3.3-70b", "int4")),
    ("neuralmagic/meta-llama-3.1-8b-instruct-fp8", ("llama-3.1-8b", "fp8")),
    ("qwen/qwen3-14b", ("qwen3-14b", None))])
def test_a_quantised_copy_is_the_model_with_other_weights(theirs, ours):
    assert model_named(theirs) == ours


def test_a_model_that_no_file_describes_is_named():
    with pytest.raises(LookupError, match="nobody/knows-it"):
        model_named("nobody/knows-it")


def test_time_in_the_gateway_queue_ends_before_the_routing_latency(written, tmp_path, monkeypatch):
    # prompts of 16: queue 1000 + 2.5 x 16 = 1040 us, prefill 5000 + 20 x 16 = 5320 us, + 50 us = 6410 us, + 500 us
    case = written("--flow-control --routing-latency 500 --horizon 9000000000000")
    report = report_of(repeat(case, tmp_path, monkeypatch), case)

    assert report["requests"]["request_0"]["gateway_us"] == 0
    assert report["requests"]["request_0"]["ttft_us"] == 6910


# One sequence at a time may be in flight. The first passes, the second waits; the queue is full. The third is less
# urgent, and refused; the fourth is more urgent, and takes the place of the second.
CROWD = (("standard", 16, 2, 10), ("standard", 16, 2, 20), ("batch", 16, 2, 30), ("critical", 16, 2, 40))
ONE_AT_A_TIME = "--flow-control --saturation-detector concurrency --max-concurrency 1 --max-gateway-queue-depth 1"


@pytest.mark.parametrize(("version", "refused", "shed"), [("bb", 1, 1), ("v071", 1, 2)])
def test_refused_and_shed_are_one_number_in_the_oldest_version_only(
        written, tmp_path, monkeypatch, version, refused, shed):
    case = written(f"{ONE_AT_A_TIME} --dispatch-order priority --horizon 9000000000000", version, CROWD)
    printed = report_of(repeat(case, tmp_path, monkeypatch), case)["printed"]

    assert printed["Anomaly Counters", "Gateway Queue Rejected"] == refused
    assert printed["Anomaly Counters", "Gateway Queue Shed"] == shed


def test_policy_files_are_read_in_all_their_forms():
    text = """
        a: 1     # a remark
        b: {c: [1, 2], d: {e: x}}
        list:
        - name: n
          weight: 2
        - {name: m, weight: 3}
        nested:
          deep: "text"
    """
    assert read_yaml(text) == {
        "a": "1", "b": {"c": ["1", "2"], "d": {"e": "x"}},
        "list": [{"name": "n", "weight": "2"}, {"name": "m", "weight": "3"}], "nested": {"deep": "text"}}


def test_draws_are_those_of_go():
    random = GoRandom(1)        # what `rand.Seed(1)` is known for

    assert [random.below(100) for _ in range(10)] == [81, 87, 47, 59, 81, 18, 25, 40, 56, 0]


def test_remainders_of_the_router_s_words_are_what_go_draws():
    words, random = router_words(42, 20, 6), GoRandom(seed_of("router", 42))
    counts = [2, 3, 4, 5, 6] * 4

    assert [word % count for word, count in zip(words, counts, strict=True)] == [random.below(each) for each in counts]


def test_a_word_that_go_passes_over_for_some_count_is_refused(monkeypatch):
    # 2**31 is 2 modulo 3: of the words, the two largest are drawn again
    monkeypatch.setattr(GoRandom, "bits31", lambda _: 2**31 - 2)

    assert router_words(42, 3, 2) == [2**31 - 2] * 3
    with pytest.raises(ValueError, match="seed 42"):
        router_words(42, 3, 3)
