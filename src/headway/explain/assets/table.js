// Tables of numbers with bars beside them. A table is one tab stop; arrow keys walk its cells.

function table(columns, rows, properties = {}) {
  const titles = columns.filter(Boolean).map((title) => el("th", { scope: "col" }, title));
  const head = titles.length ? el("thead", {}, el("tr", {}, titles)) : null;
  const body = el("tbody", {}, rows);
  return el("div", { class: "scroll" }, walkable(el("table", { class: "sums", ...properties }, head, body)));
}

const line = (title, cells, properties = {}) => el("tr", properties, el("th", { scope: "row" }, title), cells);

// `lines` says what the number is, see `describe`.
const cell = (text, lines) => describe(el("td", { class: "n", "data-walk": "1", text }), lines);

function barCell(value, most, text, lines) {
  const size = Math.min(1, Math.abs(value) / (most || 1));
  const bar = el("span", { class: `bar ${value < 0 ? "less" : "more"}`, css: { "--size": size } });
  return describe(el("td", { "data-walk": "1" }, el("span", { class: "n", text }), bar), lines);
}

const pressable = (content, press) => el("button", { type: "button", class: "link", onclick: press }, content);

function walkable(table) {
  const cells = () => Array.from(table.rows, (row) => Array.from(row.cells).filter((cell) => cell.dataset.walk));
  const first = table.querySelector("[data-walk]");
  if (first) first.tabIndex = 0;
  table.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!step) return;
    const grid = cells().filter((row) => row.length);
    const row = grid.findIndex((each) => each.includes(event.target));
    if (row < 0) return;
    const column = grid[row].indexOf(event.target);
    const next = grid[row + step[0]]?.[column + step[1]];
    if (!next) return;
    event.preventDefault();
    event.target.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
  return table;
}
