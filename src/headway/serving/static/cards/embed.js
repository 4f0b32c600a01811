// How similar two texts are, by the cosine of their vectors.
import { segment } from "../api.js";
import { h, short, show, svg } from "../dom.js";

export const card = {
  verb: () => "Compare",
  fields: () => [
    { kind: "text", name: "first", label: "First text", required: true, rows: 2, params: ["inputs"], value: "How do I reset my password?" },
    { kind: "text", name: "second", label: "Second text", required: true, rows: 2, value: "I forgot my login and cannot get in." },
  ],
  call: ({ first, second }, model) => ({ path: `/models/${segment(model.id)}`, json: { inputs: [first, second], normalize: true } }),
  async answer(response, values, { output }) {
    const [a, b] = await response.json();
    const cosine = a.reduce((sum, value, i) => sum + value * b[i], 0);
    show(
      output,
      h("p", { class: "figure-number" }, h("strong", {}, cosine.toFixed(3)), " similarity (cosine, from −1 to 1)"),
      h("div", { class: "bar-track tall", "aria-hidden": "true" }, h("span", { class: "bar-fill", style: { width: `${Math.max(0, 50 + 50 * cosine)}%` } })),
      h("div", { class: "grid" }, vector(a, "First text"), vector(b, "Second text")),
    );
  },
};

/** The numbers of a vector as thin bars. */
function vector(values, label) {
  const shown = values.slice(0, 128);
  const most = Math.max(...shown.map(Math.abs)) || 1;
  const lines = shown.map((value, i) => svg("rect", { x: i * 3, width: 2, y: value > 0 ? 24 - (22 * value) / most : 24, height: Math.max(0.5, (22 * Math.abs(value)) / most), class: "cell" }));
  const drawing = svg("svg", { viewBox: `0 0 ${shown.length * 3} 48`, preserveAspectRatio: "none", class: "vector", role: "img", "aria-label": `${label}: ${values.length} numbers, the first ${shown.slice(0, 3).map(short).join(", ")}` }, lines);
  return h("figure", {}, drawing, h("figcaption", { class: "quiet" }, `${label}: ${values.length} numbers`));
}
