// Labels with their scores as bars.
import { h, percent, short } from "./dom.js";

/** `rows`: { label, score }; scores outside [0, 1] are shown as numbers. */
export function bars(rows, { name = "Scores", most = 10 } = {}) {
  const shares = rows.every((row) => row.score >= 0 && row.score <= 1);
  const shown = rows.slice(0, most).map((row, index) =>
    h(
      "li",
      { class: index ? "bar" : "bar first" },
      h("span", { class: "bar-label" }, row.label),
      shares && h("span", { class: "bar-track", "aria-hidden": "true" }, h("span", { class: "bar-fill", style: { width: `${100 * row.score}%` } })),
      h("span", { class: "bar-value" }, shares ? percent(row.score) : short(row.score)),
    ),
  );
  const rest = rows.length - shown.length;
  return [h("ol", { class: "bars", "aria-label": name }, shown), rest > 0 && h("p", { class: "quiet" }, `and ${rest} more`)];
}
