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

// A number with its bar; `show` gives it another number, in place. Hundreds change at once: so the number is one text
// in a box of its own, and the bar a background, whose length moves nothing else.
function barCell(value, most, text, lines) {
  const [shown, bar] = [new Text(), el("span", { class: "bar" })];
  const node = describe(el("td", { class: "barred", "data-walk": "1" }, el("span", { class: "n" }, shown), bar), lines);
  node.show = (next, limit, words) => {
    if (shown.data !== words) shown.data = words;
    const share = Math.min(1, Math.abs(next) / (limit || 1));
    bar.style.setProperty("background-size", `max(1px, ${(100 * share).toFixed(1)}%)`);
    bar.classList.toggle("less", next < 0);
  };
  node.show(value, most, text);
  return node;
}

const pressable = (content, press = null) => el("button", { type: "button", class: "link", onclick: press }, content);

// Marks one of several nodes by an attribute; returns a function that marks another.
function oneOf(nodes, attribute = "aria-pressed") {
  nodes.forEach((node) => node.setAttribute(attribute, "false"));
  let on = null;
  return (index) => {
    if (nodes[index] === on) return;
    on?.setAttribute(attribute, "false");
    on = nodes[index] ?? null;
    on?.setAttribute(attribute, "true");
  };
}

// The cells are those with data-walk: by rows in a table, one after the other elsewhere.
function walkable(node) {
  const cells = (place) => [...place.querySelectorAll("[data-walk]")];
  const grid = () => (node.rows ? [...node.rows].map(cells).filter((row) => row.length) : [cells(node)]);
  if (cells(node).length) cells(node)[0].tabIndex = 0;
  node.addEventListener("keydown", (event) => {
    const rows = grid();
    const row = rows.findIndex((each) => each.includes(event.target));
    if (!ARROWS[event.key] || row < 0) return;
    const [down, across] = ARROWS[event.key];
    const next = rows[row + down]?.[rows[row].indexOf(event.target) + across];
    if (!next) return;
    event.preventDefault();
    event.target.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
  return node;
}
