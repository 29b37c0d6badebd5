"""Command lines of public guides give experiments that run."""
import json
from pathlib import Path

import pytest

import simulator
from simulator import cli

FOLDER = Path(__file__).parent / "guides"
GUIDES = json.loads((FOLDER / "lines.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("guide", GUIDES, ids=[guide["guide"] for guide in GUIDES])
def test_a_guides_server_gives_an_experiment_that_runs(guide, tmp_path, capsys):
    source = str(FOLDER / guide["file"]) if "file" in guide else guide["line"]
    experiment = tmp_path / "experiment.toml"

    status = cli.main(["from", source, "--gpu", guide["gpu"], "--out", str(experiment)])

    lists = capsys.readouterr().err
    assert status == (3 if guide.get("unmodelled") else 0), lists
    run = simulator.run(str(experiment), {"workload.num_requests": 8})
    assert run.summary["requests"]["completed"] == 8
