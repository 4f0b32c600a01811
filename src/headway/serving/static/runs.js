// The runs of the directory, and the way to one of them.
import { getJson } from "./api.js";
import { count, h, percent, short, show } from "./dom.js";
import { openRun } from "./run.js";
import { ago, planned, stateChip } from "./run-state.js";
import { empty, problem } from "./states.js";

const PAUSE = 3000;
const MOST_COMPARED = 5;

export async function open(root, context) {
  if (context.name !== null) return openRun(root, context);
  const chosen = new Set();
  const list = h("ul", { class: "runs", "aria-label": "Runs" });
  const compare = h("button", { type: "button", disabled: true, onclick: () => (location.hash = `#/compare/${[...chosen].map(encodeURIComponent).join(",")}`) }, "Compare");
  const actions = h("div", { class: "actions" }, compare, context.facts.train && h("a", { class: "button primary", href: "#/train" }, "New training"));
  const body = h("div");
  let before = "";
  let timer = null;

  function choose(name, on) {
    on ? chosen.add(name) : chosen.delete(name);
    compare.disabled = chosen.size < 2 || chosen.size > MOST_COMPARED;
    compare.textContent = chosen.size ? `Compare ${chosen.size}` : "Compare";
    compare.title = chosen.size > MOST_COMPARED ? `at most ${MOST_COMPARED} runs` : "";
  }

  async function refresh() {
    clearTimeout(timer);
    try {
      const { runs } = await getJson("/studio/runs");
      const now = JSON.stringify(runs);
      if (now !== before) {
        const at = document.activeElement?.id;
        before = now;
        show(list, runs.map((run) => row(run, chosen, choose)));
        show(body, runs.length ? list : nothing(context.facts));
        if (at) document.getElementById(at)?.focus();
      }
    } catch (error) {
      before = "";
      show(body, problem(error, { again: refresh }));
    }
    timer = setTimeout(() => (document.hidden ? (timer = setTimeout(refresh, PAUSE)) : refresh()), PAUSE);
  }
  show(root, h("div", { class: "head-row" }, h("h2", {}, "Runs"), actions), body);
  await refresh();
  return () => clearTimeout(timer);
}

function row(run, chosen, choose) {
  const id = `run-${run.name}`;
  const box = h("input", { type: "checkbox", class: "check", id, "aria-label": `Choose ${run.name} to compare`, checked: chosen.has(run.name), disabled: run.step === 0, onchange: (event) => choose(run.name, event.target.checked) });
  const [name, value] = Object.entries(run.scores ?? {})[0] ?? [];
  return h(
    "li",
    { class: "run", "data-name": run.name, "data-state": run.state },
    box,
    h("div", {}, h("a", { class: "run-name", id: `link-${run.name}`, href: `#/runs/${encodeURIComponent(run.name)}` }, run.name), h("div", { class: "run-task" }, [run.task, run.start ? `from ${run.start}` : null, run.data?.join(", ")].filter(Boolean).join(" · "))),
    h("div", {}, name ? [h("strong", {}, short(value)), " ", h("span", { class: "quiet" }, name)] : h("span", { class: "quiet" }, "no score yet")),
    h("div", {}, h("span", { class: "quiet" }, run.step ? `${count(run.step)} steps` : planned(run), run.state === "running" && Number.isFinite(run.progress) ? `, ${percent(run.progress)}` : "", " · ", ago(run.updated)), run.state === "running" && Number.isFinite(run.progress) && h("progress", { max: 1, value: run.progress, "aria-label": `Progress of ${run.name}` })),
    stateChip(run.state),
  );
}

const nothing = (facts) =>
  empty("No runs yet", facts.train ? "Start a training here, or with headway train in a terminal: it appears either way." : "Trainings of this folder appear here as they run.", facts.train && h("a", { class: "button primary", href: "#/train" }, "New training"));
