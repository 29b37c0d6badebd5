"""The page for recorders: its example is a case that agrees, and its tables name each field that is compared."""
import json
import re
from pathlib import Path

import pytest

from support import engine, goldens
from support.log import REQUEST_FIELDS, STEP_FIELDS, first_difference, to_log
from support.pages import blocks_of
from support.scenario import load
from support.vllm_scope import GROUP_KEYS, KNOWN, OF_REQUESTS, REQUEST_KEYS, missing, plain

PAGE = (Path(__file__).resolve().parents[2] / "docs/howto/new_engine_version.md").read_text(encoding="utf-8")
NAMED = set(re.findall(r"`([a-z_]+)`", PAGE))


@pytest.fixture
def example(tmp_path):
    """Return the path of the page's example, written as a case of the newest version that is modelled."""
    scenario, log = (json.loads(block.text) for block in blocks_of(PAGE) if block.language == "json")
    assert log["vllm"] == "0.34.0"
    (tmp_path / "example.json").write_text(json.dumps(scenario))
    (tmp_path / "example.log.json").write_text(json.dumps(log | {"vllm": "0.33.0"}))
    return tmp_path / "example.json"


def difference(path, change=lambda log: None):
    description, log = plain(goldens.read_scenario(path)), goldens.read_log(path)
    assert missing(description) is None
    change(log)
    scenario = load(description, goldens.late_arrivals(log, description))
    return first_difference(log, to_log(engine.run(scenario), scenario.ids), is_cut=log["summary"]["cut"])


def test_the_example_agrees_with_the_engine(example):
    assert goldens.read_scenario(example)["options"]["vllm_version"] == "0.33"
    assert difference(example) is None


@pytest.mark.parametrize("field", ["t", "dur", "scheduled", "hits", "running", "free_blocks", "finished"])
def test_each_field_of_a_step_is_compared(example, field):
    wrong = {"t": 0.017, "dur": 0.018, "scheduled": [["b", 6], ["a", 1]], "hits": {"b": 4}, "running": ["b", "a"],
             "free_blocks": 5, "finished": ["a"]}
    found = difference(example, lambda log: log["steps"][1].update({field: wrong[field]}))

    assert found is not None and f", {field}: recorded" in found


def test_the_tables_name_each_option_key_and_field():
    names = {*KNOWN, *OF_REQUESTS, *REQUEST_KEYS, *GROUP_KEYS, *STEP_FIELDS, *REQUEST_FIELDS, "dcp"}

    assert names - NAMED == set()
