"""Results that point elsewhere are refused: reading them would read other files of this machine."""
import h5py
import numpy as np
import pytest

import simulator
from simulator.errors import InputErrors

EXPERIMENT = """
engine = {num_gpu_blocks = 100, max_model_len = 400}
latency = {backend = "linear"}
[workload]
type = "synthetic"
num_requests = 3
arrival = {process = "poisson", rate_per_s = 9.0}
prompt_tokens = {distribution = "constant", tokens = 9}
output_tokens = {distribution = "constant", tokens = 9}
"""


@pytest.fixture
def results(tmp_path):
    """Return a directory of results."""
    (tmp_path / "experiment.toml").write_text(EXPERIMENT)
    simulator.run(tmp_path / "experiment.toml", out=tmp_path / "results")
    return tmp_path / "results"


def linked(file, other):
    del file["requests"]
    file["requests"] = h5py.ExternalLink(str(other), "/requests")


def soft(file, other):
    file["more"] = h5py.SoftLink("/requests")


def outside(file, other):
    del file["requests"]
    file.create_dataset("requests", (4,), np.int8, external=[(str(other), 0, 4)])


def virtual(file, other):
    layout = h5py.VirtualLayout((4,), np.int8)
    layout[:] = h5py.VirtualSource(str(other), "x", (4,))
    file.create_virtual_dataset("more", layout)


@pytest.mark.parametrize(("change", "message"), [
    (linked, "/requests is a link, and no run writes any"), (soft, "/more is a link, and no run writes any"),
    (outside, "/requests lies in another file"), (virtual, "/more lies in another file")])
def test_data_that_lie_elsewhere_are_refused(results, tmp_path, change, message):
    (tmp_path / "secret").write_bytes(b"root")
    with h5py.File(results / "results.h5", "r+") as file:
        change(file, tmp_path / "secret")

    with pytest.raises(InputErrors, match=message):
        simulator.load_results(results)
