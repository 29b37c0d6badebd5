"use strict";
// Charts as data, drawn as SVG in the width that there is. The data are those of the reports.

const SVG = "http://www.w3.org/2000/svg";
const DASHES = ["", "6 3", "2 2", "8 3 2 3", "4 2 1 2 1 2", "10 4"];
const MARGIN = {left: 66, right: 14, top: 10, bottom: 34, between: 14};

function make(name, values, parent, text) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(values)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  if (parent) parent.append(node);
  return node;
}

function html(name, values, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(values || {})) {
    if (value === true) node.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}

function tableOf(columns, rows, caption) {
  const head = html("tr", {}, ...columns.map(each => html("th", {scope: "col"}, each)));
  const body = rows.map(row => html("tr", {}, html("th", {scope: "row"}, row[0]),
    ...row.slice(1).map(cell => html("td", {}, cell))));
  return html("table", {"aria-label": caption}, html("thead", {}, head), html("tbody", {}, ...body));
}

function short(value) {
  if (value === null || !Number.isFinite(value)) return "-";
  if (Number.isInteger(value) || Math.abs(value) >= 100) return Math.round(value).toLocaleString("en");
  return Math.abs(value) >= 10 ? value.toFixed(1) : Math.abs(value) >= 1 ? value.toFixed(2) : String(Number(value.toPrecision(3)));
}

function ticksOf(low, high, most, isLog) {
  if (isLog) {
    const found = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
      for (const step of high / low > 100 ? [1] : [1, 2, 5]) {
        const value = step * 10 ** power;
        if (value >= low * 0.999 && value <= high * 1.001) found.push(value);
      }
    }
    return found;
  }
  const rough = (high - low) / most || 1, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map(each => each * power).find(each => each >= rough * 0.999);
  const found = [];
  for (let value = Math.ceil(low / step - 1e-9) * step; value <= high + step * 1e-6; value += step) found.push(Number(value.toPrecision(12)));
  return found;
}

function scaleOf(low, high, from, to, isLog) {
  const of = isLog ? value => Math.log(Math.max(value, 1e-12)) : value => value;
  const first = of(low), span = of(high) - first || 1;
  return value => from + (of(value) - first) / span * (to - from);
}

function valuesOf(mark, key) {
  const found = [];
  for (const name of key === "x" ? ["x", "edges"] : ["y", "low", "high", "heights"]) {
    const value = mark[name];
    if (Array.isArray(value)) found.push(...value.filter(Number.isFinite));
    else if (typeof value === "number") found.push(value);
  }
  return found;
}

function rangeOf(panels, key) {
  const found = panels.flatMap(panel => panel.marks.flatMap(mark => valuesOf(mark, key)));
  return [Math.min(0, ...found), Math.max(0, ...found) || 1];
}

function pathOf(mark, ys, x, y) {
  let text = "", isOpen = false;
  mark.x.forEach((value, i) => {
    if (!Number.isFinite(ys[i])) { isOpen = false; return; }
    const at = `${x(value).toFixed(1)} ${y(ys[i]).toFixed(1)}`;
    text += isOpen ? (mark.steps ? `H${x(value).toFixed(1)}V${y(ys[i]).toFixed(1)}` : `L${at}`) : `M${at}`;
    isOpen = true;
  });
  return text;
}

function drawMark(mark, group, x, y, box) {
  const colour = `var(--c${(mark.style || 0) % 6})`, dash = DASHES[(mark.style || 0) % 6];
  if (mark.kind === "Line") {
    make("path", {class: "line", d: pathOf(mark, mark.y, x, y), stroke: colour, "stroke-dasharray": dash}, group);
  } else if (mark.kind === "Errors") {
    make("path", {class: "line", d: pathOf(mark, mark.y, x, y), stroke: colour, "stroke-dasharray": dash}, group);
    mark.x.forEach((value, i) => {
      if (!Number.isFinite(mark.y[i])) return;
      make("line", {x1: x(value), x2: x(value), y1: y(mark.low[i]), y2: y(mark.high[i]), stroke: colour, "stroke-width": 1.5}, group);
      make("circle", {cx: x(value), cy: y(mark.y[i]), r: 3.2, fill: mark.hollow && mark.hollow[i] ? "var(--paper)" : colour, stroke: colour}, group);
    });
  } else if (mark.kind === "Rule") {
    make("line", {class: "rule", x1: x(mark.x), x2: x(mark.x), y1: box.top, y2: box.bottom}, group);
    const isRight = x(mark.x) > box.left + 0.7 * (box.right - box.left);
    make("text", {class: "halo", x: x(mark.x) + (isRight ? -4 : 4), y: box.bottom - 6, "text-anchor": isRight ? "end" : "start"}, group, mark.text);
  } else if (mark.kind === "Level") {
    make("line", {class: "rule", x1: box.left, x2: box.right, y1: y(mark.y), y2: y(mark.y)}, group);
    make("text", {class: "halo", x: box.left + 4, y: y(mark.y) - 4}, group, mark.text);
  } else if (mark.kind === "Mark") {
    make("circle", {cx: x(mark.x), cy: y(mark.y), r: 3.2, fill: colour}, group);
    const isRight = x(mark.x) > box.left + 0.55 * (box.right - box.left);
    make("text", {class: "halo", x: x(mark.x) + (isRight ? -7 : 7), y: y(mark.y) + (isRight ? -4 : 13), "text-anchor": isRight ? "end" : "start"}, group, mark.text);
  }
}

function beside(panel, other) {
  // The marks of a pinned chart lie beneath, with the next style.
  const kept = (other ? other.marks : []).filter(mark => ["Line", "Errors"].includes(mark.kind) && mark.label !== "offered");
  return {...panel, marks: [...kept.map(mark => ({...mark, label: "pinned", style: 1})), ...panel.marks]};
}

function picture(chart, pinned, width) {
  const panels = chart.panels.map((panel, i) => beside(panel, pinned && pinned.panels[i]));
  const height = panels.length > 1 ? 105 : 215;
  const names = namesOf(panels[0].marks), above = MARGIN.top + (names.length ? 16 : 0);
  const total = above + panels.length * height + (panels.length - 1) * MARGIN.between + MARGIN.bottom;
  const svg = make("svg", {viewBox: `0 0 ${width} ${total}`, width, height: total, role: "img",
    "aria-label": `${chart.title}. ${chart.says}`});
  let [low, high] = chart.x_range || rangeOf(panels, "x");
  if (pinned && pinned.x_range) high = Math.max(high, pinned.x_range[1]);
  const left = MARGIN.left, right = width - MARGIN.right;
  const x = scaleOf(low, high, left, right, chart.is_x_log);
  const xTicks = ticksOf(low, high, width < 380 ? 4 : 6, chart.is_x_log);
  panels.forEach((panel, row) => {
    const top = above + row * (height + MARGIN.between), bottom = top + height;
    let [least, most] = panel.y_range || rangeOf([panel], "y");
    if (!panel.y_range) most *= 1.08;
    if (panel.is_log) least = Math.max(least, 0.5);
    const pins = panel.marks.filter(mark => mark.label === "pinned").flatMap(mark => valuesOf(mark, "y"));
    if (panel.y_range && pins.length) most = Math.max(most, ...pins);
    const y = scaleOf(least, most, bottom, top, panel.is_log);
    const group = make("g", {}, svg), id = `clip-${chart.name}-${row}`;
    for (const tick of ticksOf(least, most, height < 150 ? 3 : 5, panel.is_log)) {
      make("line", {class: "grid", x1: left, x2: right, y1: y(tick), y2: y(tick)}, group);
      make("text", {x: left - 5, y: y(tick) + 4, "text-anchor": "end"}, group, short(tick));
    }
    for (const tick of xTicks) make("line", {class: "grid", x1: x(tick), x2: x(tick), y1: top, y2: bottom}, group);
    make("path", {class: "axis", d: `M${left} ${top}V${bottom}H${right}`}, group);
    make("text", {transform: `translate(11 ${(top + bottom) / 2}) rotate(-90)`, "text-anchor": "middle"}, group, panel.y_label);
    make("rect", {x: left, y: top - 6, width: right - left, height: height + 7}, make("clipPath", {id}, group));
    const inside = make("g", {"clip-path": `url(#${id})`}, group);
    for (const mark of panel.marks) drawMark(mark, inside, x, y, {left, right, top, bottom});
  });
  legend(names, svg, left);
  const base = total - MARGIN.bottom;
  for (const tick of xTicks) {
    const isLast = x(tick) > right - 14;
    make("text", {x: isLast ? right + 10 : x(tick), y: base + 14, "text-anchor": isLast ? "end" : "middle"}, svg, short(tick));
  }
  make("text", {x: (left + right) / 2, y: base + 29, "text-anchor": "middle"}, svg, chart.x_label);
  return svg;
}

function namesOf(marks) {
  const named = [...new Map(marks.filter(mark => mark.label).map(mark => [mark.label, mark])).values()];
  return named.length === 1 && named[0].label === "pinned" ? [...named, {label: "now", style: 0}] : named;
}

function legend(names, svg, left) {
  let x = left;
  for (const {label, style} of names) {
    make("line", {x1: x, x2: x + 22, y1: 10, y2: 10, stroke: `var(--c${style % 6})`, "stroke-width": 2, "stroke-dasharray": DASHES[style % 6]}, svg);
    make("text", {x: x + 27, y: 14}, svg, label);
    x += 42 + 6.5 * label.length;
  }
}

function figureOf(chart, pinned, width) {
  const caption = html("figcaption", {}, html("h3", {}, chart.title), html("p", {}, chart.says));
  const data = html("details", {}, html("summary", {}, "Data"),
    html("div", {class: "wide"}, tableOf(chart.table.columns, chart.table.rows, `Data of ${chart.title}`)));
  return html("figure", {id: `chart-${chart.name}`}, caption, picture(chart, pinned, width), data);
}

function drawCharts(place, charts, pinned) {
  const open = new Set([...place.querySelectorAll("details[open]")].map(each => each.parentNode.id));
  const columns = Math.max(1, Math.floor((place.clientWidth + 19) / (25 * 16 + 19)));
  const width = Math.max(280, Math.floor((place.clientWidth - 19 * (columns - 1)) / columns));
  place.replaceChildren(...charts.map(chart =>
    figureOf(chart, pinned && pinned.find(each => each.name === chart.name), width)));
  for (const figure of place.children) if (open.has(figure.id)) figure.querySelector("details").open = true;
}
