// A matrix as a picture: one pixel a number, enlarged; pointer and arrow keys read the numbers out.

const SMALLEST_LABEL = 11;

// options: name; index(i, j) in the whole tensor and its shape; matrix; labels of rows and columns; kind and most, for
// the colour; mask, 0 where nothing may be seen; note(i, j); pick(i, j); cell, its height in px; square cells or not;
// label, for screen readers. `show` changes any of them but the sizes and labels, and draws again in place.
function heatMap(options) {
  const { rows, columns = null, cell, square = false } = options;
  const [height, width] = options.matrix.shape;
  const canvas = el("canvas", { width, height, tabindex: 0, role: "application" });
  const [cursor, mark] = ["cursor", "cursor chosen"].map((name) => el("div", { class: name, hidden: true }));
  const side = (name, labels) => {
    if (!labels || cell < SMALLEST_LABEL) return null;
    const texts = labels.map((text) => brief(text, name === "rows" ? 18 : 14));
    return el("div", { class: name, "aria-hidden": "true" }, texts);
  };
  const lines = ([row, column]) => {
    const { matrix, mask } = options;
    const index = (options.index?.(row, column) ?? [row, column]).join(", ");
    const hidden = mask && !mask[row * width + column];
    const value = hidden ? "masked" : number(matrix.at(row, column), 6);
    return [
      `${options.name}[${index}] = ${value}`,
      `shape ${(options.shape ?? [height, width]).join(" × ")}`,
      rows && `${options.rowWord ?? "token"}: ${rows[row]}${columns ? ` → ${columns[column]}` : ""}`,
      options.note?.(row, column),
    ].filter(Boolean);
  };
  const moveTo = readCells(canvas, cursor, lines, options.pick);
  const frame = el("div", { class: "frame" }, canvas, mark, cursor);
  const sizes = { "--cell": `${cell}px`, "--wide": width, "--high": height };
  const sides = [side("columns", columns), side("rows", rows)];
  const kind = square ? " square" : sides.some(Boolean) ? "" : " bare";
  const node = el("div", { class: `heat${kind}`, css: sizes }, sides, frame);
  node.choose = (row, column) => {
    moveTo([row, column]);
    cover(mark, canvas, [row, column]);
  };
  node.chooseRow = (row) => {
    cover(mark, { width: 1, height }, [row, 0]);
  };
  node.show = (changes = {}) => {
    Object.assign(options, changes);
    const { name, label = name, matrix, kind, most = largestSize(matrix.values) || 1, mask } = options;
    canvas.setAttribute("aria-label", `${label}, ${height} by ${width}. Arrow keys read the numbers.`);
    paint(canvas, matrix, kind, most, mask);
  };
  node.show();
  return node;
}

// Puts a box over one cell.
function cover(box, { width, height }, [row, column]) {
  const share = { left: column / width, top: row / height, width: 1 / width, height: 1 / height };
  for (const [side, part] of Object.entries(share)) box.style.setProperty(side, `${100 * part}%`);
  box.hidden = false;
}

// Pointer and arrow keys read the cells of a canvas out, a press or Enter picks one. Returns a function that moves the position.
function readCells(canvas, cursor, lines, pick) {
  const { width, height } = canvas;
  let at = [0, 0];
  const look = (next, x, y) => {
    at = next;
    cover(cursor, canvas, at);
    showTip(lines(at), x, y);
  };
  const leave = () => {
    cursor.hidden = true;
    hideTip();
  };
  const point = (event) => {
    const box = canvas.getBoundingClientRect();
    const row = Math.floor(((event.clientY - box.top) / box.height) * height);
    const column = Math.floor(((event.clientX - box.left) / box.width) * width);
    if (row >= 0 && column >= 0 && row < height && column < width) look([row, column], event.clientX, event.clientY);
  };
  const walk = ([down, across]) => {
    const box = canvas.getBoundingClientRect();
    const row = Math.min(height - 1, Math.max(0, at[0] + down));
    const column = Math.min(width - 1, Math.max(0, at[1] + across));
    look([row, column], box.left + ((column + 0.5) / width) * box.width, box.top + ((row + 0.5) / height) * box.height);
    say(lines(at).join("; "));
  };
  canvas.addEventListener("pointermove", point);
  canvas.addEventListener("pointerdown", point);
  canvas.addEventListener("pointerleave", leave);
  canvas.addEventListener("blur", leave);
  canvas.addEventListener("click", () => pick?.(...at));
  canvas.addEventListener("focus", () => {
    if (canvas.matches(":focus-visible")) walk([0, 0]);
  });
  canvas.addEventListener("keydown", (event) => {
    if (ARROWS[event.key]) walk(ARROWS[event.key]);
    else if (event.key === "Enter" || event.key === " ") pick?.(...at);
    else return;
    event.preventDefault();
  });
  return (next) => {
    at = next;
  };
}

// A height for rows so that few tokens are read at ease and many still fit on a screen.
const rowHeight = (count) => (count <= 16 ? 20 : count <= 32 ? 14 : count <= 64 ? 8 : count <= 128 ? 5 : 3);

// Cells of a token × token map: as large as the place allows, no larger than is pleasant.
function squareCell(place, columns, shares = 1) {
  const width = Math.max(200, place.clientWidth / (place.clientWidth > 700 ? shares : 1) - 120);
  return Math.max(1, Math.min(34, Math.floor(width / columns)));
}
