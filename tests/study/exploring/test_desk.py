"""The questions of the page, without a browser."""
import msgspec
import pytest

from simulator.domain.facts import shipped
from simulator.study.exploring import desk as desks
from simulator.study.exploring.answering import Source, answer_of, plain_array
from simulator.study.exploring.controls import CONTROLS
from simulator.study.exploring.desk import Desk
from simulator.study.exploring.editing import with_values
from support.explored import FILE, OTHER, TEXT


@pytest.fixture(scope="module")
def desk():
    return Desk(Source(TEXT, FILE))


@pytest.fixture(scope="module")
def first(desk):
    return desk.answer({"page": "p", "turn": 1, "text": TEXT})


def test_every_control_is_in_the_table_above():
    assert OTHER.keys() == {each.id for each in CONTROLS}


@pytest.mark.parametrize("id", OTHER)
def test_a_control_changes_the_answer_and_shows_its_value(desk, first, id):
    found = desk.answer({"page": id, "turn": 1, "text": TEXT, "values": {id: OTHER[id]}})

    assert "faults" not in found, found["faults"]
    shown = found["answer"]["controls"][id]["value"]
    assert shown == OTHER[id] or (id == "trace" and shown.endswith(OTHER[id]))
    assert first["answer"]["controls"][id]["value"] != shown
    own, other = (msgspec.json.encode([each["answer"][part] for part in ("figures", "charts", "facts", "memory")],
                                      enc_hook=plain_array) for each in (first, found))
    assert own != other
    assert found["text"] != TEXT


def test_an_answer_holds_what_a_planner_asks(first):
    answer = first["answer"]

    assert [chart["name"] for chart in answer["charts"]] == ["ttft_ms_cdf", "tpot_ms_cdf", "e2el_ms_cdf",
                                                            "queue_ms_cdf", "timeline"]
    assert {"requests/s", "goodput, requests/s", "TTFT p99, ms"} <= {label for label, *_ in answer["figures"]}
    assert answer["sources"][0] == "latency backend: roofline"
    assert answer["memory"][0].startswith("GPU KV cache size: 454,208 tokens")
    assert first["text"] == TEXT


def test_an_optional_control_that_is_emptied_leaves_the_key_out(desk):
    found = desk.answer({"page": "e", "turn": 1, "text": TEXT, "values": {"ttft": None, "shared": None}})

    assert "ttft_ms" not in found["text"]
    assert "system_prompts" not in found["text"]


def test_another_card_drops_the_price_of_the_old_one(desk):
    priced = desk.answer({"page": "f", "turn": 1, "text": TEXT, "values": {"price": 2.5}})
    found = desk.answer({"page": "f", "turn": 2, "text": priced["text"], "values": {"hardware": "l40s"}})

    assert dict(each[:2] for each in priced["answer"]["figures"])["cost, USD an hour"] == pytest.approx(2.5)
    assert "prices" not in found["text"]


def test_faults_are_listed_and_a_control_leads_back(desk):
    wrong = desk.answer({"page": "w", "turn": 1, "text": TEXT, "values": {"tp": 3}})
    back = desk.answer({"page": "w", "turn": 2, "text": wrong["text"], "good": TEXT, "values": {"tp": 1}})
    no_toml = desk.answer({"page": "w", "turn": 3, "text": "name = \n[workload", "good": TEXT})

    assert "tensor_parallel = 3" in wrong["text"]
    assert [fault for fault in wrong["faults"] if "tensor_parallel" in fault]
    assert "answer" in back
    assert no_toml["faults"][0].startswith(f"{FILE}:1:8: ")


def test_controls_of_pools_say_where_their_values_are():
    file = shipped("configs") / "pools.toml"
    found = Desk(Source(file.read_text(), str(file))).answer({"page": "p", "turn": 1, "text": file.read_text()})

    assert found["answer"]["controls"]["tp"]["why"] == "each of [[pools]] has its own: change the TOML"


def test_a_newer_question_ends_an_older_one(desk, monkeypatch):
    def outdated(source, readings, stop):
        desk._turns["q"] = 9        # as another thread's question would
        return answer_of(source, readings, stop)

    monkeypatch.setattr(desks, "answer_of", outdated)
    found = desk.answer({"page": "q", "turn": 8, "text": TEXT.replace("seed = 42", "seed = 43")})

    assert found == {"superseded": True}
    assert desk.answer({"page": "q", "turn": 8, "text": TEXT}) == {"superseded": True}


@pytest.mark.parametrize(("asked", "fault"), [
    ({}, "text: expected the TOML of an experiment"), ({"text": 3, "turn": "x"}, "text: expected the TOML"),
    ({"text": TEXT, "values": [1]}, "values: expected values of controls")])
def test_questions_without_sense_are_refused(desk, asked, fault):
    assert desk.answer(asked)["faults"][0].startswith(fault)


def test_a_class_of_a_user_that_fails_is_named(desk, tmp_path):
    (tmp_path / "mine.py").write_text("from simulator.routing.python_router import PythonRouter\n\n\n"
                                      "class Mine(PythonRouter):\n    def choose(self, request, now_ns):\n"
                                      "        return 1 // 0\n")
    text = with_values(TEXT, FILE, {"cluster.routing.policy": "mine:Mine", "topology.replicas": 2})
    found = Desk(Source(text, str(tmp_path / "own.toml"))).answer({"page": "m", "turn": 1, "text": text})

    assert "mine:Mine" in found["faults"][0]
