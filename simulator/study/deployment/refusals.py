"""Keys of an experiment's text that the simulator refuses, with its reasons."""
import re
import tempfile
from pathlib import Path

from simulator.assembly.assemble import prepare
from simulator.config.load import load_experiment
from simulator.errors import InputErrors, faults_of

POOL = re.compile(r"^pools(\.[\w-]+|\[\d+\])\.")
TABLES = ("model", "hardware", "topology", "engine", "latency", "kv_tiers", "kv_transfer", "serve")


def refusals_of(text: str) -> dict[str, str]:
    """Return {key: reason} of a text that does not load or build; "": the whole."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "experiment.toml"
        path.write_text(text, encoding="utf-8")
        try:
            experiment = load_experiment(str(path))
            with faults_of(str(path)):
                prepare(experiment)
        except InputErrors as errors:
            return dict(_split(fault.removeprefix(f"{path}: ")) for fault in errors.faults)
    return {}


def _split(fault: str) -> tuple[str, str]:
    key, _, why = fault.partition(": ")
    key = POOL.sub("", key)
    return (key, why) if key.partition(".")[0] in TABLES else ("", fault)
