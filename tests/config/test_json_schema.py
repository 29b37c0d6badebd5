"""The schema takes what the loader takes, as far as a schema can tell."""
from functools import cache
from pathlib import Path

import pytest
import tomli

from simulator.config.json_schema import experiment_schema

jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is in the test extra")

CONFIGS = sorted(path for path in (Path(__file__).parents[2] / "configs").glob("*.toml")
                 if not path.stem.startswith("compare_"))      # no experiments, but questions about some


@cache
def validator():
    return jsonschema.Draft7Validator(experiment_schema())


def is_valid(text):
    return validator().is_valid(tomli.loads(text))


def test_schema_is_a_schema():
    jsonschema.Draft7Validator.check_schema(validator().schema)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda path: path.name)
def test_shipped_configs_are_valid(config):
    assert [error.message for error in validator().iter_errors(tomli.loads(config.read_text()))] == []


@pytest.mark.parametrize(("text", "accepted"), [
    ('kind = "sweep"\naxes = {engine.max_num_seqs = {from = 1, to = 4, steps = 2}}', True),
    ('kind = "capacity"\nslo = {"ttft_ms.p99" = {max = 5}, backlog = "any"}\nmin_seeds = 4', True),
    ('kind = "calibrate"\nmeasured = ["a.csv", {path = "b", held_out = true}]', True),
    ("statistics = {min_tail = 3}", True),
    ('kind = "sweep"\nmin_seeds = 4', False),
    ('kind = "swep"', False),
    ('kind = "tune"\nsearch = "optun"', False),
    ('kind = "capacity"\nslo = {backlog = "steady"}', False),
    ('kind = "sweep"\nstatistics = {min_tial = 3}', False)])
def test_study_is_told_as_its_kind_reads_it(text, accepted):
    assert is_valid(f'extends = "x"\n[study]\n{text}') == accepted


@pytest.mark.parametrize("text", [
    'workload = {type = "trace", path = "t.csv", format = "mooncake", block_size = 16}',
    'workload = {type = "my_lab:Mine", anything = 3}',
    'extends = "base.toml"\nworkload.max_requests = 3',
    'extends = "base.toml"\nhorizon_s = inf',
    'extends = "x"\nengine.speculative = {num_tokens = 2, acceptance = {distribution = [1, 2]}}',
    'extends = "x"\nengine = {scheduler = "vllm", max_num_seqs = 3}',
    'extends = "x"\nmodel.name = "my/model.toml"',
    'extends = "x"\ncluster.routing.scorers = [{name = "prefix-affinity", weight = 3.0}]',
    'extends = "x"\nlatency = {backend = "linear", base_us = 3, collective = {backend = "busbw"}}',
])
def test_valid_table_is_accepted(text):
    assert is_valid(text)


@pytest.mark.parametrize("text", [
    "seed = 3",
    'extends = "x"\nnam = "x"',
    'extends = "x"\nengine.max_num_seq = 3',
    'extends = "x"\nengine = {scheduler = "vllm", max_num_seq = 3}',
    'extends = "x"\nengine.max_num_seqs = 0',
    'extends = "x"\nengine.policy = "lifo"',
    'extends = "x"\nengine.scheduler = "vlm"',
    'extends = "x"\nlatency = {backend = "roofline", base_us = 3}',
    'extends = "x"\nlatency.host.iteration = 3',
    'extends = "x"\nmodel.name = "lama-3.1-8b"',
    'extends = "x"\nworkload = {type = "synthetic", format = "csv"}',
    'extends = "x"\nworkload.arrival = {process = "poisson", cv = 3}',
    'extends = "x"\nworkload = {type = "trace", path = "t.csv", format = "csv", block_size = 16}',
    'extends = "x"\nengine.speculative.acceptance = [-1]',
    'extends = "x"\ncluster.routing.scorers = [{name = "prefix-affinity", weight = 0}]',
    'extends = "x"\nlatency.collective = {backend = "busbws"}',
])
def test_wrong_table_is_refused(text):
    assert not is_valid(text)
