// A matrix as a picture: one pixel a number, enlarged; pointer and arrow keys read the numbers out.

const SMALLEST_LABEL = 11;

// options: name; index(i, j) in the whole tensor and its shape; matrix; labels of rows and columns; kind and most, for
// the colour; hidden(i, j); note(i, j); pick(i, j); cell, its height in px; square cells or not; label, for the ear.
function heatMap(options) {
  const { matrix, rows, columns = null, kind, cell, square = false } = options;
  const [height, width] = matrix.shape;
  const most = options.most ?? (largestSize(matrix.values) || 1);
  const canvas = el("canvas", { width, height, tabindex: 0, role: "application", "aria-roledescription": "heat map" });
  canvas.setAttribute(
    "aria-label",
    `${options.label ?? options.name}, ${height} by ${width}. Arrow keys read the numbers.`,
  );
  const cursor = el("div", { class: "cursor", hidden: true });
  const mark = el("div", { class: "cursor chosen", hidden: true });
  const frame = el("div", { class: "frame" }, canvas, mark, cursor);
  const labelled = cell >= SMALLEST_LABEL;
  const node = el(
    "div",
    { class: `heat${square ? " square" : ""}`, css: { "--cell": `${cell}px`, "--wide": width, "--high": height } },
    columns &&
      labelled &&
      el(
        "div",
        { class: "columns", "aria-hidden": "true" },
        columns.map((text) => bdi(text)),
      ),
    rows &&
      labelled &&
      el(
        "div",
        { class: "rows", "aria-hidden": "true" },
        rows.map((text) => bdi(text)),
      ),
    frame,
  );
  let at = [0, 0];

  const place = (box, [row, column]) => {
    for (const [side, part] of [
      ["left", column / width],
      ["top", row / height],
      ["width", 1 / width],
      ["height", 1 / height],
    ]) {
      box.style.setProperty(side, `${100 * part}%`);
    }
    box.hidden = false;
  };

  const lines = ([row, column]) => {
    const index = (options.index?.(row, column) ?? [row, column]).join(", ");
    const value = options.hidden?.(row, column) ? "masked: may not be looked at" : number(matrix.at(row, column), 6);
    return [
      `${options.name}[${index}] = ${value}`,
      `shape ${(options.shape ?? [height, width]).join(" × ")}`,
      rows && `${options.rowWord ?? "token"}: ${rows[row]}${columns ? ` → ${columns[column]}` : ""}`,
      options.note?.(row, column),
    ];
  };

  const look = (next, x, y) => {
    at = next;
    place(cursor, at);
    showTip(lines(at), x, y);
  };

  const point = (event) => {
    const box = canvas.getBoundingClientRect();
    const row = Math.floor(((event.clientY - box.top) / box.height) * height);
    const column = Math.floor(((event.clientX - box.left) / box.width) * width);
    if (row < 0 || column < 0 || row >= height || column >= width) return;
    look([row, column], event.clientX, event.clientY);
  };
  canvas.addEventListener("pointermove", point);
  canvas.addEventListener("pointerdown", point);
  canvas.addEventListener("pointerleave", () => {
    cursor.hidden = true;
    hideTip();
  });
  canvas.addEventListener("click", () => options.pick?.(...at));
  canvas.addEventListener("focus", () => {
    if (!canvas.matches(":focus-visible")) return;
    const box = canvas.getBoundingClientRect();
    look(at, box.left, box.top);
  });
  canvas.addEventListener("blur", () => {
    cursor.hidden = true;
    hideTip();
  });
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (step) {
      event.preventDefault();
      const next = [
        Math.min(height - 1, Math.max(0, at[0] + step[0])),
        Math.min(width - 1, Math.max(0, at[1] + step[1])),
      ];
      const box = canvas.getBoundingClientRect();
      look(next, box.left + ((next[1] + 0.5) / width) * box.width, box.top + ((next[0] + 0.5) / height) * box.height);
      say(lines(next).filter(Boolean).join("; "));
    } else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      options.pick?.(...at);
    }
  });

  paint(canvas, matrix, kind, most, options.hidden);
  node.choose = (row, column) => {
    at = [row, column];
    place(mark, at);
  };
  return node;
}

function paint(canvas, matrix, kind, most, hidden = null) {
  const [height, width] = matrix.shape;
  const image = new ImageData(width, height);
  const values = matrix.values;
  for (let i = 0; i < values.length; i++) {
    const rgb = shade(kind, values[i], most);
    image.data[4 * i] = rgb[0];
    image.data[4 * i + 1] = rgb[1];
    image.data[4 * i + 2] = rgb[2];
    image.data[4 * i + 3] = hidden?.(Math.floor(i / width), i % width) ? 0 : 255;
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
}

// A height for rows so that few tokens are read at ease and many still fit on a screen.
const rowHeight = (count) => (count <= 16 ? 20 : count <= 32 ? 14 : count <= 64 ? 8 : count <= 128 ? 5 : 3);

// Cells of a token × token map: as large as the place allows, no larger than is pleasant.
function squareCell(place, columns, shares = 1) {
  const room = Math.max(200, place.clientWidth / (place.clientWidth > 700 ? shares : 1) - 120);
  return Math.max(1, Math.min(34, Math.floor(room / columns)));
}
