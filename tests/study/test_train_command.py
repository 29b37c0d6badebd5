"""`train`: the tables of an experiment, ahead of its runs."""
import argparse

import pytest

from simulator.assembly.site import Site
from simulator.errors import InputErrors
from simulator.study import train_command
from support.forest_profiles import write_profiles
from support.small_models import deploy

EXPERIMENT = """
[model]
name = "llama-2-7b"
[hardware]
name = "a100-sxm-80gb"
[latency]
backend = "forest"
compute_file = "mlp.csv"
attention_file = "attention.csv"
cache_directory = "cache"
num_estimators = [3]
max_depth = [8]
min_samples_split = [2]
[workload]
type = "synthetic"
num_requests = 1
arrival = {process = "constant", rate_per_s = 1.0}
prompt_tokens = {distribution = "constant", tokens = 8}
output_tokens = {distribution = "constant", tokens = 8}
"""


@pytest.fixture(autouse=True)
def small_model(monkeypatch):
    """Deploy a model with round numbers, in place of the one that the experiment names."""
    monkeypatch.setattr(Site, "deployment", deploy())


def options(folder, *arguments):
    """Parse a command line for the experiment in a folder, which is written there."""
    path = folder / "experiment.toml"
    path.write_text(EXPERIMENT)
    parser = argparse.ArgumentParser()
    train_command.add_arguments(parser)
    return parser.parse_args([str(path), "--quiet", *arguments])


def test_train_keeps_tables_where_the_experiment_looks_for_them(tmp_path, capsys):
    pytest.importorskip("sklearn", reason="needs scikit-learn")
    write_profiles(tmp_path)

    assert train_command.run(options(tmp_path)) == 0

    [path] = (tmp_path / "cache").iterdir()
    assert capsys.readouterr().out == f"tables in {path}\n"


def test_the_pools_that_need_it_are_trained(tmp_path, capsys):
    pytest.importorskip("sklearn", reason="needs scikit-learn")
    write_profiles(tmp_path)
    asked = options(tmp_path)
    pools = '[[pools]]\nname = "a"\nlatency.backend = "linear"\n[[pools]]\nname = "b"\n[[pools]]\nname = "c"\n'
    (tmp_path / "experiment.toml").write_text(EXPERIMENT + pools)

    assert train_command.run(asked) == 0

    [path] = (tmp_path / "cache").iterdir()
    assert capsys.readouterr().out == f"tables in {path}\n"


def test_other_backends_are_not_trained(tmp_path):
    asked = options(tmp_path, "--set", 'latency={backend = "linear"}')

    with pytest.raises(InputErrors, match=r'experiment\.toml: latency\.backend: "linear" is not trained'):
        train_command.run(asked)


def test_faults_of_profiles_are_told(tmp_path):
    with pytest.raises(InputErrors, match=r"mlp\.csv: cannot be read"):
        train_command.run(options(tmp_path))
