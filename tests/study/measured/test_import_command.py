"""`simulator import` writes data sets that studies read, or says why not."""
import csv
import tomllib

import pytest

import simulator
from simulator import cli

HEADER = "request_id,planned_s,sent_s,ttft_s,e2el_s,input_tokens,output_tokens,status"
ROWS = f"{HEADER}\na,10,10.5,0.25,1.25,32,5,ok\nb,11,11.5,0.25,1.25,32,5,ok\nc,12,12.5,,,32,,timeout\n"
REQUESTS = """# t0_unix=1000.0
id,group,prefix_len,prompt_len,output_len,t_planned,t_send,ttft,e2e,n_chunks,n_tokens,finish
0,-1,0,40,3,0.5,0.75,0.25,1.0,3,3,length
"""
STEPS = "t_sched,n_reqs,n_prefill_reqs,prefill_tokens,decode_tokens,ctx_tokens,running,waiting,t_out\n"
PRINTED = ("Iteration(0): 1 context requests, 34 context tokens, 2 generation requests, 2 generation tokens, iteration "
           "elapsed time: 34.03 ms\n")


@pytest.fixture
def load(tmp_path, capsys):
    """Return what imports files, by their content, and tells status, stdout and stderr."""
    def _load(files, *options):
        for name, content in files.items():
            (tmp_path / name).write_text(content)
        status = cli.main(["import", *(str(tmp_path / name) for name in files), "--as", "measured",
                           "--out", str(tmp_path / "out"), *options])
        told = capsys.readouterr()
        return status, told.out, told.err
    return _load


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_what_was_imported_runs_as_a_trace(load, tmp_path):
    status, out, err = load({"mine.csv": ROWS})

    assert status == 0
    assert out == f"{tmp_path}/mine.csv: observed.csv: 3 requests in {tmp_path}/out: observed.csv, dataset.toml\n"
    assert "note: " in err and "times are shifted by -10.000000 s" in err
    assert [row["sent_s"] for row in rows_of(tmp_path / "out/observed.csv")] == ["0.5", "1.5", "2.5"]
    result = simulator.run(write_experiment(tmp_path))
    assert result.requests["arrival_ns"].tolist() == [0, 1_000_000_000]        # a trace begins at its first arrival
    assert result.summary["requests"]["completed"] == 2
    assert any("1 of 3 requests failed (1 timeout)" in note for note in result.summary["diagnosis"])


def write_experiment(folder):
    (folder / "run.toml").write_text("""
engine = {max_model_len = 100, num_gpu_blocks = 100}
latency = {backend = "linear"}
workload = {type = "trace", format = "observed", path = "out/observed.csv"}
""")
    return folder / "run.toml"


def test_the_data_set_says_where_it_comes_from_and_is_scored(load, tmp_path, capsys):
    assert load({"mine.csv": ROWS}, "--about", "machine=two cores", "--about", "engine=vLLM")[0] == 0
    says = tomllib.loads((tmp_path / "out/dataset.toml").read_text())

    assert (says["name"], says["machine"], says["engine"]) == ("mine", "two cores", "vLLM")
    assert (says["licence"], says["source"], says["form"]) == ("not known", "mine.csv, observed.csv", "observed")
    content = (tmp_path / "out/dataset.toml").read_text().replace("[experiment]\n", (
        '[experiment]\nmodel = {name = "llama-3.1-8b"}\nhardware = {name = "h100-sxm-80gb"}\n'))
    (tmp_path / "out/dataset.toml").write_text(content)
    assert cli.main(["score", str(tmp_path / "out"), "--backend", "roofline"]) == 0
    table = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("mine")]
    assert {(row[4], row[5]) for row in table} == {("TTFT", "2"), ("TPOT", "2"), ("E2E", "2"), ("makespan", "1")}
    (tmp_path / "out/observed.csv").write_text(ROWS)
    assert cli.main(["score", str(tmp_path / "out"), "--backend", "roofline"]) == 2
    assert "it is another file than the one described here" in capsys.readouterr().err


def test_files_of_one_measurement_are_one_data_set(load, tmp_path):
    status, out, err = load({
        "x.requests.csv": REQUESTS, "x.steps.csv": f"{STEPS}1000.8,1,1,24,0,40,1,0,1000.95\n",
        "x.info.txt": "warmup_end_unix 999.5\n", "x.iteration_log.txt": PRINTED})

    assert (status, len(out.splitlines())) == (0, 1)
    assert "1 request, 1 iteration in" in out
    assert "a second log, of 1 iteration, is not used" in err
    assert rows_of(tmp_path / "out/steps.csv")[0]["start_s"] == "0.3"           # 1000.8 - 1000.5


def test_iterations_that_vllm_printed_join_requests_of_the_same_stem(load, tmp_path):
    assert load({"x.requests.csv": REQUESTS, "x.iteration_log.txt": PRINTED})[0] == 0

    (step,) = rows_of(tmp_path / "out/steps.csv")
    assert (step["start_s"], step["duration_s"], step["num_sequences"]) == ("", "0.03403", "3")


def test_several_data_sets_have_a_folder_each(load, tmp_path):
    status, out, _ = load({"a.csv": ROWS, "b.csv": ROWS})

    assert (status, len(out.splitlines())) == (0, 2)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["a", "b"]


def test_all_faults_of_all_files_are_told_and_nothing_is_written(load, tmp_path):
    files = {"a.csv": ROWS.replace("0.25", "soon"), "b.json": "{}", "c.csv": ROWS}
    status, out, err = load(files, "--about", "colour=red")

    assert (status, out) == (2, "")
    assert "--about: expected KEY=TEXT, found 'colour=red'" in err
    assert "a.csv:2: ttft_s: " in err and "a.csv:3: ttft_s: " in err and "b.json: no format that is known" in err
    assert not (tmp_path / "out").exists()


def test_what_is_there_is_replaced_only_if_asked(load, tmp_path):
    steps = f"{STEPS}1000.8,1,1,24,0,40,1,0,1000.95\n"
    assert load({"x.requests.csv": REQUESTS, "x.steps.csv": steps})[0] == 0
    status, _, err = load({"mine.csv": ROWS})

    assert status == 2 and "observed.csv: exists; --overwrite replaces it" in err
    assert load({"mine.csv": ROWS}, "--overwrite")[0] == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["dataset.toml", "observed.csv"]   # no steps


def test_the_same_file_comes_out_to_the_byte(load, tmp_path):
    load({"mine.csv": ROWS})
    first = (tmp_path / "out/observed.csv").read_bytes()
    load({"mine.csv": first.decode()}, "--overwrite")

    assert (tmp_path / "out/observed.csv").read_bytes() == first
