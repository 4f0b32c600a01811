// What the check of a data file has found.
import { bars } from "./bars.js";
import { count, duration, h, size } from "./dom.js";

export function checkReport(report) {
  const labels = Object.entries(report.labels ?? {});
  const total = labels.reduce((sum, [, number]) => sum + number, 0);
  const facts = [
    ["examples", count(report.examples)],
    ["held out", count(report.held_out)],
    report.duplicates && ["duplicates", count(report.duplicates)],
    report.contradictions && ["contradictions", count(report.contradictions)],
    report.overlap && ["also held out", count(report.overlap)],
    ...estimates(report.estimates ?? {}),
  ].filter(Boolean);
  const lengths = Object.entries(report.lengths ?? {});
  return h(
    "section",
    { "aria-label": "Check" },
    h("h3", {}, report.warnings?.length ? "Checked, with warnings" : "Checked: ready to train"),
    h("dl", { class: "tiles" }, facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)))),
    report.warnings?.length ? h("ul", { class: "findings" }, report.warnings.map((each) => h("li", {}, each))) : null,
    labels.length ? [h("h3", {}, `${count(labels.length)} labels`), bars(labels.map(([label, number]) => ({ label, score: number / total })), { name: "Labels" })] : null,
    lengths.length ? [h("h3", {}, "Lengths in tokens"), table(lengths)] : null,
  );
}

function estimates({ steps, seconds, peak_bytes: peak }) {
  return [steps && ["steps", count(Math.round(steps))], seconds && ["time", duration(seconds)], peak && ["memory", size(peak)]];
}

function table(lengths) {
  const columns = ["min", "median", "p95", "max"];
  const row = ([part, found]) => h("tr", {}, h("th", { scope: "row" }, part), columns.map((each) => h("td", { class: "number" }, count(found[each]))));
  return h("table", { class: "plain" }, h("thead", {}, h("tr", {}, h("td", {}), columns.map((each) => h("th", { scope: "col", class: "number" }, each)))), h("tbody", {}, lengths.map(row)));
}
