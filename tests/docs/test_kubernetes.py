"""The manifests of docs/howto/kubernetes.md."""
import argparse
import re
from pathlib import Path

import pytest

from simulator.config.load import load_experiment
from simulator.live import refusals
from simulator.study import serve_command

yaml = pytest.importorskip("yaml")
PAGE = Path(__file__).parents[2] / "docs/howto/kubernetes.md"


def test_the_manifests_start_a_replica_that_serves(tmp_path):
    documents = [each for block in re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
                 for each in yaml.safe_load_all(block)]
    made = {each["kind"]: each for each in documents}
    assert len(made) == len(documents) == 6
    (tmp_path / "replica.toml").write_text(made["ConfigMap"]["data"]["replica.toml"])
    experiment = load_experiment(tmp_path / "replica.toml")
    refusals.check(experiment)

    pod = made["Deployment"]["spec"]["template"]
    command, file, *options = pod["spec"]["containers"][0]["args"]
    parser = argparse.ArgumentParser()
    serve_command.add_arguments(parser)
    parsed = parser.parse_args([file, *options])
    assert (command, file) == ("serve", "/etc/simulator/replica.toml")
    ports = {port["name"]: port["containerPort"] for port in pod["spec"]["containers"][0]["ports"]}
    assert (parsed.port, parsed.host, parsed.allow_remote) == (ports["http"], "0.0.0.0", True)
    assert experiment.serve.kv_events.endpoint.endswith(f":{ports['kv-events']}")
    assert made["Service"]["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    for kind in ("HorizontalPodAutoscaler", "ScaledObject"):
        assert made[kind]["spec"]["scaleTargetRef"]["name"] == made["Deployment"]["metadata"]["name"]
