"use strict";
// Asks for the state again and again; while nothing is new the page stays as it is.

const EVERY_MS = 2000;
const by = id => document.getElementById(id);
let last = "", isAsking = false;

async function look() {
  if (isAsking) return;
  isAsking = true;
  let text;
  try {
    const response = await fetch("/api/watch", {method: "POST", headers: {"Content-Type": "application/json"}, body: "{}"});
    text = await response.text();
    if (!response.ok) throw new Error(text);
  } catch (error) {
    by("status").textContent = `no answer: ${error.message}`;
    return;
  } finally {
    isAsking = false;
  }
  if (text !== last) show(JSON.parse(text));
  last = text;
}

function show(found) {
  by("name").textContent = found.title;
  document.title = `${found.title}: ${found.state}`;
  by("status").textContent = found.state;
  const progress = found.progress, bar = by("bar");
  bar.hidden = !progress || progress.total === null;
  if (!bar.hidden) { bar.max = Math.max(progress.total, 1); bar.value = progress.done; }
  by("words").textContent = progress ? progress.words : "";
  by("facts").replaceChildren(...found.facts.flatMap(([label, text]) => [html("dt", {}, label), html("dd", {}, text)]));
  drawCharts(by("charts"), found.charts, null);
  by("tables").replaceChildren(...found.tables.map(each => html("section", {}, html("h2", {}, each.title),
    html("div", {class: "wide"}, tableOf(each.columns, each.rows, each.title)))));
  const notes = found.notes.length ? found.notes : ["Nothing to report."];
  by("notes").replaceChildren(...notes.map(each => html("li", {}, each)));
}

look();
setInterval(() => { if (!document.hidden) look(); }, EVERY_MS);
document.addEventListener("visibilitychange", () => { if (!document.hidden) look(); });
