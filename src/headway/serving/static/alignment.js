// Which source tokens each target token attends to, as a heat map.
import { h, percent, svg } from "./dom.js";
import { visible } from "./tokens.js";

const CELL = 22;

export function alignment({ source, target, weights }) {
  const letters = (tokens) => 8 * Math.min(16, Math.max(...tokens.map((each) => Array.from(each).length)));
  const [left, top] = [letters(target) + 14, letters(source) + 14];
  const [width, height] = [left + CELL * source.length + 8, top + CELL * target.length + 8];
  const cut = (text) => (Array.from(text).length > 16 ? `${Array.from(text).slice(0, 15).join("")}…` : visible(text));
  const columns = source.map((token, x) => {
    const [cx, cy] = [left + CELL * (x + 0.5) + 4, top - 6];
    return svg("text", { x: cx, y: cy, transform: `rotate(-90 ${cx} ${cy})`, class: "axis" }, cut(token));
  });
  const rows = target.map((token, y) => svg("text", { x: left - 8, y: top + CELL * (y + 0.5) + 4, "text-anchor": "end", class: "axis" }, cut(token)));
  const cells = weights.flatMap((row, y) =>
    row.map((weight, x) =>
      svg("rect", { x: left + CELL * x + 1, y: top + CELL * y + 1, width: CELL - 2, height: CELL - 2, rx: 3, class: "cell", "fill-opacity": Math.max(0.04, weight).toFixed(3) },
        svg("title", {}, `${visible(target[y])} attends to ${visible(source[x])}: ${percent(weight)}`)),
    ),
  );
  const best = target.map((token, y) => `${token} to ${source[weights[y].indexOf(Math.max(...weights[y]))]}`).join("; ");
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": `Alignment, strongest links: ${best}` }, columns, rows, cells);
  return h("figure", { class: "figure" }, h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Alignment" }, drawing), h("figcaption", { class: "quiet" }, "Rows: the answer's tokens. Columns: the source's. Darker: more attention, mean over the heads of the last layer."));
}
