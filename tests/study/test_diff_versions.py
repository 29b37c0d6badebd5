"""One experiment under two versions of vLLM: settings, schedule, rules and summary."""
import json
import threading

import pytest

from simulator import cli
from simulator.config.load import experiment_layers
from simulator.domain.vllm_versions import VERSIONS, VllmBehaviour, behaving, behaviour_of, description_of, differing
from simulator.study.first_difference import Difference
from simulator.study.responsible_rules import Search
from simulator.study.two_versions import experiment_of

# Four adapters in turn, one of them in a batch: whose adapter counts decides.
ADAPTERS = """
[engine]
max_num_seqs = 8
max_num_batched_tokens = 64
max_model_len = 400
num_gpu_blocks = 99
lora = {max_loras = 1}
[latency]
backend = "linear"
base_us = 5000.0
per_prefill_token_us = 20.0
[workload]
type = "synthetic"
num_requests = 40
arrival = {process = "poisson", rate_per_s = 60.0}
prompt_tokens = {distribution = "uniform", min = 20, max = 200}
output_tokens = {distribution = "uniform", min = 1, max = 8}
adapters.names = ["a", "b", "c", "d"]
"""
PLAIN = ADAPTERS.replace("lora = {max_loras = 1}\n", "").partition("adapters.names")[0]
SPECULATIVE = ("speculative = {num_tokens = 3, num_lookahead_tokens = 0, "
               "acceptance = {distribution = [0.4, 0.3, 0.2, 0.1]}}")


@pytest.fixture
def diff(tmp_path, capsys, monkeypatch):
    """Return a function that compares a text under two versions: (status, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)

    def diff(text, *options, old="0.32", new="0.33"):
        (tmp_path / "a.toml").write_text(text)
        status = cli.main(["diff-versions", "a.toml", old, new, *options])
        return status, *capsys.readouterr()
    return diff


def answer(diff, text, *options, **versions):
    status, out, err = diff(text, "--json", *options, **versions)
    assert status == 0, err
    return json.loads(out)


def test_equal_runs_are_one_line(diff):
    status, out, _ = diff(PLAIN, "--quiet")

    assert status == 0
    assert out.splitlines()[0].startswith("vLLM 0.32 and 0.33 give the same run: 40 requests, ")
    assert len(out.splitlines()) == 1


def test_the_rule_behind_a_difference_is_found_and_explains_all_of_it(diff):
    found = answer(diff, ADAPTERS)

    cause, = found["causes"]["found"]
    assert cause["rules"] == ["counts_idle_adapters"] and not cause["together"] and found["causes"]["is_complete"]
    assert found["rules"]["counts_idle_adapters"] == {
        "text": description_of("counts_idle_adapters"), "old": False, "new": True}
    first, = found["schedule"]["replicas"]
    assert cause["difference"]["row"] == first["row"]
    assert first["time_ns"] == min(first["old"]["start_ns"], first["new"]["start_ns"])
    assert first["old"] != first["new"]
    assert 0 < found["schedule"]["requests"]["different"] <= 40
    ttft = found["summary"]["ttft_ms.mean"]
    assert ttft["change_percent"] == pytest.approx(100 * (ttft["new"] / ttft["old"] - 1))


def test_the_other_way_round_the_same_rule_is_found(diff):
    found = answer(diff, ADAPTERS, old="0.33", new="0.32")

    assert [each["rules"] for each in found["causes"]["found"]] == [["counts_idle_adapters"]]


def test_the_screen_is_80_columns_wide_and_tells_each_part(diff):
    _, out, _ = diff(ADAPTERS)

    assert max(map(len, out.splitlines())) <= 80
    for text in ("iterations and", "requests differ", "replica 0, iteration", "counts_idle_adapters, false -> true",
                 "With this set back, 0.33 gives the run of 0.32", "TTFT mean, ms", "change, %"):
        assert text in out


def test_a_setting_has_the_rule_that_resolves_it(diff):
    found = answer(diff, PLAIN.replace("num_gpu_blocks = 99", f"num_gpu_blocks = 99\n{SPECULATIVE}"))

    setting, = found["settings"]
    assert setting == {"key": "engine.async_scheduling", "old": False, "new": True, "rules": ["takes_async_n_grams"]}
    assert found["causes"]["found"][0]["rules"] == ["takes_async_n_grams"]


def test_a_version_that_refuses_the_experiment_is_told_with_the_reason(diff):
    text = PLAIN.replace("num_gpu_blocks = 99", "num_gpu_blocks = 99\nprefill_schedule_interval = 2")
    status, out, _ = diff(text)

    assert status == 0
    assert out.startswith("vLLM 0.32 refuses this experiment:\n  a.toml: engine.prefill_schedule_interval: ")
    assert answer(diff, text)["schedule"] is None


def test_faults_of_both_versions_are_faults_of_the_file(diff):
    status, out, err = diff(PLAIN.replace("max_num_seqs = 8", "max_num_seqs = 0"))

    assert (status, out) == (2, "")
    assert len(err.splitlines()) == 1 and "engine.max_num_seqs" in err


def test_another_engine_is_refused(diff):
    status, _, err = diff(PLAIN.replace("[engine]", '[engine]\nscheduler = "sglang"').replace(
        "max_num_batched_tokens = 64\n", ""))

    assert status == 2
    assert "a.toml: engine.scheduler: expected vllm, found sglang" in err


def test_pools_that_run_vllm_get_the_version_and_others_none(tmp_path):
    (tmp_path / "a.toml").write_text(PLAIN.replace("max_num_batched_tokens = 64\n", "") + """
[[pools]]
name = "one"
[[pools]]
name = "two"
serves = "b"
engine = {scheduler = "sglang"}
""")
    one, two = experiment_of(experiment_layers(tmp_path / "a.toml"), "0.10").pools

    assert one.engine.parameters.vllm_version == "0.10"
    assert not hasattr(two.engine.parameters, "vllm_version")


def test_routers_of_vllm_get_the_version(tmp_path):
    (tmp_path / "a.toml").write_text(PLAIN + '[cluster]\nrouting = {policy = "vllm_dp"}\n')
    experiment = experiment_of(experiment_layers(tmp_path / "a.toml"), "0.10")

    assert experiment.cluster.routing.parameters.vllm_version == "0.10"


@pytest.mark.parametrize(("versions", "message"), [
    (("0.31", "0.33"), "vLLM 0.31: expected 0.10, 0.32, 0.33"), (("0.32", "0.32.0"), "expected two versions")])
def test_versions_are_two_that_are_modelled(diff, versions, message):
    status, _, err = diff(PLAIN, old=versions[0], new=versions[1])

    assert status == 2
    assert message in err


def test_the_first_requests_are_those_of_a_shorter_experiment(diff):
    some, fewer = (answer(diff, ADAPTERS, *options)
                   for options in (("--requests", "25"), ("--set", "workload.num_requests=25")))

    assert some["summary"] == fewer["summary"] and some["schedule"] == fewer["schedule"]
    assert some["schedule"]["requests"]["all"] == 25


def test_requests_that_wait_for_answers_are_bounded_by_their_key(diff):
    closed = PLAIN.replace('arrival = {process = "poisson", rate_per_s = 60.0}\n',
                           'load = {mode = "concurrency", concurrency = 4}\n')
    assert answer(diff, closed, "--requests", "10", old="0.10")["schedule"]["requests"]["all"] == 10


def test_a_search_that_reaches_its_limit_says_so(diff):
    found = answer(diff, ADAPTERS, "--runs", "2")
    _, out, _ = diff(ADAPTERS, "--runs", "2")

    assert found["causes"] == {"runs": 2, "is_complete": False, "found": []}
    assert "The search ended after 2 runs" in out


def test_no_requests_are_no_comparison(diff):
    with pytest.raises(SystemExit):
        diff(PLAIN, "--requests", "0")


def test_without_a_search_there_are_no_causes(diff):
    assert answer(diff, ADAPTERS, "--runs", "0")["causes"] is None


def test_keys_without_a_flag_are_named(diff):
    text = PLAIN.replace("num_gpu_blocks = 99", "num_gpu_blocks = 99\nwatermark = 0.1")
    assert answer(diff, text, old="0.10")["without_flag"] == {"0.10": ["engine.watermark"], "0.33": []}


# ---- the search, on causes that are made up: fields -> the first difference

class MadeUp(Search):
    """A search whose runs are told by a function of the rules set back."""

    def __init__(self, fields, first):
        self._fields, self._first, self._runs, self._most = fields, first, 0, 99

    def causes(self):
        """Return (rules, together) of each cause."""
        found, back = [], ()
        while (difference := self._first(back)) is not None:
            cause = self._cause(difference, back)
            found.append((cause.rules, cause.together))
            if not cause.rules:
                break
            back += cause.rules if cause.together else cause.rules[:1]
        return found

    def _difference(self, back, until_ns=None):
        return self._first(back)


def at(time_ns):
    return Difference(time_ns, False, 0, 0, time_ns)


@pytest.mark.parametrize(("first", "causes"), [
    (lambda back: None if {"b", "c"} <= set(back) else at(5), [(("b", "c"), True)]),        # only together
    (lambda back: None if {"b", "c"} & set(back) else at(5), [(("b", "c"), False)]),        # each alone
    (lambda back: at(5) if "a" not in back else at(7) if "c" not in back else None,         # one after the other
     [(("a",), False), (("c",), False)]),
    (lambda back: at(5), [((), False)])])                                                   # facts: none does
def test_rules_act_alone_together_or_one_after_the_other(first, causes):
    assert MadeUp(("a", "b", "c"), first).causes() == causes


# ---- the table of versions

def test_a_version_behaves_otherwise_in_a_block_of_one_thread_alone():
    seen = []
    with behaving("0.33", hashes_ahead=False):
        assert behaviour_of("0.33") == VERSIONS["0.33"]._replace(hashes_ahead=False)
        assert behaviour_of("0.32") is VERSIONS["0.32"]
        thread = threading.Thread(target=lambda: seen.append(behaviour_of("0.33")))
        thread.start()
        thread.join()
    assert seen == [VERSIONS["0.33"]] == [behaviour_of("0.33")]


def test_a_fault_inside_the_block_leaves_the_version_as_it_was():
    with pytest.raises(ZeroDivisionError), behaving("0.33", hashes_ahead=False):
        1 / 0                                                               # noqa: B018 -- a fault
    assert behaviour_of("0.33") is VERSIONS["0.33"]


def test_each_field_has_a_description_of_one_line():
    texts = [description_of(field) for field in VllmBehaviour._fields]

    assert all(texts) and len(set(texts)) == len(texts)
    assert max(map(len, texts)) < 90


def test_names_and_refusals_are_no_rules_of_a_run():
    assert "has_offload" not in differing("0.32", "0.33") and "release" not in differing("0.32", "0.33")
    assert differing("0.33", "0.33") == []
