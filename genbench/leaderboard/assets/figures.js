// Draws the figures of a page from the JSON beside them, in the page's colours; again when those change.
"use strict";

const GROUPS = ["#2b8cc4", "#d55e00", "#009e73", "#cc79a7", "#e0a000", "#7f7f7f"];
const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "triangle-down", "cross"];
const DASHES = { M: "solid", SD: "dash", P10: "dot" };

function colours() {
  const style = getComputedStyle(document.documentElement);
  return { ink: style.getPropertyValue("--ink").trim(), line: style.getPropertyValue("--line").trim(), page: style.getPropertyValue("--page").trim() };
}

function axis(colour, more) {
  return { gridcolor: colour.line, zerolinecolor: colour.line, linecolor: colour.line, automargin: true, ...more };
}

function layout(colour, more) {
  return { paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: colour.ink, size: 12, family: "system-ui, sans-serif" },
    margin: { l: 60, r: 20, t: 34, b: 50 }, hoverlabel: { bgcolor: colour.page, font: { color: colour.ink } },
    legend: { orientation: "h", y: -0.2, x: 0 }, ...more };
}

function scatter(data, colour) {
  const traces = [], shown = {}, wide = innerWidth > 760;
  const settings = { height: wide ? 420 : 780, grid: { rows: wide ? 1 : 2, columns: wide ? 2 : 1, pattern: "independent", xgap: 0.14, ygap: 0.2 }, annotations: [] };
  // NETWORKS, what is known of them, comes from the suite's networks.js.
  const read = NETWORKS.names.map((_, place) => place).filter((place) => data.values[place] !== null), few = read.length <= 40;
  NETWORKS.panels.forEach((panel, i) => {
    const x = `x${i ? i + 1 : ""}`, y = `y${i ? i + 1 : ""}`, wrong = data.wrong[i];
    wrong.forEach((pair, place) => traces.push({ x: pair.map((p) => data.values[p]), y: pair.map((p) => panel.errors[p]), xaxis: x, yaxis: y, mode: "lines",
      line: { color: colour.ink, width: 1 }, opacity: 0.5 - 0.35 * place / wrong.length, hoverinfo: "skip", showlegend: place === 0 && i === 0, name: "wrong order", legendgroup: "wrong" }));
    [...new Set(NETWORKS.families)].forEach((family, g) => {
      const points = read.filter((place) => NETWORKS.families[place] === family);
      if (!points.length) return;
      traces.push({ x: points.map((p) => data.values[p]), y: points.map((p) => panel.errors[p]), text: points.map((p) => NETWORKS.names[p]), xaxis: x, yaxis: y, name: family, legendgroup: family,
        showlegend: !shown[family], mode: few ? "markers+text" : "markers", textposition: "top center", textfont: { size: 10.5 }, cliponaxis: false,
        marker: { color: GROUPS[g % 6], symbol: SYMBOLS[g % 6], size: few ? 9 : 7, opacity: few ? 1 : 0.75 }, hovertemplate: `%{text}<br>${data.x} %{x:.6g}<br>error %{y:.4f}<extra></extra>` });
      shown[family] = true;
    });
    settings[`xaxis${i ? i + 1 : ""}`] = axis(colour, { title: { text: data.x }, type: data.log ? "log" : "linear" });
    settings[`yaxis${i ? i + 1 : ""}`] = axis(colour, { title: { text: i && wide ? "" : NETWORKS.y } });
    settings.annotations.push({ text: panel.title, xref: `${x} domain`, yref: `${y} domain`, x: 0.5, y: 1.08, showarrow: false, font: { size: 13 } });
  });
  return [traces, layout(colour, settings)];
}

function heatmaps(data, colour, statistic) {
  const across = innerWidth > 760 ? Math.min(data.models.length, data.models.length === 5 ? 5 : 4) : 2, down = Math.ceil(data.models.length / across);
  // Cells of one size, whatever the distance of their levels: axes count levels, ticks name them.
  const ticks = (levels, most) => { const step = Math.ceil(levels.length / most), at = levels.map((_, k) => k).filter((k) => (levels.length - 1 - k) % step === 0);
    return { tickvals: at, ticktext: at.map((k) => levels[k].toFixed(2)), range: [-0.5, levels.length - 0.5], showgrid: false, zeroline: false }; };
  const settings = { height: 90 + 210 * down, grid: { rows: down, columns: across, pattern: "independent", xgap: 0.08, ygap: 0.3 }, annotations: [],
    coloraxis: { colorscale: statistic.startsWith("error") ? "Viridis" : "Cividis", colorbar: { title: { text: statistic }, thickness: 12 } } };
  const traces = data.maps[statistic].map((z, i) => {
    const end = i ? i + 1 : "", left = i % across === 0, bottom = i + across >= data.models.length;
    settings[`xaxis${end}`] = axis(colour, { ...ticks(data.ssim, 4), title: { text: bottom ? "SSIM" : "" } });
    settings[`yaxis${end}`] = axis(colour, { ...ticks(data.zero_shot, 6), title: { text: left ? "zero-shot" : "" }, showticklabels: left });
    settings.annotations.push({ text: data.models[i], xref: `x${end} domain`, yref: `y${end} domain`, x: 0.5, y: 1.02, yanchor: "bottom", showarrow: false, font: { size: 12 } });
    const levels = data.zero_shot.map((share) => data.ssim.map((ssim) => `SSIM ${ssim}, zero-shot ${share}`));
    return { z, text: levels, type: "heatmap", coloraxis: "coloraxis", xaxis: `x${end}`, yaxis: `y${end}`,
      hovertemplate: `${data.models[i]}<br>%{text}<br>${statistic} %{z:.3f}<extra></extra>` };
  });
  const place = (levels, v) => { let k = 0; while (k < levels.length - 2 && levels[k + 1] < v) k++; return k + (v - levels[k]) / (levels[k + 1] - levels[k]); };
  const end = data.star.model ? data.star.model + 1 : "";
  traces.push({ x: [place(data.ssim, data.star.ssim)], y: [place(data.zero_shot, data.star.zero_shot)], xaxis: `x${end}`, yaxis: `y${end}`, mode: "markers", showlegend: false,
    marker: { symbol: "star", size: 15, color: "#ffffff", line: { color: "#000000", width: 1 } }, hovertemplate: "trade-off point<extra></extra>" });
  return [traces, layout(colour, settings)];
}

function marginals(data, colour) {
  const wide = innerWidth > 760, traces = [];
  const settings = { height: wide ? 400 : 1000, grid: { rows: wide ? 1 : 3, columns: wide ? 3 : 1, pattern: "independent", xgap: 0.1, ygap: 0.25 }, shapes: [] };
  data.marginals.forEach((panel, i) => {
    const end = i ? i + 1 : "";
    Object.entries(panel.curves).forEach(([name, y]) => {
      const [quantity, statistic] = name.split(", ");
      traces.push({ x: panel.levels, y, name, legendgroup: name, showlegend: !i, xaxis: `x${end}`, yaxis: `y${end}`, mode: "lines+markers",
        line: { color: quantity === "error" ? GROUPS[1] : GROUPS[0], dash: DASHES[statistic], width: 2 }, marker: { size: 5 }, opacity: statistic === "M" ? 1 : 0.75,
        hovertemplate: `${name}<br>${panel.axis} %{x}<br>%{y:.4f}<extra></extra>` });
    });
    traces.push({ x: [panel.star.x, panel.star.x], y: panel.star.y, xaxis: `x${end}`, yaxis: `y${end}`, name: "trade-off point", legendgroup: "star", showlegend: !i, mode: "markers",
      marker: { symbol: "star", size: 15, color: "#e0a000", line: { color: colour.ink, width: 1 } }, hovertemplate: `trade-off point<br>${panel.axis} %{x}<br>%{y:.4f}<extra></extra>` });
    settings.shapes.push({ type: "line", xref: `x${end}`, yref: `y${end} domain`, x0: panel.star.x, x1: panel.star.x, y0: 0, y1: 1, line: { color: colour.ink, width: 1, dash: "dot" }, opacity: 0.6 });
    settings[`xaxis${end}`] = axis(colour, { title: { text: panel.axis } });
    settings[`yaxis${end}`] = axis(colour, { title: { text: i && wide ? "" : "mean over the other axes" }, ...(i ? { matches: "y" } : {}) });
  });
  return [traces, layout(colour, settings)];
}

// -- populations: RUNS, the networks of the suite, comes from its runs.js ----------------------------

function levels(hyperparameter) {
  return hyperparameter ? [...new Set(RUNS.hyperparameters[hyperparameter])] : [""];
}

function describe(place, left) {
  const names = Object.keys(RUNS.hyperparameters).filter((name) => name !== left);
  return [...names.map((name) => `${name} ${RUNS.hyperparameters[name][place]}`), `seed ${RUNS.seed[place]}`].join(", ");
}

// One mark per network, coloured by a hyperparameter; hollow where training did not converge.
function networkMarks(x, y, hyperparameter, colour, template) {
  const all = RUNS.gap.map((_, place) => place).filter((place) => x[place] !== null), traces = [];
  levels(hyperparameter).forEach((level, g) => [1, 0].forEach((converged) => {
    const places = all.filter((place) => RUNS.converged[place] === converged && (!hyperparameter || RUNS.hyperparameters[hyperparameter][place] === level));
    if (!places.length) return;
    traces.push({ x: places.map((place) => x[place]), y: places.map((place) => y[place]), text: places.map((place) => describe(place)), mode: "markers",
      name: hyperparameter ? `${hyperparameter} ${level}` : "networks", showlegend: Boolean(converged && hyperparameter), legendgroup: String(level),
      marker: { color: GROUPS[g % 6], symbol: SYMBOLS[g % 6] + (converged ? "" : "-open"), size: 7, opacity: 0.8 }, hovertemplate: template });
  }));
  if (all.some((place) => !RUNS.converged[place])) {
    traces.push({ x: [null], y: [null], mode: "markers", name: "not converged", hoverinfo: "skip", showlegend: true, marker: { color: colour.ink, symbol: "circle-open", size: 7 } });
  }
  return traces;
}

// What measures of this suite are judged by.
function truth() {
  return RUNS.truth ?? { name: "gap", values: RUNS.gap };
}

function gaps(data, colour, hyperparameter) {
  const { name, values } = truth();
  const traces = networkMarks(data.readings, values, hyperparameter, colour, `%{text}<br>${data.x} %{x:.5g}<br>${name} %{y:.4f}<extra></extra>`);
  return [traces, layout(colour, { height: 460, showlegend: true,
    xaxis: axis(colour, { title: { text: data.x }, type: data.log ? "log" : "linear" }), yaxis: axis(colour, { title: { text: name } }) })];
}

function environments(data, colour) {
  const all = Object.values(data.groups).flat();
  const line = (name, errors, style) => {
    const x = errors.map((error) => error / 1000).sort((a, b) => a - b);
    return { x: [0, ...x, 1], y: [0, ...x.map((_, k) => (k + 1) / x.length), 1], name, mode: "lines", line: { shape: "hv", ...style },
      hovertemplate: `${name}<br>sign-error at most %{x:.3f}<br>in %{y:.0%} of environments<extra></extra>` };
  };
  const dashes = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot"];
  const traces = Object.entries(data.groups).filter(([, errors]) => errors.length)
    .map(([name, errors], g) => line(name, errors, { color: GROUPS[g % 6], dash: dashes[g % 6], width: 2 }));
  // Below the others, and wider: where lines coincide both are seen.
  traces.unshift(line("all", all, { color: colour.ink, width: 5 }));
  const settings = { height: 460, shapes: [], annotations: [],
    xaxis: axis(colour, { title: { text: "sign-error" }, range: [-0.01, 1.01], dtick: innerWidth > 760 ? 0.1 : 0.25 }),
    yaxis: axis(colour, { title: { text: "share of environments" }, range: [0, 1.02], tickformat: ".0%" }) };
  Object.entries(data.marks).forEach(([name, value], place) => {
    settings.shapes.push({ type: "line", x0: value, x1: value, yref: "y domain", y0: 0, y1: 1, line: { color: colour.ink, width: 1, dash: "dot" }, opacity: 0.7 });
    // Staggered, and away from the nearer edge: marks may coincide.
    settings.annotations.push({ x: value, yref: "y domain", y: 0.06 + 0.08 * place, xanchor: value > 0.5 ? "right" : "left", text: `${name} ${value.toFixed(3)}`, showarrow: false, bgcolor: colour.page, opacity: 0.9 });
  });
  return [traces, layout(colour, settings)];
}

function boxes(_, colour, hyperparameter) {
  const traces = levels(hyperparameter).map((level, g) => {
    const places = RUNS.gap.map((_gap, place) => place).filter((place) => RUNS.converged[place] && RUNS.hyperparameters[hyperparameter][place] === level);
    return { type: "box", y: places.map((place) => RUNS.gap[place]), text: places.map((place) => describe(place, hyperparameter)), name: String(level), boxpoints: "all", jitter: 0.6, pointpos: -1.7,
      marker: { color: GROUPS[g % 6], size: 5, opacity: 0.75 }, line: { width: 1.6 }, hoveron: "points", hovertemplate: `%{text}<br>gap %{y:.4f}<extra></extra>` };
  });
  return [traces, layout(colour, { height: 420, showlegend: false, xaxis: axis(colour, { title: { text: hyperparameter }, type: "category" }), yaxis: axis(colour, { title: { text: "gap" } }) })];
}

function shift(data, colour, name) {
  const traces = networkMarks(RUNS.gap, data[name], Object.keys(RUNS.hyperparameters)[0], colour, "%{text}<br>IID gap %{x:.4f}<br>OOD gap %{y:.4f}<extra></extra>");
  const both = [...RUNS.gap, ...data[name]], ends = [Math.min(...both), Math.max(...both)];
  traces.push({ x: ends, y: ends, mode: "lines", name: "no cost", showlegend: false, hoverinfo: "skip", line: { color: colour.ink, width: 1, dash: "dot" } });
  return [traces, layout(colour, { height: 460, showlegend: true, xaxis: axis(colour, { title: { text: "IID gap" } }),
    yaxis: axis(colour, { title: { text: `OOD gap, ${name.replaceAll("_", " ")}` } }) })];
}

function severities(data, colour) {
  const names = Object.keys(data.corruptions).reverse(), words = names.map((name) => name.replaceAll("_", " "));
  const z = names.map((name) => data.corruptions[name]);
  return [[{ type: "heatmap", x: data.severities, y: words, z, colorscale: "Viridis", zmin: 0, zmax: 1, colorbar: { title: { text: "accuracy" }, thickness: 12 }, xgap: 2, ygap: 2,
    hovertemplate: "%{y}, severity %{x}<br>accuracy %{z:.3f}<extra></extra>" }],
  layout(colour, { height: 110 + 27 * names.length, margin: { l: 110, r: 20, t: 10, b: 50 }, xaxis: axis(colour, { title: { text: "severity" }, type: "category", showgrid: false }),
    yaxis: axis(colour, { type: "category", showgrid: false }) })];
}

// -- numbers as tables -------------------------------------------------------------------------------

// Columns in `texts` are words; all others are numbers.
function table(caption, heads, rows, texts = {}) {
  const made = document.createElement("table");
  if (caption) made.createCaption().textContent = caption;
  const first = made.createTHead().insertRow(), body = made.createTBody();
  const cell = (row, kind, text, place, scope) => {
    const one = document.createElement(kind);
    one.textContent = text;
    one.className = texts[place] ?? "n";
    if (scope) one.scope = scope;
    row.append(one);
  };
  heads.forEach((text, place) => cell(first, "th", text, place, "col"));
  for (const cells of rows) {
    const row = body.insertRow();
    cells.forEach((text, place) => cell(row, place ? "td" : "th", text, place, place ? "" : "row"));
  }
  return made;
}

function heatmapTables(data, statistic) {
  return data.maps[statistic].map((map, i) => {
    const scroll = document.createElement("div");
    Object.assign(scroll, { className: "wide", tabIndex: 0, role: "region", ariaLabel: `${statistic} of ${data.models[i]}` });
    scroll.append(table(`${data.models[i]}: ${statistic}, rows zero-shot share, columns SSIM`, ["", ...data.ssim],
      data.zero_shot.map((share, k) => [share, ...map[k].map((value) => value.toFixed(3))])));
    return scroll;
  });
}

function combinations(data) {
  const names = Object.keys(RUNS.hyperparameters), found = new Map();
  RUNS.gap.forEach((gap, place) => {
    const values = names.map((name) => RUNS.hyperparameters[name][place]), key = JSON.stringify(values);
    if (!found.has(key)) found.set(key, { values, places: [] });
    if (RUNS.converged[place] && data.readings[place] !== null) found.get(key).places.push(place);
  });
  const mean = (places, of) => places.reduce((sum, place) => sum + of[place], 0) / places.length;
  return [table("", [...names, "networks", "mean reading", `mean ${truth().name}`], [...found.values()].map(({ values, places }) =>
    [...values, places.length, ...(places.length ? [String(Number(mean(places, data.readings).toPrecision(4))), mean(places, truth().values).toFixed(3)] : ["–", "–"])]))];
}

// 004's Figure 3 (e)–(h): a panel per slice; colours tell statistics apart, filled and hollow marks families.
function errors(data, colour) {
  const traces = [], wide = innerWidth > 760, statistics = [...new Set(data.panels.flatMap((panel) => panel.series.map((one) => one.statistic)))];
  const settings = { height: 760, grid: { rows: data.panels.length, columns: 1, pattern: "independent", ygap: 0.12 }, annotations: [], shapes: [],
    legend: { orientation: "h", y: 1.08, yanchor: "bottom", x: 0 } };
  data.panels.forEach((panel, i) => {
    const end = i ? i + 1 : "", last = i === data.panels.length - 1;
    panel.series.forEach((one) => {
      const g = statistics.indexOf(one.statistic), f = data.families.indexOf(one.family);
      traces.push({ x: data.measures, y: one.values, xaxis: `x${end}`, yaxis: `y${end}`, mode: "markers", name: `${one.statistic} of error, ${one.family}`,
        legendgroup: `${one.statistic} ${one.family}`, showlegend: i === 0, cliponaxis: false,
        marker: { color: GROUPS[g % 6], symbol: SYMBOLS[(g + 3 * Math.floor(f / 2)) % 6] + (f % 2 ? "-open" : ""), size: 7, opacity: 0.85 },
        hovertemplate: `%{x}<br>${panel.title}, ${one.statistic} of error, ${one.family}<br>sign-error %{y:.3f}<extra></extra>` });
    });
    settings[`xaxis${end}`] = axis(colour, { type: "category", showticklabels: last && wide, tickangle: -90, tickfont: { size: 9 }, dtick: 1, range: [-0.7, data.measures.length - 0.3] });
    settings[`yaxis${end}`] = axis(colour, { title: { text: "sign-error" }, range: [-0.02, 1.02], dtick: 0.25 });
    settings.shapes.push({ type: "line", xref: `x${end} domain`, yref: `y${end}`, x0: 0, x1: 1, y0: 0.5, y1: 0.5, line: { color: colour.ink, width: 1, dash: "dash" } });
    settings.annotations.push({ text: panel.title, xref: `x${end} domain`, yref: `y${end} domain`, x: 0, y: 1.01, yanchor: "bottom", showarrow: false, font: { size: 13 } });
  });
  return [traces, layout(colour, settings)];
}

const KINDS = { errors, scatter, heatmaps, marginals, gaps, environments, boxes, shift, severities };
function networkTable(data) {
  const read = NETWORKS.names.map((_, place) => place).filter((place) => data.values[place] !== null);
  return [table("", ["network", "family", data.x, ...NETWORKS.panels.map((panel) => `error, ${panel.title}`)], read.map((place) =>
    [NETWORKS.names[place], NETWORKS.families[place], data.values[place], ...NETWORKS.panels.map((panel) => panel.errors[place].toFixed(3))]))];
}

const three = (value) => (value === null ? "–" : value.toFixed(3));

function pairs(data) {
  return [table("", ["slice", "family", "what happened", "sure (sd)"], data.told.map(([panel, better, worse, first, second, sure]) => {
    const { title, errors } = NETWORKS.panels[panel], one = NETWORKS.names[better], other = NETWORKS.names[worse];
    return [title, NETWORKS.families[better], `${one} errs less than ${other} (${three(errors[better])} against ${three(errors[worse])}), but ${data.x} reads ${first} for ${one} and ${second} for ${other}.`, sure];
  }), { 0: "", 1: "status", 2: "why" })];
}

function parts(data) {
  const families = [...new Set(NETWORKS.families)];
  return [table("", ["family", "slice", "statistic", "sign-error", "95 %", "noise-aware", "pairs", "sure pairs", "ties"], data.parts.map(([family, panel, statistic, value, low, high, aware, ...counts]) =>
    [families[family], NETWORKS.panels[panel].title, `${statistic} of error`, three(value), `${three(low)} – ${three(high)}`, three(aware), ...counts]), { 0: "status", 1: "status", 2: "status" })];
}

function scores(data) {
  const [kept, available] = data.environments;
  const meanings = [["sign-error", `Mean over the ${kept} environments kept of ${available} (001); ranks the board`], ...RUNS.scores];
  return [table("", ["score", "value", "95 %", "what it means"], meanings.map(([label, about], place) => [label, ...data.scores[place], about]), { 0: "", 3: "" })];
}

function axes(data) {
  return [table("", ["differs", "mean", "90th %", "max", "environments"], data.axes.map(([name, mean, p90, max, kept, available]) => [name, mean, p90, max, `${kept} of ${available}`]), { 0: "" })];
}

function worst(data) {
  return [table("", ["differs", "from – to", "everything else", "effective pairs", "sign-error"], data.worst, { 0: "", 1: "status", 2: "" })];
}

const TABLES = { heatmaps: heatmapTables, combinations, networks: networkTable, pairs, parts, scores, axes, worst };

const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

// What `display/packed.py` packs: three letters a number, of which four digits are right.
function unpack({ sign, low, step, codes }) {
  return (codes.match(/.../g) ?? []).map((letters) => {
    const code = [...letters].reduce((sum, letter) => 64 * sum + LETTERS.indexOf(letter), 0);
    if (code === 64 ** 3 - 1) return null;
    const value = low + code * step;
    return Number((sign ? sign * Math.exp(value) : value).toPrecision(4));
  });
}

// The JSON of a page, parsed and unpacked once.
const PARSED = {};
function read(id) {
  if (!(id in PARSED)) {
    const data = PARSED[id] = JSON.parse(document.getElementById(id).textContent);
    for (const name of ["readings", "values"]) if (data[name]?.codes !== undefined) data[name] = unpack(data[name]);
  }
  return PARSED[id];
}

function draw(place) {
  const data = place.dataset.from ? read(place.dataset.from) : undefined;
  const choice = place.dataset.choice ? document.getElementById(place.dataset.choice).value : undefined;
  if (place.dataset.table) {
    place.replaceChildren(...TABLES[place.dataset.table](data, choice));
    return;
  }
  const [traces, settings] = KINDS[place.dataset.kind](data, colours(), choice);
  Plotly.react(place, traces, settings, { responsive: true, displayModeBar: false });
}

document.addEventListener("DOMContentLoaded", () => {
  const places = [...document.querySelectorAll(".plot, [data-table]")];
  const drawAll = () => places.forEach(draw);
  drawAll();
  document.addEventListener("themechange", drawAll);
  for (const place of places) {
    if (place.dataset.choice) document.getElementById(place.dataset.choice).addEventListener("change", () => draw(place));
  }
});
