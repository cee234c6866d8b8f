// Theme, and the board's table: sorting, filtering, hiding columns. No dependencies, no requests.
"use strict";

(function theme() {
  const root = document.documentElement;
  const remembered = () => { try { return localStorage.getItem("genbench-theme"); } catch { return null; } };
  const dark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  if (["light", "dark"].includes(remembered())) root.dataset.theme = remembered();
  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const show = () => { button.textContent = dark() ? "Light" : "Dark"; button.setAttribute("aria-label", `Switch to ${dark() ? "light" : "dark"} colours`); };
    button.hidden = false;
    button.addEventListener("click", () => {
      root.dataset.theme = dark() ? "light" : "dark";
      try { localStorage.setItem("genbench-theme", root.dataset.theme); } catch { /* not remembered, then */ }
      show();
      document.dispatchEvent(new Event("themechange"));
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { show(); document.dispatchEvent(new Event("themechange")); });
    show();
  });
})();

document.addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll("table.board")) boardTable(table);
});

function boardTable(table) {
  const controls = document.getElementById("controls");
  const said = document.getElementById("said");
  const heads = [...table.tHead.rows[0].cells];
  const rows = [...table.tBodies[0].rows];
  const first = new Map(rows.map((row, place) => [row, place]));

  // Sorting: numbers by data-value, texts by themselves; what has no value goes last either way.
  const value = (row, column) => {
    const cell = row.cells[column];
    const text = "value" in cell.dataset ? cell.dataset.value : cell.textContent.trim();
    return text === "" ? null : heads[column].dataset.kind === "text" ? text : Number(text);
  };
  heads.forEach((head, column) => {
    const button = head.querySelector("button");
    if (!button) return;
    button.addEventListener("click", () => {
      const descending = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((other) => other.querySelector("button") && other.setAttribute("aria-sort", "none"));
      head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      const sign = descending ? -1 : 1;
      rows.sort((one, other) => {
        const a = value(one, column), b = value(other, column);
        if (a === null || b === null) return (a === null) - (b === null) || first.get(one) - first.get(other);
        const order = typeof a === "string" ? a.localeCompare(b) : a - b;
        return sign * order || first.get(one) - first.get(other);
      });
      table.tBodies[0].append(...rows);
      said.textContent = `sorted by ${button.textContent.trim()}, ${descending ? "highest" : "lowest"} first`;
    });
  });

  // Filtering never hides a baseline: without it a score says nothing.
  const search = document.getElementById("search"), family = document.getElementById("family");
  const filter = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const fits = (!family.value || row.dataset.family === family.value) && words.every((word) => row.dataset.text.includes(word));
      row.hidden = !fits && !row.classList.contains("baseline");
      shown += fits;
    }
    said.textContent = `${shown} of ${rows.length} measures fit` + (shown < rows.length ? "; baselines are always shown" : "");
  };
  search.addEventListener("input", filter);
  family.addEventListener("change", filter);

  // Hiding columns; the measure's name stays.
  const choices = document.getElementById("columns");
  heads.forEach((head, column) => {
    if (!choices || head.dataset.fixed !== undefined) return;
    const label = document.createElement("label"), box = document.createElement("input");
    box.type = "checkbox";
    box.checked = true;
    box.dataset.column = column;
    label.append(box, head.dataset.label || head.textContent.trim());
    choices.append(label);
    box.addEventListener("change", () => {
      for (const row of table.rows) row.cells[column].hidden = !box.checked;
      said.textContent = `column ${label.textContent} ${box.checked ? "shown" : "hidden"}`;
    });
  });
  controls.hidden = false;

  const port = table.parentElement;
  const fit = () => { port.classList.remove("fits"); port.classList.toggle("fits", table.scrollWidth <= port.offsetWidth); };
  addEventListener("resize", fit);
  if (choices) choices.addEventListener("change", fit);
  fit();
}
