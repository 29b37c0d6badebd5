"use strict";
// The page asks, the server answers: a newer question ends an older one.

const SLIDER_STEPS = 300, WAIT_MS = 40;
const page = Math.random().toString(36).slice(2);
const state = {turn: 0, text: "", good: "", answer: null, pinned: null, curve: null, intervals: null, controls: [], plan: 0,
  pending: {}};       // values of controls that no answer has yet
const by = id => document.getElementById(id);

async function ask(question, more) {
  const response = await fetch(`/api/${question}`, {method: "POST", headers: {"Content-Type": "application/json"},
    body: JSON.stringify({page, turn: state.turn, text: state.text, good: state.good, ...more})});
  if (!response.ok) throw new Error(await response.text());
  return response.json();
}

// ---- links: the state in the fragment of the address

async function packed(text) {
  const stream = new Blob([text]).stream().pipeThrough(new CompressionStream("deflate-raw"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  let found = "";
  for (const byte of bytes) found += String.fromCharCode(byte);
  return btoa(found).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), each => each.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"))).text();
}

async function remember() {
  const turn = state.turn;
  const hash = await packed(JSON.stringify({text: state.text, pinned: state.pinned ? state.pinned.text : null}));
  if (turn === state.turn) history.replaceState(null, "", `#${hash}`);
}

async function restored() {
  try {
    return location.hash.length > 1 ? JSON.parse(await unpacked(location.hash.slice(1))) : null;
  } catch {
    say("the link has no state that can be read");
    return null;
  }
}

async function restore(first) {
  const found = await restored() || {text: first, pinned: null};
  state.pinned = null;
  if (typeof found.pinned === "string") {
    state.turn++;
    const answered = await ask("answer", {text: found.pinned});
    if (answered.answer) setPinned({text: found.pinned, answer: answered.answer, curve: null});
  } else setPinned(null);
  await change({}, found.text);
}

// ---- questions

async function change(values, text) {
  const turn = ++state.turn, began = performance.now();
  if (text !== undefined) Object.assign(state, {text, pending: {}});
  Object.assign(state.pending, values);
  by("answer").classList.add("stale");
  say("computing");
  let found;
  try {
    found = await ask("answer", {values: state.pending});
  } catch (error) {
    by("answer").classList.remove("stale");
    say(`no answer: ${error.message}`);
    return;
  }
  if (found.superseded || turn !== state.turn) return;
  state.pending = {};
  by("answer").classList.remove("stale");
  if (typeof found.text === "string") setText(found.text);
  showFaults(found.faults || []);
  if (found.faults) { say("the experiment has faults"); return; }
  Object.assign(state, {answer: found.answer, good: state.text, curve: null, intervals: null});
  showAnswer();
  const ms = Math.round(performance.now() - began);
  document.body.dataset.tookMs = ms;
  say(`answered in ${ms} ms`);
  remember();
  await further(turn);
}

async function further(turn) {
  by("curve-note").textContent = "computing";
  by("interval-note").textContent = "intervals: computing";
  for (const [question, show] of [["layouts", showLayouts], ["curve", showCurve], ["intervals", showIntervals]]) {
    const found = await ask(question).catch(error => ({faults: [error.message]}));
    if (turn !== state.turn || found.superseded) return;
    show(found);
  }
  document.body.dataset.settled = turn;
}

async function search() {
  const run = ++state.plan;
  by("plan-note").textContent = "searching";
  by("search").disabled = true;
  const found = await ask("plan", {gpus: Number(by("gpus").value)}).catch(error => ({faults: [error.message]}));
  by("search").disabled = false;
  if (run !== state.plan) return;
  by("plan-note").textContent = found.superseded ? "ended, since the experiment has changed: search again"
    : found.faults ? found.faults.join("; ") : [found.answer, ...found.notes].join(". ");
  by("plan").replaceChildren(...(found.rows ? [tableOf(found.columns, found.rows, "Layouts by plan")] : []));
}

// ---- the answer

function say(text) { by("status").textContent = text; }

function setText(text) {
  state.text = text;
  if (by("toml").value !== text) by("toml").value = text;
}

function showFaults(faults) {
  by("faults").hidden = !faults.length;
  by("faults").querySelector("ul").replaceChildren(...faults.map(each => html("li", {}, each)));
  by("faults").querySelector("p").hidden = !state.answer;
}

function showAnswer() {
  const answer = state.answer;
  by("name").textContent = answer.name;
  document.title = `${answer.name}: explore`;
  fillControls(answer.controls);
  showFigures();
  drawCharts(by("charts"), answer.charts, state.pinned && state.pinned.answer.charts);
  by("facts").replaceChildren(...answer.facts.flatMap(([label, text]) => [html("dt", {}, label), html("dd", {}, text)]),
    ...answer.memory.flatMap(text => [html("dt", {}, "engine's log"), html("dd", {}, text)]));
  by("latencies").replaceChildren(tableOf(answer.latencies.columns, answer.latencies.rows, "Latencies"));
  by("sources").replaceChildren(...answer.sources.map(each => html("li", {}, each)));
  const notes = answer.notes.length ? answer.notes : ["Nothing to report."];
  by("notes").replaceChildren(...notes.map(each => html("li", {}, each)));
}

const METRICS = {"requests/s": "request_throughput", "output tokens/s": "output_throughput", "TTFT p99, ms": "ttft_ms.p99",
  "TPOT p99, ms": "tpot_ms.p99", "E2EL p99, ms": "e2el_ms.p99"};

function showFigures() {
  const pinned = state.pinned && new Map(state.pinned.answer.figures.map(([label, value]) => [label, value]));
  const metrics = state.intervals ? state.intervals.metrics : {};
  const columns = ["", "now", "interval", ...(pinned ? ["pinned", "difference"] : [])];
  const table = tableOf(columns, state.answer.figures.map(([label, value]) => {
    const interval = metrics[METRICS[label]];
    const row = [label, short(value), interval ? `${short(interval.low)} to ${short(interval.high)}` : ""];
    const other = pinned && pinned.get(label);
    if (pinned) row.push(short(other === undefined ? null : other), other ? `${value >= other ? "+" : ""}${((value / other - 1) * 100).toFixed(1)} %` : "-");
    return row;
  }), "Answer");
  if (pinned) {
    state.answer.figures.forEach(([label, value, isMore], i) => {
      const other = pinned.get(label);
      if (other && Math.abs(value / other - 1) > 0.0005) {
        const cell = table.tBodies[0].rows[i].lastChild, isBetter = (value > other) === isMore;
        cell.className = isBetter ? "better" : "worse";
        cell.append(isBetter ? " better" : " worse");
      }
    });
  }
  by("figures").replaceChildren(table);
}

function showCurve(found) {
  state.curve = found.chart ? [found.chart] : [];
  by("curve-note").textContent = (found.faults || []).join("; ");
  drawCharts(by("curve"), state.curve, state.pinned && state.pinned.curve);
}

function showIntervals(found) {
  state.intervals = found.metrics ? found : null;
  by("interval-note").textContent = found.faults ? `no intervals: ${found.faults.join("; ")}`
    : found.frac ? `Intervals: ${Math.round(100 * found.frac)} % of the runs with operator times perturbed by the errors of their tables.`
      : "no intervals: the latency backend has no errors of its own";
  const percent = value => value === null ? "-" : `${(100 * value).toFixed(1)} %`;
  by("operators").replaceChildren(...(found.operators && found.operators.length ? [tableOf(
    ["operators", "error", "share of time", "beyond the tables", "error seen on"],
    found.operators.map(each => [each.name, percent(each.error), percent(each.time), percent(each.outside), each.of]),
    "Operators with the largest share of the error")] : []));
  if (found.notes) by("notes").replaceChildren(...(found.notes.length ? found.notes : ["Nothing to report."]).map(each => html("li", {}, each)));
  showFigures();
}

function showLayouts(found) {
  if (!found.rows) { by("layouts").replaceChildren(html("p", {class: "quiet"}, (found.faults || []).join("; "))); return; }
  const head = html("tr", {}, ...found.columns.map(each => html("th", {scope: "col"}, each)), html("th", {scope: "col"}, ""));
  const rows = found.rows.map(row => {
    const name = `TP ${row.cells[1]}, PP ${row.cells[2]}, DP ${row.cells[3]}, EP ${row.cells[4]}`;
    const button = html("button", {type: "button", "aria-label": `Use ${name}`}, "Use");
    button.addEventListener("click", () => change(row.set));
    return html("tr", {class: row.is_now ? "now" : null}, html("th", {scope: "row"}, row.cells[0]),
      ...row.cells.slice(1).map(cell => html("td", {}, cell)),
      row.refusal ? html("td", {class: "text"}, row.refusal) : html("td", {}, row.is_now ? "now" : button));
  });
  by("layouts").replaceChildren(html("table", {"aria-label": "Layouts of a replica"}, html("thead", {}, head), html("tbody", {}, ...rows)));
}

// ---- the form

function setPinned(pinned) {
  state.pinned = pinned;
  by("pin").setAttribute("aria-pressed", String(Boolean(pinned)));
  by("pin").textContent = pinned ? "Unpin" : "Pin for comparison";
}

function buildControls(controls) {
  state.controls = controls;
  const groups = new Map();
  for (const control of controls) {
    if (!groups.has(control.group)) groups.set(control.group, html("fieldset", {}, html("legend", {}, control.group)));
    groups.get(control.group).append(rowOf(control));
  }
  by("controls").replaceChildren(...groups.values());
}

function rowOf(control) {
  const isBroad = ["name", "choice", "text"].includes(control.kind);
  const row = html("div", {class: isBroad ? "row broad" : "row"}, html("label", {for: control.id}, control.label));
  const note = html("small", {id: `${control.id}-why`, hidden: true});
  let input;
  if (control.kind === "choice") {
    input = html("select", {id: control.id}, ...control.choices.map(each => html("option", {value: each}, each)));
  } else if (control.kind === "name") {
    input = html("input", {id: control.id, list: `${control.id}-names`, spellcheck: "false"});
    row.append(html("datalist", {id: `${control.id}-names`}, ...control.choices.map(each => html("option", {value: each}))));
  } else if (control.kind === "flag") input = html("input", {id: control.id, type: "checkbox"});
  else if (control.kind === "text") input = html("input", {id: control.id, spellcheck: "false", placeholder: "path of a CSV file"});
  else input = html("input", {id: control.id, type: "number", min: control.least, max: control.most, step: "any", inputmode: "decimal"});
  input.setAttribute("aria-describedby", note.id);
  row.append(input);
  input.addEventListener("change", () => send(control, input));
  if (control.slide) row.append(sliderOf(control, input));
  row.append(note);
  return row;
}

function sliderOf(control, input) {
  const slider = html("input", {id: `${control.id}-slider`, type: "range", min: 0, max: SLIDER_STEPS, "aria-label": `${control.label}, slider`});
  const [low, high] = control.slide;
  slider.addEventListener("input", () => {
    const value = low * (high / low) ** (slider.value / SLIDER_STEPS);
    const rounded = control.kind === "whole" ? Math.round(value) : Number(value.toPrecision(3));
    const kept = rounded >= 1000 ? Number(rounded.toPrecision(3)) : rounded;
    if (input.value !== "" && kept === Number(input.value)) return;
    input.value = kept;
    slider.setAttribute("aria-valuetext", String(kept));
    send(control, input);
  });
  return slider;
}

function placeSlider(control, value) {
  const slider = by(`${control.id}-slider`);
  if (!slider || document.activeElement === slider) return;
  const [low, high] = control.slide, at = Math.min(high, Math.max(low, value || Math.sqrt(low * high)));
  slider.value = Math.round(Math.log(at / low) / Math.log(high / low) * SLIDER_STEPS);
  slider.setAttribute("aria-valuetext", value === null ? "not set" : String(value));
}

function fillControls(values) {
  for (const control of state.controls) {
    const input = by(control.id), {value, why} = values[control.id], note = by(`${control.id}-why`);
    for (const each of [input, by(`${control.id}-slider`)]) if (each) each.disabled = Boolean(why);
    note.hidden = !why;
    note.textContent = why || "";
    if (document.activeElement !== input) {
      if (control.kind === "flag") input.checked = Boolean(value);
      else {
        if (control.kind === "choice" && value !== null && ![...input.options].some(each => each.value === String(value))) {
          input.append(html("option", {value}, String(value)));
        }
        input.value = value === null ? "" : value;
      }
    }
    placeSlider(control, typeof value === "number" ? value : null);
  }
}

let waiting = {}, timer = null;

function send(control, input) {
  let value = control.kind === "flag" ? input.checked : input.value.trim();
  if (value === "") {
    if (!control.optional) { input.value = state.answer ? state.answer.controls[control.id].value : ""; return; }
    value = null;
  } else if (["number", "whole"].includes(control.kind)) {
    value = Number(value);
    if (!Number.isFinite(value)) { say(`${control.label}: expected a number`); return; }
    if (control.kind === "whole") value = Math.round(value);
    placeSlider(control, value);
  }
  waiting[control.id] = value;
  clearTimeout(timer);
  timer = setTimeout(() => { const values = waiting; waiting = {}; change(values); }, WAIT_MS);
}

// ---- actions

function download() {
  const link = html("a", {href: URL.createObjectURL(new Blob([state.text], {type: "application/toml"})),
    download: `${by("name").textContent.replaceAll(/[^\w.-]/g, "_")}.toml`});
  link.click();
  URL.revokeObjectURL(link.href);
}

async function copyLink() {
  await remember();
  try {
    await navigator.clipboard.writeText(location.href);
    say("the link is copied");
  } catch {
    say("the link is in the address bar");
  }
}

function pin() {
  if (!state.answer) return;
  setPinned(state.pinned ? null : {text: state.good, answer: state.answer, curve: state.curve});
  showAnswer();
  if (state.curve) drawCharts(by("curve"), state.curve, state.pinned && state.pinned.curve);
  remember();
}

async function begin() {
  by("pin").addEventListener("click", pin);
  by("link").addEventListener("click", copyLink);
  by("download").addEventListener("click", download);
  by("search").addEventListener("click", search);
  by("controls").addEventListener("submit", event => event.preventDefault());
  by("apply").addEventListener("click", () => change({}, by("toml").value));
  by("toml").addEventListener("keydown", event => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); change({}, by("toml").value); }
  });
  const start = await ask("start");
  buildControls(start.controls);
  window.addEventListener("hashchange", () => restore(start.text));
  let width = window.innerWidth;
  window.addEventListener("resize", () => {
    if (window.innerWidth === width || !state.answer) return;
    width = window.innerWidth;
    drawCharts(by("charts"), state.answer.charts, state.pinned && state.pinned.answer.charts);
    if (state.curve) drawCharts(by("curve"), state.curve, state.pinned && state.pinned.curve);
  });
  await restore(start.text);
}

begin().catch(error => say(`the page cannot start: ${error.message}`));
