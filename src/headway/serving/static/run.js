// One run: its state, its curves while it trains, its settings, and what can be done with it.
import { getJson, postJson, segment, send } from "./api.js";
import { chart } from "./curves.js";
import { announce, count, duration, h, short, show, toast } from "./dom.js";
import { curvesOf, follow } from "./log.js";
import { ACTIVE, meaning, planned, stateChip } from "./run-state.js";
import { problem } from "./states.js";

export async function openRun(root, { facts, name }) {
  const path = `/studio/runs/${segment(name)}`;
  const parts = Object.fromEntries(["head", "error", "tiles", "charts", "warnings", "more"].map((each) => [each, h("div")]));
  parts.charts.className = "charts";
  show(root, h("p", {}, h("a", { href: "#/runs" }, "All runs")), parts.head, parts.error, parts.tiles, parts.charts, parts.warnings, parts.more);
  let close = () => {};
  let state = null;
  let frame = 0;

  async function act(call) {
    show(parts.error);
    try {
      await call();
      connect();
    } catch (error) {
      show(parts.error, problem(error));
    }
  }

  async function details() {
    const run = await getJson(path);
    show(parts.more, settings(run.plan), output(run.output, run.state));
    return run;
  }

  function draw(log) {
    frame = 0;
    const { run, entries } = log;
    if (!run) return;
    if (run.state !== state) {
      if (state !== null) announce(`${name} is ${run.state}`);
      state = run.state;
      show(parts.head, head(run, facts, { act, path }));
      details().catch((error) => show(parts.error, problem(error)));
    }
    show(parts.tiles, tiles(run, entries));
    const found = [...curvesOf(entries)].filter(([, points]) => points.length);
    show(parts.charts, found.map(([title, points]) => chart(title, [{ name, points }])), !found.length && waiting(run));
    const warnings = entries.filter((entry) => entry.warning).slice(-20);
    show(parts.warnings, warnings.length ? h("section", { class: "card" }, h("h3", {}, "Warnings"), h("ul", { class: "findings" }, warnings.map((each) => h("li", {}, `Step ${each.step}: ${each.warning}`)))) : null);
  }

  function connect() {
    close();
    close = follow(name, (log) => {
      frame ||= requestAnimationFrame(() => draw(log));
    });
  }

  const first = await getJson(path); // an error, as of a run that is not there, is shown at once
  draw({ run: first, entries: [] });
  connect();
  return () => {
    close();
    cancelAnimationFrame(frame);
  };
}

function waiting(run) {
  const text = ACTIVE.includes(run.state) ? "The curves begin with the first logged step." : run.problem || "This run has logged nothing.";
  return h("p", { class: "quiet" }, text);
}

function head(run, facts, { act, path }) {
  const active = ACTIVE.includes(run.state);
  const stop = () => act(() => postJson(`${path}/stop`, {}));
  const resume = () => act(() => postJson(`${path}/resume`, {}));
  const serve = () => act(async () => (location.hash = `#/models/${encodeURIComponent((await postJson(`${path}/serve`, {})).model)}`));
  const forget = () => act(async () => { await send("DELETE", path); location.hash = "#/runs"; });
  const actions = facts.train
    ? [
        run.stoppable && h("button", { type: "button", onclick: stop }, "Stop"),
        run.resumable && run.state !== "finished" && h("button", { class: "primary", type: "button", onclick: resume }, "Resume"),
        run.state === "finished" && h("button", { class: "primary", type: "button", onclick: serve }, "Try it"),
        run.state === "finished" && extend(run, act, path),
        !active && run.step === 0 && run.parameters === undefined && h("button", { type: "button", onclick: forget }, "Dismiss"),
      ]
    : [];
  const line = [run.task, run.start ? `from ${run.start}` : run.recipe, run.data?.length ? run.data.join(", ") : "built-in data"].filter(Boolean).join(" · ");
  return h("div", { class: "head-row" }, h("div", {}, h("div", {}, h("h2", {}, run.name), stateChip(run.state)), h("p", { class: "quiet" }, `${line}. ${meaning(run.state)}.`)), h("div", { class: "actions" }, actions));
}

function extend(run, act, path) {
  const input = h("input", { type: "number", min: run.step + 1, step: 1, "aria-label": "Steps to extend it to" });
  input.value = 2 * run.step || 100;
  const go = () => act(async () => { await postJson(`${path}/resume`, { steps: Number(input.value) }); toast("Training goes on"); });
  return h("details", { class: "more" }, h("summary", {}, "Extend"), h("div", { class: "actions" }, input, h("button", { type: "button", onclick: go }, "Train on")));
}

function tiles(run, entries) {
  const last = entries.findLast((entry) => Number.isFinite(entry.loss));
  const done = run.progress;
  const left = run.state === "running" && done > 0.01 && last?.seconds ? (last.seconds / done) * (1 - done) : null;
  const shown = [
    ["step", run.step ? `${count(run.step)}${run.length?.steps ? ` of ${count(run.length.steps)}` : ""}` : planned(run) || "–"],
    ...Object.entries(run.scores ?? {}).slice(0, 3).map(([name, value]) => [`${name}${run.is_final ? "" : ", so far"}`, short(value)]),
    ["training loss", last ? short(last.loss) : "–"],
    ["time", duration(last?.seconds ?? run.seconds ?? 0)],
    left !== null && ["left", duration(left)],
    run.parameters && ["parameters", count(run.parameters)],
  ].filter(Boolean);
  const bar = run.state === "running" && Number.isFinite(done) && h("progress", { max: 1, value: done, "aria-label": "Progress" });
  return h("section", { class: "card", "aria-label": "Numbers" }, h("dl", { class: "tiles" }, shown.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)))), bar);
}

function settings(plan) {
  if (!plan) return null;
  const { why = {}, ...rest } = plan;
  const rows = Object.entries(rest).map(([name, value]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, String(value))));
  const reasons = Object.entries(why).map(([name, text]) => h("li", {}, h("strong", {}, name), ` ${text}`));
  return h("details", { class: "card more" }, h("summary", {}, "Settings"), reasons.length ? h("ul", {}, reasons) : null, h("table", { class: "plain" }, h("tbody", {}, rows)));
}

function output(text, state) {
  if (!text) return null;
  return h("details", { class: "card more", open: state === "failed" || state === "dead" }, h("summary", {}, "Output"), h("pre", { class: "code log", tabindex: "0" }, text));
}
