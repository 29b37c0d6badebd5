"""The export of an experiment made from a server's command line is resolved to the same values."""
import pytest

from simulator.config.load import load_experiment
from simulator.domain.server_defaults.cards import card_of
from simulator.domain.vllm_versions import VERSIONS
from simulator.errors import InputErrors
from simulator.server_line.sources.launches import Launch
from simulator.study.deployment.experiment_text import experiment_text
from simulator.study.deployment.from_server import Machine, served_by
from simulator.study.deployment.lowering import lower
from simulator.study.deployment.refusals import refusals_of
from support import engine_arguments
from support.goldens import GOLDENS

# Not in an experiment: the repositories of drafts and of quantised checkpoints, the environment, other checkpoints.
UNSAID = ("--speculative-config", "--hf-overrides", "nixl_ep")
LINES = [record for records in engine_arguments.lines().values() for record in records
         if "resolved" in record and engine_arguments.engine_of(record)[0] == "vllm"
         and engine_arguments.engine_of(record)[1] in VERSIONS and not record.get("env")
         and not any(part in word for word in record["argv"] for part in UNSAID)]

SHARES = 20             # of the lines, each a test


def exported(record, tmp_path):
    """Return the keys of a recorded line, and those of its export; None: no experiment that runs."""
    card = engine_arguments.CARDS[record["device"]]
    machine = Machine(card_of(card), record["gpus"])
    launch = Launch("vllm", tuple(record["argv"]), {}, record["version"])
    try:
        served = served_by([launch], machine)
    except InputErrors:             # a model without shapes for times
        return None
    text = experiment_text("round", card, served)
    if refusals_of(text):           # does not fit, or is not modelled
        return None
    path = tmp_path / "round.toml"
    path.write_text(text, encoding="utf-8")
    server = lower(load_experiment(str(path))).servers[0]
    again = served_by([launch._replace(argv=(server.model, *server.words()))], machine)
    return tuple({key: value for key, (value, _) in found[0].keyed.keys.items() if not key.startswith("model.dtype")}
                 for found in (served, again))


@pytest.mark.slow
@pytest.mark.skipif(not LINES, reason=f"no recorded command lines under {GOLDENS}")
@pytest.mark.parametrize("share", range(SHARES))
def test_the_export_resolves_to_the_same_values(share, tmp_path):
    lines = LINES[share::SHARES]
    found = {(record["version"], record["id"]): exported(record, tmp_path) for record in lines}
    pairs = {line: pair for line, pair in found.items() if pair is not None}

    assert len(pairs) > len(lines) // 4
    assert {number: pair for number, pair in pairs.items() if pair[0] != pair[1]} == {}
