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
  data.panels.forEach((panel, i) => {
    const x = `x${i ? i + 1 : ""}`, y = `y${i ? i + 1 : ""}`;
    panel.wrong.forEach(([one, other], place) => traces.push({ x: [one[0], other[0]], y: [one[1], other[1]], xaxis: x, yaxis: y, mode: "lines",
      line: { color: colour.ink, width: 1 }, opacity: 0.5 - 0.35 * place / panel.wrong.length, hoverinfo: "skip", showlegend: place === 0 && i === 0, name: "wrong order", legendgroup: "wrong" }));
    Object.entries(panel.groups).forEach(([family, points], g) => {
      traces.push({ x: points.map((p) => p.x), y: points.map((p) => p.y), text: points.map((p) => p.name), xaxis: x, yaxis: y, name: family, legendgroup: family,
        showlegend: !shown[family], mode: "markers+text", textposition: "top center", textfont: { size: 10.5 }, cliponaxis: false,
        marker: { color: GROUPS[g % 6], symbol: SYMBOLS[g % 6], size: 9 }, hovertemplate: `%{text}<br>${data.x} %{x:.6g}<br>error %{y:.4f}<extra></extra>` });
      shown[family] = true;
    });
    settings[`xaxis${i ? i + 1 : ""}`] = axis(colour, { title: { text: data.x }, type: data.log ? "log" : "linear" });
    settings[`yaxis${i ? i + 1 : ""}`] = axis(colour, { title: { text: i && wide ? "" : data.y } });
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

const KINDS = { scatter, heatmaps, marginals };

function draw(place) {
  const data = JSON.parse(document.getElementById(place.dataset.from).textContent);
  const choice = place.dataset.choice ? document.getElementById(place.dataset.choice).value : undefined;
  const [traces, settings] = KINDS[place.dataset.kind](data, colours(), choice);
  Plotly.react(place, traces, settings, { responsive: true, displayModeBar: false });
}

document.addEventListener("DOMContentLoaded", () => {
  const places = [...document.querySelectorAll(".plot")];
  const drawAll = () => places.forEach(draw);
  drawAll();
  document.addEventListener("themechange", drawAll);
  for (const place of places) {
    if (place.dataset.choice) document.getElementById(place.dataset.choice).addEventListener("change", () => draw(place));
  }
});
