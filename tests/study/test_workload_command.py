"""What an experiment sends, in numbers and as a native trace."""
import json
from pathlib import Path

import pytest
import tomli
import tomli_w

import simulator
from simulator import cli
from simulator.config.load import load_experiment, resolved_toml
from simulator.study.shared_prefixes import shared_tokens
from simulator.study.workload_command import LEAD, text_of
from simulator.study.workload_facts import facts_of
from simulator.workload.load import load as load_workload
from support.every_key import read

CONFIGS = Path(__file__).parents[2] / "configs"
ENGINE = {"engine": {"num_gpu_blocks": 100, "max_model_len": 1000, "block_size": 16}, "latency": {"backend": "linear"}}
TRACE = ("arrived_at,num_prefill_tokens,num_decode_tokens,prompt,tenant,session,deadline_s\n"
         "0,40,5,sys:30/:10,x,u,9\n1,50,5,sys:40/:10,x,u,\n1,44,1,0.own:10/0.out:4/sys:30,y,v,\n10,60,7,,,,\n")
TOML = """
engine = {num_gpu_blocks = 100, max_model_len = 1000}
latency = {backend = "linear"}
[workload]
type = "synthetic"
num_requests = 50
arrival = {process = "poisson", rate_per_s = 5.0}
prompt_tokens = {distribution = "uniform", min = 5, max = 90}
output_tokens = {distribution = "uniform", min = 1, max = 9}
"""
LOOP = "\n[workload.load]\nmode = 'concurrency'\nconcurrency = 3\n"


def words(text):
    """Return a text without the breaks of its lines."""
    return " ".join(text.split())


@pytest.fixture
def facts(tmp_path):
    """Return the facts of a trace."""
    def facts(text=TRACE, **keys):
        (tmp_path / "trace.csv").write_text(text)
        experiment = read(ENGINE | {"workload": {"type": "trace", "path": str(tmp_path / "trace.csv"), **keys}})
        return facts_of(load_workload(experiment.workload, 0), 16)
    return facts


@pytest.fixture
def file(tmp_path):
    """Return the file of an experiment."""
    def file(text=TOML):
        (tmp_path / "a.toml").write_text(text)
        return str(tmp_path / "a.toml")
    return file


def test_requests_are_counted_over_time(facts):
    # three of four in the first and second second of ten, the last at the very end
    arrivals = facts()["arrivals"]

    assert arrivals["in_windows"] == [1, 2, 0, 0, 0, 0, 0, 0, 0, 1]
    assert (arrivals["count"], arrivals["of"], arrivals["span_s"]) == (4, "requests", 10.0)
    assert arrivals["rate_per_s"] == 0.3


def test_lengths_labels_and_deadlines_are_told(facts):
    told = facts()

    assert (told["prompt_tokens"]["total"], told["prompt_tokens"]["p50"]) == (194, 47.0)
    assert told["output_tokens"]["max"] == 7.0
    assert told["labels"] == {"tenant": {"x": 2, "y": 1, "none": 1}}
    assert (told["sessions"]["count"], told["sessions"]["requests"]["max"]) == (2, 2.0)
    assert told["deadlines"] == 1


def test_shared_prefixes_are_those_of_all_requests_before(facts, tmp_path):
    # the second shares 30 tokens of sys with the first, one block of 16; the third nothing: its first stream is new to
    # the beginning of a text
    told = facts()["shared_prefix"]

    assert (told["shared_tokens"], told["prompt_tokens"]) == (30, 194)
    assert told["shared_frac_in_blocks"] == 16 / 194


@pytest.mark.parametrize(("prompts", "shared"), [
    # of the output 7 - 1 tokens are in the cache; what follows the output is new
    (["", ":10", "0.own:10/0.out:7/:5", "0.own:10/0.out:7/1.own:2"], [0, 0, 16, 17]),
    # a part of a segment is shared as far as it goes, and nothing behind it
    (["a:10/b:5", "a:8/b:5", "a:12/b:5", "a:10/b:9", "b:3"], [0, 8, 10, 15, 0])])
def test_texts_are_compared_token_by_token(tmp_path, prompts, shared):
    lengths = [sum(int(piece.split(":")[1]) for piece in prompt.split("/")) if prompt else 10 for prompt in prompts]
    (tmp_path / "a.csv").write_text("arrived_at,num_prefill_tokens,num_decode_tokens,prompt\n" + "".join(
        f"{i},{length},7,{prompt}\n" for i, (length, prompt) in enumerate(zip(lengths, prompts, strict=True))))
    experiment = read(ENGINE | {"workload": {"type": "trace", "path": str(tmp_path / "a.csv")}})
    workload = load_workload(experiment.workload, 0)

    assert shared_tokens(workload).tolist() == shared


def test_a_large_cache_finds_what_is_shared(tmp_path):
    # all blocks that requests share with earlier ones, when each is served before the next comes
    (tmp_path / "a.toml").write_text(TOML.replace("num_gpu_blocks = 100", "num_gpu_blocks = 10_000").replace(
        "5.0", "0.1") + "system_prompts = {num_tokens = 100, num_prompts = 3}\n")
    result = simulator.run(tmp_path / "a.toml")
    workload = load_workload(simulator.config.load.load_experiment(tmp_path / "a.toml").workload, 0)

    assert result.requests["cached_tokens"].tolist() == (shared_tokens(workload) // 16 * 16).tolist()


def test_a_closed_loop_says_that_its_times_are_not_known(facts):
    told = facts(load={"mode": "concurrency", "concurrency": 2})

    assert told["arrivals"] is None
    assert "arrivals     not known: arrivals depend on how fast requests are served\n" in text_of("title", told)
    assert told["deadlines"] == 1


def test_of_clients_only_those_with_times_of_their_own_are_counted_over_time(file, tmp_path, capsys):
    lengths = {"prompt_tokens": {"distribution": "constant", "tokens": 9},
               "output_tokens": {"distribution": "constant", "tokens": 9}}
    clients = [{"id": "a", "arrival": {"process": "constant"}},
               {"id": "b", "num_requests": 7, "load": {"mode": "concurrency", "concurrency": 2}}]
    experiment = read(ENGINE | {"workload": {"type": "clients", "rate_per_s": 1.0, "num_requests": 11,
                                             "clients": [client | lengths for client in clients]}})
    told = facts_of(load_workload(experiment.workload, 0), 16)

    assert told["arrivals"]["in_windows"] == [1] * 9 + [2]
    assert (told["arrivals"]["count"], told["arrivals"]["others"]) == (11, 7)
    assert "7 others come as slots let them: arrivals depend on how fast requests are served" in words(
        text_of("title", told))

    (tmp_path / "b.toml").write_text(tomli_w.dumps(ENGINE | {"workload": {
        "type": "clients", "clients": [clients[1] | lengths]}}))
    assert cli.main(["workload", str(tmp_path / "b.toml"), "--out", str(tmp_path / "b.csv")]) == 0
    assert words(capsys.readouterr().out).endswith(
        "b.csv; arrivals depend on how fast requests are served, it has 0 for them; "
        "the loads of clients are not in it")


def test_the_command_prints_numbers(file, capsys):
    assert cli.main(["workload", file()]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["a, seed 0", "", "requests     50"]
    assert lines[3].startswith("arrivals     50 requests from 0.")
    assert any(line.startswith("prompt tokens ") for line in lines)


@pytest.mark.parametrize("name", ["clients", "agents", "multimodal", "cohorts"])
def test_all_that_is_told_fits_a_screen(name, capsys):
    assert cli.main(["workload", str(CONFIGS / f"{name}.toml")]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80 and any(line.startswith("output tokens") for line in lines)


def test_programs_read_the_same_numbers(file, capsys):
    assert cli.main(["workload", file(), "--json", "--set", "seed=3"]) == 0

    told = json.loads(capsys.readouterr().out)
    assert (told["name"], told["seed"], told["requests"]) == ("a", 3, 50)
    assert sum(told["arrivals"]["in_windows"]) == 50


def test_turns_that_the_engine_has_no_room_for_are_left_out(file, capsys):
    talk = TOML.split("[workload]")[0] + """[workload]
type = "sessions"
num_sessions = 2
arrival = {process = "constant", rate_per_s = 10.0}
sessions = {rounds = {distribution = "constant", value = 3}, new_tokens = {distribution = "constant", value = 50}, \
            output_tokens = {distribution = "constant", value = 3}, think_time_s = 0.005}
"""

    def num_requests(*options):
        assert cli.main(["workload", file(talk), "--json", *options]) == 0
        return json.loads(capsys.readouterr().out)["requests"]

    assert (num_requests(), num_requests("--set", "engine.max_model_len=120")) == (6, 4)


@pytest.mark.parametrize("load", ["", LOOP], ids=["open", "closed"])
def test_the_trace_is_served_as_the_experiment_is(file, tmp_path, capsys, load):
    experiment = file(TOML + load)
    assert cli.main(["workload", experiment, "--out", str(tmp_path / "a.csv")]) == 0
    replayed = "[workload]\ntype = 'trace'\npath = 'a.csv'\ntime_origin = 'trace'\n"
    (tmp_path / "b.toml").write_text(TOML.partition("[workload]")[0] + replayed + load)

    assert "50 requests in" in capsys.readouterr().out
    assert simulator.run(tmp_path / "b.toml").requests.tobytes() == simulator.run(experiment).requests.tobytes()


def test_a_file_that_exists_is_replaced_only_if_asked(file, tmp_path, capsys):
    out = tmp_path / "a.csv"
    out.write_text("mine")

    assert cli.main(["workload", file(), "--out", str(out)]) == 2
    assert capsys.readouterr().err == f"{out}: exists; --overwrite replaces it, --out chooses another file\n"
    assert out.read_text() == "mine"
    assert cli.main(["workload", file(), "--out", str(out), "--overwrite"]) == 0
    assert out.read_text().startswith("request_id,")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv", "a.toml"]


@pytest.mark.parametrize(("out", "message"), [
    ("", "a folder, expected a file"), ("no/such/a.csv", "cannot be written: No such file or directory")])
def test_a_place_where_no_file_can_lie_is_refused(file, tmp_path, capsys, out, message):
    assert cli.main(["workload", file(), "--out", str(tmp_path / out)]) == 2
    assert message in capsys.readouterr().err


def test_what_is_wrong_with_the_workload_is_told(file, capsys):
    assert cli.main(["workload", file(TOML.replace("arrival = {process", "arrivals = {process"))]) == 2
    assert "workload.arrivals: unknown key; did you mean arrival?" in capsys.readouterr().err


def test_a_loop_without_an_end_is_described_and_not_written(file, tmp_path, capsys):
    endless = file(TOML.replace("num_requests = 50", "duration_s = 2.0") + LOOP)

    assert cli.main(["workload", endless]) == 0
    assert "drawn; how many are sent depends on how fast they are served" in capsys.readouterr().out
    assert cli.main(["workload", endless, "--out", str(tmp_path / "a.csv")]) == 2
    assert "a closed loop that only a duration bounds" in capsys.readouterr().err
    assert not (tmp_path / "a.csv").exists()


@pytest.mark.parametrize(("load", "hint"), [
    ("", LEAD),
    (LOOP, "; arrivals depend on how fast requests are served, it has 0 for them; serve it with the same "
           "[workload.load]"),
    ("[workload.load]\nmax_in_flight = 3\n", f"; serve it with the same [workload.load]{LEAD}"),
    ("[workload.load]\nmode = 'user_rate'\nusers = 5\nrate_per_s = 5.0\n",
     '; the pace of the users is in it: serve it with mode = "timestamps"')])
def test_what_the_trace_does_not_hold_is_told(file, tmp_path, capsys, load, hint):
    assert cli.main(["workload", file(TOML + load), "--out", str(tmp_path / "a.csv")]) == 0

    assert words(capsys.readouterr().out).endswith(f" 50 requests in {tmp_path}/a.csv{hint}")


PRESETS = {
    "guidellm constant": {"preset": "guidellm", "profile": "constant", "rate_per_s": 200.0, "rampup_s": 0.1,
                          "max_concurrency": 3, "num_requests": 40, "warmup_phase": 0.1},
    "guidellm poisson": {"preset": "guidellm", "profile": "poisson", "rate_per_s": 50.0, "num_requests": 40},
    "guidellm concurrent": {"preset": "guidellm", "profile": "concurrent", "streams": 4, "rampup_s": 0.05,
                            "num_requests": 40},
    "inference_perf": {"preset": "inference_perf", "workers": 1, "worker_max_concurrency": 3, "interval_s": 0.1,
                       "stages": [{"rate_per_s": 90.0, "duration_s": 0.2}, {"rate_per_s": 40.0, "duration_s": 0.5}]},
    "aiperf": {"preset": "aiperf", "request_rate": 90.0, "num_requests": 40, "request_rate_ramp_duration_s": 0.3,
               "request_cancellation_rate": 30.0, "request_cancellation_delay_s": 0.02},
    "aiperf concurrency": {"preset": "aiperf", "concurrency": 4, "concurrency_ramp_duration_s": 0.1,
                           "num_requests": 40},
    "inferencex": {"preset": "inferencex", "isl": 80, "osl": 9, "concurrency": 3},
    "vllm_random": {"preset": "vllm_random", "input_len": 80, "output_len": 9, "num_requests": 40, "request_rate": 90.0,
                    "max_concurrency": 3, "num_warmups": 4},
}
OWN_LENGTHS = {"prompt_tokens": {"distribution": "uniform", "min": 5, "max": 90},
               "output_tokens": {"distribution": "uniform", "min": 1, "max": 30}}


@pytest.mark.parametrize("name", PRESETS)
def test_what_a_preset_sends_can_be_served_from_its_trace(name, tmp_path, capsys):
    keys = {"type": "synthetic"} | PRESETS[name] | ({} if name in ("vllm_random", "inferencex") else OWN_LENGTHS)
    given = ENGINE | {"name": "a", "seed": 3, "workload": keys}
    (tmp_path / "a.toml").write_text(tomli_w.dumps(given))
    trace = tmp_path / "t.csv"

    assert cli.main(["workload", str(tmp_path / "a.toml"), "--out", str(trace)]) == 0
    told = words(capsys.readouterr().out)
    result = simulator.run(tmp_path / "a.toml")
    filled = tomli.loads(resolved_toml(load_experiment(tmp_path / "a.toml")))["workload"]
    tables = {table: filled[table] for table in ("load", "measure", "warmup")}
    again = simulator.run(read(given | {"workload": {
        "type": "trace", "path": str(trace), "time_origin": "trace", **tables}}))

    for column in ("arrival_ns", "completed_ns", "prompt_tokens", "output_tokens", "status"):
        assert again.requests[column].tolist() == result.requests[column].tolist()
    has_load = "client_delay_s" in tables["load"]
    assert (f"`validate` prints what preset = \"{keys['preset']}\" has there" in told) == has_load
    assert ("whose 4 requests are not in it" in told) == (name == "vllm_random")
    assert (" warm-ups " in told) == (name in ("vllm_random", "inferencex"))


def test_warm_ups_are_counted_apart(file, capsys):
    warmed = file(TOML + "warmup = {stage = {rate_per_s = 9.0, num_requests = 7}}\n")

    assert cli.main(["workload", warmed, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)

    assert (told["requests"], told["warmups"]) == (57, 7)


def test_a_trace_has_private_prefixes_but_no_primers(file, tmp_path, capsys):
    talks = """
[workload]
type = "sessions"
num_sessions = 3
arrival = {process = "constant", rate_per_s = 5.0}
sessions.rounds = {distribution = "constant", value = 2}
sessions.new_tokens = {distribution = "constant", value = 9}
sessions.output_tokens = {distribution = "constant", value = 2}
load.private_prefix_tokens = 7
"""
    base = TOML[:TOML.index("[workload]")]
    assert cli.main(["workload", file(base + talks), "--out", str(tmp_path / "t.csv")]) == 0
    told = words(capsys.readouterr().out)
    assert "the same [workload.load] but private_prefix_tokens, which its prompts have" in told
    assert [line.split(",")[2] for line in (tmp_path / "t.csv").read_text().split()[1:]] == ["16", "27"] * 3

    warm = file(base + talks + 'warmup.primers = "first_turn"\n')
    assert cli.main(["workload", warm, "--out", str(tmp_path / "u.csv")]) == 2
    assert "workload.warmup.primers: a trace cannot say that they are over" in capsys.readouterr().err
