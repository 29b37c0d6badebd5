"""Training workloads: read, added up by hand, printed and written; SimAI's own numbers are in parity/."""
import argparse
import csv
import json
import math

import pytest
import tomli

from simulator.errors import InputErrors
from simulator.registry import load
from simulator.study.busbw_yaml import read_busbw_yaml
from simulator.study.collective_command import add_arguments, run
from simulator.study.training_time import Overlaps, Timer
from simulator.study.training_workload import Phase, read_workload
from support.goldens import GOLDENS

HEADER = ("HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 4 pp: 3 vpp: 2 ga: 8 all_gpus: 48 "
          "checkpoints: 0 checkpoint_initiates: 0 pp_comm: 3000")
# name, dependency, (compute ns, collective, bytes) of forward, input gradient, weight gradient, update
LINES = ("embedding_layer -1 1000 ALLREDUCE 2000 500 NONE 0 250 NONE 0 100",
         "attention -1 4000 ALLGATHER 1000 3000 REDUCESCATTER 1000 2000 ALLREDUCE 4000 100",
         "moe -1 2000 ALLTOALL_EP 6000 2000 ALLTOALL_EP 6000 1000 REDUCESCATTER_DP_EP 8000 100")
YAML = ("any first line\nTP:\nallreduce,: 300\nallgather,: 280\nalltoall,: null\n"
        "EP:\n  alltoall,: 80\nDP:\nallreduce,: null\nPP:\nbusbw: 47.5")

needs_published = pytest.mark.skipif(not (GOLDENS.parent / "data/aicb").exists(), reason="no published workloads")


@pytest.fixture
def workload(tmp_path):
    path = tmp_path / "workload.txt"
    path.write_text("\n".join([HEADER, str(len(LINES)), *LINES]) + "\n")
    return path


def command(*arguments):
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return run(parser.parse_args([str(argument) for argument in arguments]))


def byte_a_nanosecond(group, kind, num_bytes):
    return num_bytes


def timer(**overlaps):
    return Timer(byte_a_nanosecond, lambda group, kind: 1.5, Overlaps(**overlaps))


# ---- reading

def test_workload_is_read_with_groups_and_degrees(workload):
    read = read_workload(workload)

    assert read[1:] == (2, 4, 3, 2, 8, 48, 3000)
    assert read.operations[2].name == "moe"
    assert read.operations[2].forward == Phase(2000, "all_to_all", "expert", 6000)
    assert read.operations[2].weight_gradient == Phase(1000, "reduce_scatter", "data_expert", 8000)
    assert read.operations[1].weight_gradient.group == "data"
    assert read.operations[0].input_gradient == Phase(500, "", "tensor", 0)


@pytest.mark.parametrize(("header", "degrees"), [
    ("HYBRID_TRANSFORMER_FWD_IN_BCKWD\tmodel_parallel_NPU_group: 8 checkpoints: 0", (8, 1, 1, 1, 1, 0, 0)),
    ("MICRO", (1, 1, 1, 1, 1, 0, 0)),
    ("X model_parallel_NPU_group: 2 ep: 16 pp: 0 all_gpus: 32 pp_comm 512", (2, 16, 1, 1, 1, 32, 512)),
])
def test_header_may_leave_things_out(tmp_path, header, degrees):
    path = tmp_path / "workload.txt"
    path.write_text(f"{header}\n1\n{LINES[0]}\n")

    assert read_workload(path)[1:] == degrees


@pytest.mark.parametrize(("text", "message"), [
    ("", r":2: expected the number of operations, found \"\""),
    (f"{HEADER}\n2\n{LINES[0]}\n", r":2: says 2 operations, found 1"),
    (f"{HEADER}\n0\n", r": holds no operation"),
    (f"{HEADER}\n1\na -1 1 NONE 0\n", r":3: expected 12 fields, found 5"),
    (f"{HEADER}\n1\n{LINES[0].replace('ALLREDUCE', 'ALLREDUSE')}\n",
     r':3: forward: no collective "ALLREDUSE"; did you mean ALLREDUCE\?'),
    (f"{HEADER}\n1\n{LINES[0].replace(' 500 ', ' -5 ')}\n", r':3: input_gradient: compute: expected .* found "-5"'),
    (f"{HEADER}\n1\n{LINES[0].replace(' 2000 ', ' nan ')}\n", r':3: forward: bytes: expected .* found "nan"'),
    (f"{HEADER.replace('ep: 4', 'ep: four')}\n1\n{LINES[0]}\n", r':1: ep: expected an integer >= 0, found "four"'),
])
def test_faults_of_a_workload_name_line_and_field(tmp_path, text, message):
    path = tmp_path / "workload.txt"
    path.write_text(text)

    with pytest.raises(InputErrors, match=message):
        read_workload(path)


def test_every_fault_is_told_at_once(tmp_path):
    path = tmp_path / "workload.txt"
    path.write_text(f"{HEADER}\n2\nshort\n{LINES[0].replace('ALLREDUCE', 'WHAT')}\n")

    with pytest.raises(InputErrors) as caught:
        read_workload(path)
    assert len(caught.value.faults) == 2


@needs_published
def test_published_workloads_are_read():
    paths = sorted((GOLDENS.parent / "data/aicb/aicb/simAI").rglob("*.txt"))

    cut_off = [path for path in paths if path.name.startswith("L65B")]      # says 839 operations and holds 33
    assert all(read_workload(path).operations for path in paths if path not in cut_off)
    with pytest.raises(InputErrors, match="says 839 operations, found 33"):
        read_workload(cut_off[0])


# ---- adding up, a byte a nanosecond

def test_iteration_is_computation_communication_bubble_and_messages(workload):
    took = timer(pipeline=0.0).time(read_workload(workload))

    assert took.compute_us == pytest.approx(1.75 + 9.0 + 5.0)
    assert took.exposed_us == pytest.approx({"tensor": 4.0, "expert": 12.0, "data": 4.0, "data_expert": 8.0})
    # (3 - 1) / (8 x 2) x (9 + 2 of attention, 5 + 12 of moe); the embedding and weight gradients stay out
    assert took.bubble_us == pytest.approx(2 / 16 * 28.0)
    assert took.pipeline_us == pytest.approx(2 * 2 * 8 * 3.0)
    assert took.total_us == pytest.approx(15.75 + 28.0 + 3.5 + 96.0)


def test_overlap_hides_by_group_and_leaves_the_bubble(workload):
    took = timer(tensor=0.5, expert=0.25, data=1.0).time(read_workload(workload))

    assert took.exposed_us == pytest.approx({"tensor": 2.0, "expert": 9.0, "data": 0.0, "data_expert": 0.0})
    assert took.bubble_us == pytest.approx(3.5)
    assert took.pipeline_us == 0.0      # hidden unless somebody says otherwise


def test_layer_reports_its_bandwidths(workload):
    layer = timer().time(read_workload(workload)).layers[1]

    assert layer.forward == pytest.approx((4.0, 1.0, 1.0, 1.0, 1.5))        # 1000 bytes in 1 us: 1 GB/s
    assert layer.weight_gradient.total_us == pytest.approx(4.0)


def test_one_stage_has_neither_bubble_nor_messages(workload):
    read = read_workload(workload)._replace(pipeline=1)

    took = timer(pipeline=0.0).time(read)

    assert took.bubble_us == took.pipeline_us == 0.0


def test_simai_reads_the_pipeline_ratio_as_bandwidth(workload):
    read = read_workload(workload)._replace(pipeline_bytes=0.5 * 2**30)
    theirs = Timer(byte_a_nanosecond, lambda group, kind: 1.0, Overlaps(pipeline=0.5), 2.0**30, is_simai=True)

    # 32 messages of 0.5 GiB at "0.5 GiB/s", half of it exposed
    assert theirs.time(read).pipeline_us == 16e6
    # 32 x 0.5 GiB at 3 GiB/s: 5,333,333 us in whole, half of it 2,666,666
    assert theirs.time(read, pipeline_gb_per_s=3.0).pipeline_us == 2_666_666.0
    # one stage has no neighbour, and SimAI charges it all the same
    assert theirs.time(read._replace(pipeline=1)).pipeline_us == 16e6


def test_simai_cuts_what_is_exposed_of_each_operation_to_whole_nanoseconds(workload):
    read = read_workload(workload)
    ours, theirs = (Timer(lambda *_: 333.0, lambda *_: 1.0, Overlaps(tensor=0.5), is_simai=is_simai).time(read)
                    for is_simai in (False, True))

    # three operations of the tensor group: 3 x 166.5 ns, 3 x 166 ns
    assert ours.exposed_us["tensor"] == pytest.approx(0.4995)
    assert theirs.exposed_us["tensor"] == pytest.approx(0.498)


def test_simai_multiplies_what_is_exposed_in_float32(workload):
    theirs = Timer(lambda *_: 100_000_001.0, lambda *_: 1.0, Overlaps(), is_simai=True).time(read_workload(workload))

    # a float32 holds 24 bits: 100,000,001 ns is 100,000,000, though nothing is hidden
    assert theirs.layers[0].forward.exposed_us == 100_000.0
    assert theirs.layers[0].forward.total_us == 100_000.001


def test_simai_enlarges_small_messages_of_the_forward_pass_alone(tmp_path):
    path = tmp_path / "workload.txt"
    path.write_text(f"{HEADER}\n1\nmoe -1 0 ALLREDUCE 4 0 ALLREDUCE 4 0 ALLREDUCE 4 100\n")
    layer = Timer(byte_a_nanosecond, lambda *_: 1.0, Overlaps(), is_simai=True).time(read_workload(path)).layers[0]

    assert (layer.forward.total_us, layer.input_gradient.total_us, layer.weight_gradient.total_us) == (
        4.096, 0.004, 0.004)


def test_simai_adds_an_input_gradient_up_in_the_name_of_its_forward_group(tmp_path):
    path = tmp_path / "workload.txt"
    path.write_text(f"{HEADER}\n1\nmoe -1 0 ALLREDUCE 5000 0 ALLTOALL_EP 6000 0 NONE 0 100\n")
    ours, theirs = (Timer(byte_a_nanosecond, lambda *_: 1.0, Overlaps(), is_simai=is_simai).time(read_workload(path))
                    for is_simai in (False, True))

    assert (ours.exposed_us["tensor"], ours.exposed_us["expert"]) == (5.0, 6.0)
    assert (theirs.exposed_us["tensor"], theirs.exposed_us["expert"]) == (11.0, 0.0)


# ---- the command

def test_command_prints_layers_and_totals(workload, capsys):
    assert command(workload, "--nvlink-gb-per-s", 360) == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:3] == ["layer", "forward", "us"]
    assert lines[2].split()[:2] == ["attention", "4.0"]
    assert lines[-1].split()[0] == "iteration"


def test_command_shortens_the_table_on_request(workload, capsys):
    command(workload, "--layers", 1)

    assert "... 2 more" in capsys.readouterr().out


def test_files_hold_what_is_printed(workload, tmp_path, capsys):
    command(workload, "--csv", tmp_path / "layers.csv", "--json", tmp_path / "whole.json")

    whole = json.loads((tmp_path / "whole.json").read_text())
    rows = list(csv.DictReader((tmp_path / "layers.csv").read_text().splitlines()))
    assert [row["name"] for row in rows] == [layer["name"] for layer in whole["layers"]]
    assert float(rows[1]["forward_exposed_us"]) == pytest.approx(whole["layers"][1]["forward"]["exposed_us"], abs=1e-3)
    parts = whole["compute_us"] + whole["bubble_us"] + whole["pipeline_us"] + sum(whole["exposed_us"].values())
    assert whole["total_us"] == pytest.approx(parts)
    assert f"{whole['total_us']:,.1f} us" in capsys.readouterr().out


def test_files_are_the_same_each_time(workload, tmp_path, capsys):
    for name in ("a", "b"):
        command(workload, "--json", tmp_path / name)

    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_options_go_above_the_file(workload, tmp_path, capsys):
    links = tmp_path / "links.toml"
    links.write_text('[latency.collective]\nbackend = "busbw"\ntensor_overlap = 1.0\nsmall_messages = false\n')

    command(workload, "--busbw", links, "--json", tmp_path / "hidden")
    command(workload, "--busbw", links, "--tensor-overlap", 0, "--json", tmp_path / "exposed")

    exposed = [json.loads((tmp_path / name).read_text())["exposed_us"]["tensor"] for name in ("hidden", "exposed")]
    assert exposed[0] == 0.0 < exposed[1]


@pytest.mark.parametrize(("arguments", "message"), [
    (["--tensor-overlap", 2], r"^command line: latency\.collective\.tensor_overlap: expected .* 0 to 1, found 2"),
    (["--gpu-type", "H10"], r'gpu_type: expected .*, found "H10"; did you mean H100'),
    (["--gpus", 4], r"tensor x pipeline parallelism needs 6 GPUs, found 4"),
    (["--busbw", "gone.toml"], r"gone\.toml: No such file"),
    (["--csv", "gone/layers.csv"], r"gone/layers\.csv: cannot be written"),
])
def test_wrong_options_are_named(workload, capsys, arguments, message):
    with pytest.raises(InputErrors, match=message):
        command(workload, *arguments)


def test_wrong_key_of_the_file_is_named(workload, tmp_path):
    path = tmp_path / "links.toml"
    path.write_text("[latency.collective]\ntensor_overlp = 1.0\n")

    with pytest.raises(InputErrors, match=r"links\.toml: latency\.collective\.tensor_overlp: unknown key"):
        command(workload, "--busbw", path, "--data-overlap", 0.5)


def test_file_of_another_model_is_refused(workload, tmp_path):
    path = tmp_path / "table.toml"
    path.write_text('[latency.collective]\nbackend = "table"\n')

    with pytest.raises(InputErrors, match=r'table\.toml: latency\.collective\.backend: expected "busbw", found "ta'):
        command(workload, "--busbw", path)


def test_nothing_to_do_is_said():
    with pytest.raises(InputErrors, match="expected a workload"):
        command()


# ---- busbw.yaml

def test_yaml_of_simai_is_read(tmp_path):
    path = tmp_path / "busbw.yaml"
    path.write_text(YAML)

    assert read_busbw_yaml(path) == {
        "tensor": {"all_reduce": 300, "all_gather": 280}, "expert": {"all_to_all": 80}, "pipeline_gb_per_s": 47.5}


def test_yaml_becomes_toml_that_the_command_and_experiments_read(tmp_path, workload, capsys):
    path, saved = tmp_path / "busbw.yaml", tmp_path / "busbw.toml"
    path.write_text(YAML)

    assert command("--busbw", path, "--save-busbw", saved) == 0

    table = tomli.loads(saved.read_text())["latency"]["collective"]
    assert table.pop("backend") == "busbw"
    assert table == read_busbw_yaml(path)
    for name, source in (("yaml", path), ("toml", saved)):
        command(workload, "--busbw", source, "--json", tmp_path / name)
    assert (tmp_path / "yaml").read_bytes() == (tmp_path / "toml").read_bytes()


@pytest.mark.parametrize(("text", "message"), [
    ("x\nTP:\nallreduce,: fast\n", r'busbw\.yaml:3: allreduce: expected GB/s > 0 or null, found "fast"'),
    ("x\nTP:\nallreduce,: -3\n", r"busbw\.yaml:3: allreduce: expected GB/s > 0"),
    ("x\nTP:\nallredu,: 3\n", r'busbw\.yaml:3: unknown name "allredu"; did you mean allreduce'),
    ("x\nSP:\n", r'busbw\.yaml:2: unknown name "SP"'),
    ("x\nallreduce,: 3\n", r"busbw\.yaml:2: expected a section"),
    ("x\n", r"busbw\.yaml: holds no bandwidth"),
])
def test_faults_of_the_yaml_name_their_line(tmp_path, text, message):
    path = tmp_path / "busbw.yaml"
    path.write_text(text)

    with pytest.raises(InputErrors, match=message):
        read_busbw_yaml(path)


# ---- conventions

def test_decimal_and_simai_differ_by_their_gigabytes(tmp_path, capsys):
    path = tmp_path / "workload.txt"
    path.write_text(
        "X model_parallel_NPU_group: 8 all_gpus: 8\n1\nlayer -1 0 ALLREDUCE 67108864 0 NONE 0 0 NONE 0 100\n")
    totals = []
    for convention in ("decimal", "simai"):
        command(path, "--gpu-type", "H100", "--convention", convention, "--json", tmp_path / convention)
        totals.append(json.loads((tmp_path / convention).read_text())["total_us"])

    assert totals[0] / totals[1] == pytest.approx(2**30 / 1e9, rel=1e-5)
    assert math.floor(totals[1]) == 294     # 64 MiB x 1.75 / (370.8 x 2^30 bytes/s) = 294.97 us


def test_registry_knows_the_model():
    assert load("collective", "busbw").Parameters().convention == "decimal"
