// Several runs side by side: their curves in one chart each, their scores, and the settings in which they differ.
import { getJson, segment } from "./api.js";
import { chart, key } from "./curves.js";
import { count, duration, h, short, show } from "./dom.js";
import { curvesOf, follow } from "./log.js";
import { stateChip } from "./run-state.js";
import { empty } from "./states.js";

const MOST = 5;

export async function open(root) {
  const given = location.hash.replace("#/compare", "").replace("/", ""); // commas in names are encoded
  const names = given.split(",").filter(Boolean).map(decodeURIComponent).slice(0, MOST);
  const back = h("p", {}, h("a", { href: "#/runs" }, "All runs"));
  if (names.length < 2) return void show(root, back, empty("Nothing to compare", "Choose two to five runs in the list."));
  const details = await Promise.all(names.map((each) => getJson(`/studio/runs/${segment(each)}`)));
  const logs = names.map(() => ({ entries: [], run: null }));
  const charts = h("div", { class: "charts" });
  const table = h("div", { class: "card" });
  const legend = h("ul", { class: "legend", "aria-label": "Lines" }, names.map((each, index) => h("li", {}, key(index), each)));
  let frame = 0;

  function draw() {
    frame = 0;
    const found = logs.map((log) => curvesOf(log.entries));
    const titles = [...new Set(found.flatMap((each) => [...each.keys()]))].filter((title) => title !== "Learning rate");
    const lines = (title) => found.map((each, index) => ({ name: names[index], points: each.get(title) ?? [], index }));
    show(charts, titles.map((title) => chart(title, lines(title))));
    show(table, h("h3", {}, "Results"), results(logs.map((log, i) => log.run ?? details[i])), h("h3", {}, "Settings that differ"), differences(names, details));
  }
  const close = names.map((each, index) =>
    follow(each, (log) => {
      logs[index] = log;
      frame ||= requestAnimationFrame(draw);
    }),
  );
  show(root, back, h("div", { class: "head-row" }, h("h2", {}, "Comparison"), legend), charts, table);
  draw();
  return () => {
    close.forEach((each) => each());
    cancelAnimationFrame(frame);
  };
}

function results(runs) {
  const scores = [...new Set(runs.flatMap((run) => Object.keys(run.scores ?? {})))];
  const row = (title, cell, type = "number") => h("tr", {}, h("th", { scope: "row" }, title), runs.map((run) => h("td", { class: type }, cell(run))));
  const rows = [
    row("state", (run) => stateChip(run.state)),
    row("steps", (run) => count(run.step)),
    row("time", (run) => duration(run.seconds)),
    row("parameters", (run) => (run.parameters ? count(run.parameters) : "–")),
    ...scores.map((name) => row(name, (run) => (run.scores?.[name] === undefined ? "–" : short(run.scores[name])))),
  ];
  return h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Results" }, h("table", { class: "plain" }, head(runs.map((run) => run.name)), h("tbody", {}, rows)));
}

function differences(names, runs) {
  const plans = runs.map((run) => run.plan ?? {});
  const keys = [...new Set(plans.flatMap((plan) => Object.keys(plan)))].filter((each) => each !== "why" && new Set(plans.map((plan) => String(plan[each]))).size > 1);
  if (!keys.length) return h("p", { class: "quiet" }, "None.");
  const rows = keys.map((each) => h("tr", {}, h("th", { scope: "row" }, each), plans.map((plan) => h("td", { class: "number" }, plan[each] === undefined ? "–" : String(plan[each])))));
  return h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Settings that differ" }, h("table", { class: "plain" }, head(names), h("tbody", {}, rows)));
}

const head = (names) => h("thead", {}, h("tr", {}, h("td", {}), names.map((each) => h("th", { scope: "col", class: "number" }, each))));
