"""The page in Chromium: every control changes the answer, nothing is fetched from outside, nothing goes wrong."""
import re
import shutil
import threading

import pytest
import tomli

from simulator.study.exploring.answering import Source
from simulator.study.exploring.controls import CONTROLS
from simulator.study.exploring.desk import Desk
from simulator.study.exploring.server import PageServer
from support.explored import FILE, OTHER, TEXT

api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = [pytest.mark.slow, pytest.mark.ci,
              pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: apt-get install chromium")]
TURN = 20_000                   # ms, the longest wait


@pytest.fixture(scope="module")
def server():
    with PageServer(("127.0.0.1", 0), "explore.html", Desk(Source(TEXT, FILE)).questions) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture(scope="module")
def browser():
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def open_page(server, browser):
    """Open pages; fail if one says an error or asks another host."""
    contexts, wrong = [], []

    def opened(width=1200, scheme="light", fragment=""):
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(TURN)
        page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        here = server.address.partition("?")[0]
        page.on("request", lambda request: None if request.url.startswith((here, "data:", "blob:"))
                else wrong.append(request.url))
        page.goto(server.address + fragment)
        page.wait_for_selector("body[data-took-ms]")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not wrong


def state_of(page):
    """Return what the page says of the run."""
    return [page.inner_text(place) for place in ("#figures", "#facts", "#latencies")] + [
        page.inner_html("#charts"), page.input_value("#toml")]


def settled(page):
    page.wait_for_selector("#answer:not(.stale)")


def test_every_control_changes_what_the_page_says(open_page):
    page = open_page()
    for control in sorted(CONTROLS, key=lambda each: each.id != "version"):     # of vLLM, before another engine
        if control.id == "engine":              # SGLang has no stages: back to the first experiment
            page.fill("#toml", TEXT)
            page.click("#apply")
            api.expect(page.locator("#tp")).to_have_value("1")
        before, text = state_of(page), page.input_value("#toml")
        place, value = page.locator(f"#{control.id}"), OTHER[control.id]
        if control.kind == "flag":
            place.set_checked(value)
        elif control.kind == "choice":
            place.select_option(value)
        else:
            place.fill(f"{value:g}" if isinstance(value, float) else str(value))
            place.press("Tab")
        api.expect(page.locator("#toml")).not_to_have_value(text)
        settled(page)
        assert page.locator("#faults").is_hidden(), (control.id, page.inner_text("#faults"))
        assert [one for one, other in zip(before[:4], state_of(page)[:4], strict=True) if one != other], control.id


def test_a_slider_and_a_button_of_the_layouts_change_the_experiment(open_page):
    page = open_page()
    page.focus("#rate-slider")
    page.keyboard.press("Home")                 # the least of 0.1 to 1000
    api.expect(page.locator("#rate")).to_have_value("0.1")
    page.get_by_role("button", name="Use TP 2, PP 1, DP 1, EP 1").click()
    api.expect(page.locator("#tp")).to_have_value("2")
    settled(page)
    found = tomli.loads(page.input_value("#toml"))

    assert found["topology"]["tensor_parallel"] == 2
    assert found["workload"]["arrival"]["rate_per_s"] == 0.1


def test_changes_that_follow_each_other_are_all_kept(open_page):
    page = open_page()
    for id, value in (("rate", "5"), ("output", "30"), ("seqs", "7")):
        page.fill(f"#{id}", value)
        page.press(f"#{id}", "Tab")
        page.wait_for_timeout(60)               # longer than the page waits for more, shorter than a run
    api.expect(page.locator("#toml")).to_have_value(re.compile("max_num_seqs = 7"))
    found = tomli.loads(page.input_value("#toml"))

    assert (found["workload"]["arrival"]["rate_per_s"], found["workload"]["output_tokens"]["mean"]) == (5, 30)


def test_faults_are_shown_and_the_last_answer_stays(open_page):
    page = open_page()
    before = page.inner_text("#figures")
    page.fill("#toml", "name = 3\n[model]\nname = 'no-such-model'\n")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("#faults:not([hidden])")

    assert "no-such-model" in page.inner_text("#faults")
    assert page.inner_text("#figures") == before


def test_a_pinned_answer_is_shown_beside_and_a_link_restores_both(open_page):
    page = open_page()
    page.click("#pin")
    page.fill("#rate", "5")
    page.press("#rate", "Tab")
    api.expect(page.locator("#rate")).to_have_value("5")
    page.wait_for_selector("body[data-settled]")
    api.expect(page.locator("#toml")).not_to_have_value(TEXT)
    settled(page)
    api.expect(page.locator("#figures thead")).to_contain_text("difference")
    api.expect(page.locator("#chart-ttft_ms_cdf svg")).to_contain_text("pinned")
    page.click("#link")
    api.expect(page.locator("#status")).to_contain_text("link")
    figures, text = page.inner_text("#figures thead"), page.input_value("#toml")
    again = open_page(fragment=page.url[page.url.index("#"):])

    api.expect(again.locator("#toml")).to_have_value(text)
    assert again.inner_text("#figures thead") == figures
    assert again.input_value("#rate") == "5"


def test_the_experiment_is_downloaded_as_it_is_shown(open_page):
    page = open_page()
    with page.expect_download() as download:
        page.click("#download")

    assert download.value.suggested_filename == "quickstart.toml"
    assert download.value.path().read_text() == page.input_value("#toml")


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (390, "dark"), (1600, "dark")])
def test_the_page_fits_and_has_a_name_for_everything(open_page, width, scheme):
    page = open_page(width, scheme)
    page.wait_for_selector("#curve svg")
    unnamed = page.eval_on_selector_all("input, select, textarea, button, svg, table", """
        all => all.filter(each => each.id.endsWith("-slider") || each.getClientRects().length).filter(each =>
            !(each.ariaLabel || each.getAttribute("aria-label") || each.labels?.length || each.textContent.trim()))
            .map(each => each.outerHTML.slice(0, 80))""")
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")

    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert unnamed == []
    assert paper == ("rgb(255, 255, 254)" if scheme == "light" else "rgb(21, 24, 28)")


def test_every_control_is_reached_by_the_keyboard(open_page):
    page, seen = open_page(), []
    for _ in range(80):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("document.activeElement.id"))

    assert {each.id for each in CONTROLS if not page.locator(f"#{each.id}").is_disabled()} <= set(seen)
    assert {"pin", "link", "download"} <= set(seen)
