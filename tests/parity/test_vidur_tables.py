"""Vidur's iterations from Vidur's own tables, operator by operator; and those tables from Vidur's profiles."""
import gzip
import json
from collections import Counter

import numpy as np
import pytest
from msgspec import convert
from msgspec.structs import replace

from simulator.domain.layers.multi_head import MultiHeadAttention
from simulator.domain.layers.networks import Mlp
from simulator.domain.model_spec import ModelSpec
from simulator.latency.forest.model import Forest, Reading
from simulator.latency.forest.profiles import files_needed, read_samples, subject_of
from simulator.latency.forest.tables import ForestTables
from simulator.latency.forest.training import train
from support.goldens import GOLDENS
from support.small_models import deploy

VIDUR = GOLDENS / "vidur"
CASES = sorted(str(path.parent.relative_to(VIDUR)) for path in VIDUR.rglob("tables_key.txt"))
TOLERANCE = 1e-9                # relative; bits of 1e-16 are lost here and there, as sums are taken in other orders
RECORDED = {                    # names in batch_stages.jsonl, per layer
    "attention_rope_execution_time": "attn_rope", "attention_kv_cache_save_execution_time": "attn_kv_cache_save",
    "attention_decode_execution_time": "attn_decode", "attention_prefill_execution_time": "attn_prefill",
    "attention_pre_proj_time": "attn_pre_proj", "attention_post_proj_time": "attn_post_proj",
    "mlp_layer_up_proj_execution_time": "mlp_up_proj", "mlp_layer_down_proj_execution_time": "mlp_down_proj",
    "mlp_layer_act_execution_time": "mlp_act", "attn_norm_time": "input_layernorm",
    "mlp_norm_time": "post_attention_layernorm", "add_time": "add"}
COMPARED = {*RECORDED, "num_layers", "attention_all_reduce_time", "mlp_all_reduce_time",
            "pipeline_parallel_communication_time"}     # others are CPU overheads, 0 unless they are modelled

PROFILES = GOLDENS.parent / "data/profiles/vidur"
TRAINED = {                     # one recorded run for each set of tables whose profiles are at hand
    key: case for case in reversed(CASES) for key in [(VIDUR / case / "tables_key.txt").read_text().strip()]
    if (VIDUR / "_tables" / f"{key}.npz").exists()}
EXACT = 1e-6                    # of regressions, which draw nothing; forests draw other random numbers than upstream's
DRAWS = 2.0                     # and differ from it about as much as from themselves with another seed

pytestmark = pytest.mark.skipif(not CASES, reason="needs ../shared/goldens/vidur")


def read(path):
    """Return the text of a file that may lie there packed."""
    packed = path.with_name(path.name + ".gz")
    return gzip.decompress(packed.read_bytes()).decode() if packed.exists() else path.read_text()


def deployment_of(config):
    replica = config["cluster_config"]["replica_config"]
    facts = replica["model_config"]
    model = ModelSpec(
        name=facts["name"], num_layers=facts["num_layers"], hidden_size=facts["embedding_dim"],
        vocab_size=facts["vocab_size"], max_position_embeddings=facts["max_position_embeddings"], dtype="float16",
        norms_per_layer=2 if facts["post_attn_norm"] else 1,
        attention=MultiHeadAttention(num_heads=facts["num_q_heads"], num_kv_heads=facts["num_kv_heads"],
                                     head_dim=facts["embedding_dim"] // facts["num_q_heads"]),
        mlp=Mlp(intermediate_size=facts["mlp_hidden_dim"], gated=facts["use_gated_mlp"]))
    return deploy(model, tensor_parallel=replica["tensor_parallel_size"],
                  pipeline_parallel=replica["num_pipeline_stages"])


def parameters_of(config):
    asked = config["execution_time_predictor_config"]
    return convert({
        "kv_granularity_tokens": asked["kv_cache_prediction_granularity"],
        "nccl_cpu_launch_overhead_us": asked["nccl_cpu_launch_overhead_ms"] * 1e3,
        "nccl_cpu_skew_overhead_us": asked["nccl_cpu_skew_overhead_per_device_ms"] * 1e3,
    } | {name: asked[name] for name in asked if name.endswith("batching_overhead_fraction")}, Forest.Parameters)


def recorded_tables(name, granularity):
    """Return the lookup tables of a recorded run; keys of the file are feature values."""
    with np.load(VIDUR / "_tables" / f"{name}.npz") as file:
        found = {part[:-len("__keys")]: (file[part], file[part[:-len("__keys")] + "__vals"])
                 for part in file.files if part.endswith("__keys")}
    tokens, grids = {}, {}
    for operator, (keys, times_ms) in found.items():
        index = keys.copy()
        if operator == "attn_prefill":
            index = np.column_stack([keys[:, 0] // granularity, np.rint(np.sqrt(keys[:, 1])).astype(int)])
        elif operator == "attn_decode":
            index[:, 1] //= granularity
        table = np.zeros(index.max(axis=0) + 1)
        table[tuple(index.T)] = times_ms
        (grids if keys.shape[1] == 2 else tokens)[operator] = table
    return ForestTables(tokens=tokens, decode=grids["attn_decode"], prefill=grids["attn_prefill"],
                        kv_granularity=granularity)


def batch_of(stage):
    """Return a recorded batch: a sequence that decodes has in KV what it had processed, its last token included."""
    rows = list(zip(stage["num_tokens"], stage["processed_before"], stage["prefill_done"]))
    return {"prefill": [(int(tokens), int(context)) for tokens, context, is_done in rows if not is_done],
            "decode": [int(context) for _, context, is_done in rows if is_done]}


def key_of(case):
    return (VIDUR / case / "tables_key.txt").read_text().strip()


def left_out(case):
    """Return why a run cannot be compared, or None."""
    config = json.loads(read(VIDUR / case / "config.json"))
    if not (VIDUR / "_tables" / f"{key_of(case)}.npz").exists():
        return "its tables were not recorded"
    if not config["execution_time_predictor_config"]["skip_cpu_overhead_modeling"]:
        return "it adds measured CPU overheads, of which no profile is at hand"
    return None


def census():
    """Return how many runs were recorded, and why how many of them are left out."""
    return len(CASES), Counter(reason for case in CASES if (reason := left_out(case)))


def opened(case):
    """Return configuration and tables of a recorded run; skip one that cannot be compared."""
    if reason := left_out(case):
        pytest.skip(reason)
    config = json.loads(read(VIDUR / case / "config.json"))
    return config, recorded_tables(key_of(case), parameters_of(config).kv_granularity_tokens)


@pytest.mark.parametrize("case", CASES)
def test_recorded_batches_take_the_recorded_times(case):
    config, tables = opened(case)
    deployment, parameters = deployment_of(config), parameters_of(config)
    forest = Forest(parameters, deployment, reading=Reading(tables))
    layers, all_reduces = deployment.model.num_layers, 2 * deployment.model.num_layers
    stages = [json.loads(line) for line in read(VIDUR / case / "batch_stages.jsonl").splitlines()]

    found, expected = [], []
    for stage in stages:
        batch, ms = batch_of(stage), stage["ms"]
        terms = forest.breakdown(**batch)
        found += [terms.get(name, 0.0) * 1e3 / layers for name in RECORDED.values()]
        expected += [ms[name] for name in RECORDED]
        handed_over = terms.get("send_recv", 0.0) * 1e3 / max(deployment.parallelism.pipeline_parallel - 1, 1)
        is_last = stage["stage"] == deployment.parallelism.pipeline_parallel - 1
        found += [terms.get("all_reduce", 0.0) * 1e3 / all_reduces] * 2
        found += [0.0 if is_last else handed_over, forest.stage_times(**batch)[stage["stage"]]]
        expected += [ms["attention_all_reduce_time"], ms["mlp_all_reduce_time"]]
        expected += [ms["pipeline_parallel_communication_time"], stage["total_time_s"]]

    assert stages
    assert all(ms[name] == 0 for stage in stages for ms in [stage["ms"]] for name in ms.keys() - COMPARED)
    np.testing.assert_allclose(found, expected, rtol=TOLERANCE, atol=0)
    assert not forest.provenance()["extrapolated"] and not forest.warnings()


@pytest.mark.parametrize("case", CASES[:1])
def test_a_prediction_is_the_sum_of_its_stages(case):
    config, tables = opened(case)
    forest = Forest(parameters_of(config), deployment_of(config), reading=Reading(tables))

    for line in read(VIDUR / case / "batch_stages.jsonl").splitlines():
        batch = batch_of(json.loads(line))
        assert forest.predict(**batch) == pytest.approx(sum(forest.stage_times(**batch)), rel=1e-12)


# ---- training

def profiles_of(config):
    """Return key -> file of the profiles that a recorded run was trained on."""
    replica, asked = config["cluster_config"]["replica_config"], config["execution_time_predictor_config"]
    model = replica["model_name"].rpartition("/")[2]
    attention = asked["attention_input_file"].rpartition("/")[2]
    network = PROFILES / "network" / replica["network_device"]
    return {
        "compute_file": PROFILES / "compute" / replica["device"] / model / "mlp.csv.gz",
        "attention_file": VIDUR / "_profiles" / f"{attention}.gz",
        "all_reduce_file": network / "all_reduce.csv.gz", "send_recv_file": network / "send_recv.csv.gz"}


def training_of(config, tables):
    """Return the parameters with which a recorded run was trained, up to the ends of its tables."""
    asked = config["execution_time_predictor_config"]
    forest = asked["name"] == "random_forrest"
    grid = ("num_estimators", "max_depth", "min_samples_split") if forest else (
        "polynomial_degree", "polynomial_include_bias", "polynomial_interaction_only", "fit_intercept")
    return convert({key: str(path) for key, path in profiles_of(config).items()} | {
        "estimator": "random_forest" if forest else "linear_regression", "num_training_jobs": 1,
        "k_fold_cv_splits": asked["k_fold_cv_splits"],
        "profile_block_size": config["cluster_config"]["replica_scheduler_config"]["block_size"],
        "max_tokens": len(tables.tokens["add"]) - 1, "max_batch_size": len(tables.decode) - 1,
        "max_kv_tokens": (len(tables.prefill) - 1) * tables.kv_granularity,
        "max_chunk_tokens": tables.prefill.shape[1] - 1} | {name: asked[name] for name in grid}, Forest.Parameters)


@pytest.mark.ci
@pytest.mark.slow
@pytest.mark.parametrize("key", sorted(TRAINED))
def test_trained_tables_are_those_recorded(key):
    pytest.importorskip("sklearn", reason="needs scikit-learn")
    config = json.loads(read(VIDUR / TRAINED[key] / "config.json"))
    if missing := [path.name for path in profiles_of(config).values() if not path.exists()]:
        pytest.skip(f"profiles are not at hand: {', '.join(missing)}")
    recorded = recorded_tables(key, config["execution_time_predictor_config"]["kv_cache_prediction_granularity"])
    parameters, deployment = training_of(config, recorded), deployment_of(config)
    subject = subject_of(parameters, deployment)

    samples = read_samples(files_needed(parameters, subject, True), subject)

    found = train(samples, parameters).arrays()
    errors = mean_errors(found, recorded.arrays())
    if parameters.estimator == "linear_regression":
        assert max(errors) < EXACT
    else:
        other = train(samples, replace(parameters, training_seed=parameters.training_seed + 1)).arrays()
        own = {name: found[name] for name in recorded.arrays()}
        assert np.mean(errors) < DRAWS * np.mean(mean_errors(other, own))


def mean_errors(found, tables):
    """Return the mean relative error of each table that has entries; others are empty in both."""
    means = []
    for name, table in tables.items():
        assert found[name].shape == table.shape
        is_asked = table != 0           # a recorded file has no entry for no token, no sequence
        if is_asked.any():
            means.append(np.abs(found[name][is_asked] / table[is_asked] - 1).mean())
        else:
            assert not found[name].any()
    return means
