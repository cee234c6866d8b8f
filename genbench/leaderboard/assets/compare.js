"use strict";
// Two to four measures side by side; their names are the fragment of the address.
document.addEventListener("DOMContentLoaded", () => {
  const data = JSON.parse(document.getElementById("measures").textContent);
  const table = document.getElementById("comparison");
  const picked = document.getElementById("picked");
  const add = document.getElementById("add");
  const questions = ["chance", "size", "fit", "settings"];
  const order = Object.keys(data.measures);
  const known = (name) => Object.prototype.hasOwnProperty.call(data.measures, name);
  const chosen = () => decodeURIComponent(location.hash.slice(1)).split("+").filter(known).slice(0, 4);
  const choose = (names) => { location.hash = names.map(encodeURIComponent).join("+"); };

  function element(tag, text, attributes) {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    for (const [name, value] of Object.entries(attributes || {})) made.setAttribute(name, value);
    return made;
  }

  function line(body, label, texts) {
    const row = element("tr");
    row.append(element("th", label, { scope: "row" }));
    for (const text of texts) row.append(element("td", text === null || text === undefined ? "–" : String(text)));
    body.append(row);
  }

  function draw() {
    const names = chosen();
    picked.replaceChildren(...names.map((name) => {
      const button = element("button", `${name} ×`, { type: "button", "aria-label": `remove ${name}` });
      button.addEventListener("click", () => choose(names.filter((other) => other !== name)));
      return button;
    }));
    table.replaceChildren();
    if (!names.length) return;
    const head = element("thead"), top = element("tr");
    top.append(element("th", "", { scope: "col" }));
    for (const name of names) top.append(element("th", name, { scope: "col" }));
    head.append(top);
    const body = element("tbody");
    line(body, "what it is", names.map((name) => data.measures[name].summary));
    line(body, "family", names.map((name) => data.measures[name].family));
    data.suites.forEach((suite, place) => {
      const found = names.map((name) => data.measures[name].suites[place]);
      const each = (pick) => found.map((one) => (one === null ? null : pick(one)));
      const title = element("tr"), cell = element("th", suite, { scope: "rowgroup", colspan: String(names.length + 1) });
      title.append(cell);
      body.append(title);
      line(body, "sign-error", each((one) => (one.value === null ? null : one.value.toFixed(3))));
      line(body, "95 %", each((one) => (one.low === null ? null : `${one.low.toFixed(3)} – ${one.high.toFixed(3)}`)));
      line(body, "rank", each((one) => one.rank));
      questions.forEach((question, number) => line(body, question, each((one) => one.marks[number])));
      line(body, "seconds", each((one) => one.seconds));
      line(body, "trust", each((one) => one.trust));
      line(body, "surely different from", names.map((name) => {
        if (data.measures[name].suites[place] === null) return null;
        const apart = data.apart[place][name];
        return names.filter((other) => apart[order.indexOf(other)] === "1").join(", ") || "none of these";
      }));
    });
    table.append(head, body);
  }

  document.getElementById("chosen").addEventListener("submit", (event) => event.preventDefault());
  add.addEventListener("change", () => {
    const names = chosen();
    if (known(add.value) && !names.includes(add.value) && names.length < 4) choose([...names, add.value]);
    add.value = "";
  });
  window.addEventListener("hashchange", draw);
  draw();
});
