"""A program of the user's is asked once for each size; a stand-in shows what it is asked and how it may fail."""
import stat
import time

import pytest

from simulator.collective.external.model import External, workload_of
from simulator.collective.groups import Group
from simulator.domain.facts import load_node
from simulator.errors import InputErrors
from simulator.study.training_workload import read_workload
from support.small_models import deploy

HEADER = "layer_name,run,fwd compute,wg compute,ig compute,fwd exposed comm,wg exposed comm,ig exposed comm"
# Takes 1 us for each 1000 bytes of the collective, and counts its runs.
HONEST = f"""
echo run >> "$(dirname "$0")/runs"
printf '%s\\n' "$*" "$AS_SEND_LAT $AS_NVLS_ENABLE" > "$(dirname "$0")/asked"
cp workload.txt "$(dirname "$0")/workload.txt"
size=$(awk 'NR == 3 {{ print $5 + $11 }}' workload.txt)
printf '%s\\n' "File name, Expose" "summary" "{HEADER}" \\
    "collective,run,0,0,0,$((size / 1000)),$((size / 2000)),0" > results/run-EndToEnd.csv
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "program").mkdir()
    return tmp_path / "program"


def program(folder, script=HONEST):
    binary = folder / "simai.sh"
    binary.write_text("#!/bin/sh\n" + script)
    binary.chmod(binary.stat().st_mode | stat.S_IXUSR)
    return binary


def external(folder, binary, ways=None, **parameters):
    return External(External.Parameters(binary=str(binary), cache=str(folder / "cache"), **parameters),
                    deploy(node=load_node("dgx-h100"), **(ways or {"tensor_parallel": 8})))


def runs(folder):
    path = folder / "runs"
    return path.read_text().count("run") if path.exists() else 0


def in_us(model, num_bytes, group="tensor", kind="all_reduce"):
    return model.predict(group, kind, num_bytes) * 1e6


# ---- what is asked, what is answered

def test_time_is_what_the_program_says(folder):
    model = external(folder, program(folder))

    assert in_us(model, 64000) == pytest.approx(64.0)
    assert (folder / "asked").read_text().splitlines()[0] == "-w workload.txt -g 8 -g_p_s 8 -r run-"


def test_simulation_gets_topology_config_and_environment(folder):
    for name in ("topology", "SimAI.conf"):
        (folder / name).write_text(name)
    model = external(folder, program(folder), program="simulation", topology=str(folder / "topology"),
                     config=str(folder / "SimAI.conf"), nvls=False, arguments=["--verbose"])

    assert in_us(model, 64000) == pytest.approx(64.0)
    arguments, environment = (folder / "asked").read_text().splitlines()
    assert arguments == f"-t 16 -w workload.txt -n {folder}/topology -c {folder}/SimAI.conf --verbose"
    assert environment == "6 0"


@pytest.mark.parametrize(("name", "group", "kind", "told"), [
    ("tensor", Group(8, 1), "all_reduce", (8, 1, 8, "tensor")),
    ("expert", Group(16, 1), "all_to_all", (16, 1, 16, "tensor")),     # side by side: SimAI's tensor group
    ("expert", Group(8, 2), "all_to_all", (2, 8, 16, "expert")),
    ("data", Group(4, 8), "all_reduce", (8, 1, 32, "data")),
])
def test_workload_lays_the_group_out_as_it_is(tmp_path, name, group, kind, told):
    text, num_gpus, is_weight_gradient = workload_of(group, name, kind, 1e6)
    (tmp_path / "workload.txt").write_text(text)

    workload = read_workload(tmp_path / "workload.txt")

    operation = workload.operations[0]
    phase = operation.weight_gradient if is_weight_gradient else operation.forward
    assert (workload.tensor, workload.expert, num_gpus, phase.group) == told
    assert (phase.kind, phase.num_bytes, workload.num_gpus) == (kind, 1e6, num_gpus)


def test_data_group_is_read_from_the_column_of_weight_gradients(folder):
    model = external(folder, program(folder), ways={"tensor_parallel": 8, "data_parallel": 2})

    assert in_us(model, 64000, "data") == pytest.approx(32.0)      # the stand-in halves that column


def test_group_of_one_asks_nobody(folder):
    assert in_us(external(folder, program(folder)), 64000, "data") == 0.0
    assert runs(folder) == 0


def test_stages_need_a_bandwidth(folder):
    ways = {"tensor_parallel": 2, "pipeline_parallel": 2}

    with pytest.raises(InputErrors, match=r"latency\.collective\.send_recv_gb_per_s: missing"):
        external(folder, program(folder), ways)
    model = external(folder, program(folder), ways, send_recv_gb_per_s=50.0)
    assert in_us(model, 5e6, "pipeline", "send_recv") == pytest.approx(100.0)
    assert runs(folder) == 0


def test_checkout_is_in_reach_of_the_program(folder, tmp_path):
    inputs = tmp_path / "SimAI/astra-sim-alibabacloud/inputs/ratio"
    inputs.mkdir(parents=True)
    (inputs / "nic_ratio.csv").write_text("7")
    script = HONEST.replace("size=", "read factor < astra-sim-alibabacloud/inputs/ratio/nic_ratio.csv || true\nsize=") \
        .replace("size / 1000", "factor * size / 1000")
    model = external(folder, program(folder, script), checkout=str(tmp_path / "SimAI"))

    assert in_us(model, 64000) == pytest.approx(7 * 64.0)


# ---- the cache knows all that a result depends on

def test_each_size_is_run_once_also_across_models(folder):
    binary = program(folder)
    first = external(folder, binary)

    assert in_us(first, 64000) == in_us(first, 64000) == in_us(external(folder, binary), 64000)
    assert runs(folder) == 1
    assert first.provenance() == {"predictions": 2, "runs": 1, "cached": 0}


def change_nothing(folder, tmp_path):
    return {}


def change_size(folder, tmp_path):
    return {"num_bytes": 65000}


def change_ranks(folder, tmp_path):
    return {"ways": {"tensor_parallel": 4}}


def change_binary(folder, tmp_path):
    program(folder, HONEST + "# newer\n")
    return {}


def change_topology(folder, tmp_path):
    (folder / "topology").write_text("other")
    return {}


def change_config(folder, tmp_path):
    (folder / "config").write_text("other")
    return {}


def change_latency(folder, tmp_path):
    return {"send_latency_us": 7.0}


def change_arguments(folder, tmp_path):
    return {"arguments": ["-nv", "300"]}


def change_checkout(folder, tmp_path):
    (tmp_path / "SimAI/astra-sim-alibabacloud/inputs/ratio.csv").write_text("other")
    return {}


@pytest.mark.parametrize(("change", "num_runs"), [
    (change_nothing, 1), (change_size, 2), (change_ranks, 2), (change_binary, 2), (change_topology, 2),
    (change_config, 2), (change_latency, 2), (change_arguments, 2), (change_checkout, 2),
])
def test_whatever_changes_the_result_runs_the_program_again(folder, tmp_path, change, num_runs):
    (tmp_path / "SimAI/astra-sim-alibabacloud/inputs").mkdir(parents=True)
    for name in ("topology", "config"):
        (folder / name).write_text(name)
    given = {"program": "simulation", "topology": str(folder / "topology"), "config": str(folder / "config"),
             "checkout": str(tmp_path / "SimAI"), "num_bytes": 64000}
    binary = program(folder)
    first_bytes = given.pop("num_bytes")
    in_us(external(folder, binary, **given), first_bytes)

    changed = given | change(folder, tmp_path)
    num_bytes = changed.pop("num_bytes", first_bytes)
    in_us(external(folder, binary, **changed), num_bytes)

    assert runs(folder) == num_runs


@pytest.mark.parametrize("damage", ["{", "[]", '{"us": "fast"}', '{"us": -1}', '{"us": NaN}', "\x00"])
def test_damaged_cache_entry_is_made_again(folder, damage):
    binary = program(folder)
    in_us(external(folder, binary), 64000)
    for entry in (folder / "cache").iterdir():
        entry.write_text(damage)

    assert in_us(external(folder, binary), 64000) == pytest.approx(64.0)
    assert runs(folder) == 2


def test_cache_that_cannot_be_written_costs_only_time(folder):
    (folder / "cache").write_text("a file where the folder should be")

    assert in_us(external(folder, program(folder)), 64000) == pytest.approx(64.0)


# ---- failures

@pytest.mark.parametrize(("script", "message"), [
    ("echo no such topology >&2; exit 3", "exit status 3: no such topology"),
    ("kill -KILL $$", "died of signal 9"),
    ("echo hello", r"wrote no \*EndToEnd\*\.csv: hello"),
    ("true", "it printed nothing"),
    ("echo total nonsense > results/EndToEnd.csv", "expected a line of the layer collective, found total nonsense"),
    ("echo collective,run,0,0,0,-1,0 > EndToEnd.csv", 'column 6: expected microseconds >= 0, found "-1"'),
    ("echo collective,run,0,0,0,-nan,0 > EndToEnd.csv", 'found "-nan"'),
    ("echo collective,run,0,0,0,18446744073709551,0 > EndToEnd.csv", "expected microseconds >= 0"),
    ("echo collective,run,0 > EndToEnd.csv", "expected a line of the layer"),
])
def test_failure_says_what_was_run_and_what_came(folder, script, message):
    model = external(folder, program(folder, script + "\n"))

    with pytest.raises(InputErrors, match=message) as caught:
        in_us(model, 64000)
    assert "simai.sh -w workload.txt -g 8" in str(caught.value)


def test_failure_is_not_remembered(folder):
    model = external(folder, program(folder, "exit 3\n"))

    for _ in range(2):
        with pytest.raises(InputErrors, match="exit status 3"):
            in_us(model, 64000)
    assert not (folder / "cache").exists()


def test_program_and_its_children_end_at_the_time_limit(folder):
    model = external(folder, program(folder, "sleep 60 &\nsleep 60\n"), time_limit_s=0.2)
    began_s = time.monotonic()

    with pytest.raises(InputErrors, match=r"did not end within time_limit_s = 0\.2"):
        in_us(model, 64000)
    assert time.monotonic() - began_s < 20.0


def test_children_left_behind_hold_nothing_up(folder):
    model = external(folder, program(folder, "sleep 60 &\n" + HONEST), time_limit_s=30.0)
    began_s = time.monotonic()

    assert in_us(model, 64000) == pytest.approx(64.0)
    assert time.monotonic() - began_s < 20.0


def test_every_missing_file_is_named(folder):
    with pytest.raises(InputErrors) as caught:
        external(folder, folder / "gone", program="simulation", topology=str(folder / "none"),
                 checkout=str(folder))

    assert list(caught.value.faults) == [
        f"latency.collective.binary: no program {folder}/gone",
        f"latency.collective.topology: no file {folder}/none",
        "latency.collective.config: missing; expected the name of a file",
        f"latency.collective.checkout: {folder} has no folder astra-sim-alibabacloud",
    ]


def test_program_must_be_executable(folder):
    binary = program(folder)
    binary.chmod(0o600)

    with pytest.raises(InputErrors, match=r"latency\.collective\.binary: .*simai\.sh is not executable"):
        external(folder, binary)


def test_file_that_is_no_program_is_named(folder):
    binary = program(folder)
    binary.write_bytes(b"\x7fELF nonsense")

    with pytest.raises(InputErrors, match=r"simai\.sh .*: cannot be started: |exit status"):
        in_us(external(folder, binary), 64000)
