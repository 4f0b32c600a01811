// A new training: the data and its check, then the settings.
import { getJson, postJson, send } from "./api.js";
import { checkReport } from "./check.js";
import { announce, h, show, size, toast } from "./dom.js";
import { makeFields } from "./fields.js";
import { onDrop } from "./picture.js";
import { empty, problem } from "./states.js";

const BUILTIN = "";
const COLUMNS = {
  classify: ["text", "label"], tag: ["text", "label"], translate: ["source", "target"], summarize: ["source", "target"],
  embed: ["text", "label"], generate: ["text"], fill: ["text"], "classify-image": ["image", "label"], draw: ["image", "caption"],
};

export async function open(root, { facts }) {
  if (!facts.train) {
    return void show(root, empty("Training from the page is off", "This server only answers. It can be started with --runs DIR --train to allow it; see the documentation for what that means."));
  }
  const [{ files }, { runs }] = await Promise.all([getJson("/studio/data"), getJson("/studio/runs")]);
  const report = h("div", { "aria-live": "polite" });
  const error = h("div");
  const starts = [["", "from scratch"], ...facts.models.map((each) => [each.id, `${each.id} (model)`]), ...runs.filter((each) => each.state === "finished").map((each) => [each.name, `${each.name} (run)`])];

  const data = makeFields([
    { kind: "select", name: "task", label: "Task", options: facts.tasks.map((each) => [each.name, `${each.name}: ${each.summary}`]), value: "classify" },
    { kind: "select", name: "data", label: "Data", options: listed(files) },
  ]);
  const columns = makeFields(["text", "label", "source", "target", "image", "caption"].map((name) => ({ kind: "line", name, label: `${name} column`, placeholder: "found by its name", wide: false, params: [name, `columns.${name}`] })));
  const settings = makeFields([
    { kind: "line", name: "name", label: "Name of the run", required: true, value: freeName("classify", runs), wide: false, missing: "Give it a name." },
    { kind: "select", name: "start", label: "Start", options: starts, wide: false },
    { kind: "select", name: "size", label: "Size", options: [["", "the task's own"], ...facts.sizes.map((each) => [each, each])], wide: false },
    { kind: "select", name: "unit", label: "Length", options: [["", "chosen for the data"], ["steps", "steps"], ["epochs", "epochs"], ["minutes", "minutes"]], wide: false, params: ["unit"] },
    { kind: "number", name: "length", label: "How many", min: 0.01, max: 100000000, wide: false, params: ["steps", "epochs", "minutes"] },
    { kind: "select", name: "recipe", label: "Recipe", options: facts.recipes.map((each, number) => [number ? each.name : "", `${each.name}: ${each.summary}`]), wide: false, more: true },
    { kind: "number", name: "lr", label: "Learning rate", min: 0.0000001, max: 10, placeholder: "the recipe's", wide: false, more: true },
    { kind: "number", name: "seed", label: "Seed", min: 0, max: 2147483648, whole: true, placeholder: "0", wide: false, more: true },
  ]);
  const task = data.field("task").input;
  const length = settings.field("length");
  let renamed = false;

  function adapt() {
    for (const name of ["text", "label", "source", "target", "image", "caption"]) columns.field(name).node.hidden = !(COLUMNS[task.value] ?? []).includes(name);
    advanced.hidden = data.field("data").input.value === BUILTIN || !COLUMNS[task.value];
    remove.hidden = data.field("data").input.value === BUILTIN;
    length.node.hidden = settings.field("unit").input.value === "";
    if (!renamed) settings.field("name").set(freeName(task.value, runs));
    show(report);
  }

  async function described() {
    const [chosen, named] = [await data.values(), await columns.values()];
    const used = Object.fromEntries(Object.entries(named ?? {}).filter(([name]) => (COLUMNS[chosen.task] ?? []).includes(name)));
    return { task: chosen.task, ...(chosen.data ? { data: chosen.data } : {}), ...(Object.keys(used).length ? { columns: used } : {}) };
  }

  async function check() {
    checking.disabled = true;
    show(report, h("p", { class: "quiet" }, "Reading every example…"));
    try {
      show(report, checkReport(await postJson("/studio/check", await described())));
      announce("The data is checked");
    } catch (found) {
      show(report, problem(found));
    }
    checking.disabled = false;
  }

  async function upload(found) {
    show(report);
    for (const file of found) {
      if (file.size > facts.upload_bytes) {
        return void show(report, problem(new Error(`${file.name} has ${size(file.size)}; files of up to ${size(facts.upload_bytes)} can be uploaded. Put a larger one into the folder uploads beside the runs.`)));
      }
      show(report, h("p", { class: "quiet" }, `Uploading ${file.name}…`));
      try {
        const saved = await (await send("PUT", `/studio/data/${encodeURIComponent(file.name)}`, { body: file })).json();
        data.field("data").set(listed((await getJson("/studio/data")).files), saved.name);
        adapt();
        toast(`${saved.name} is uploaded`);
        await check();
      } catch (failed) {
        show(report, problem(failed));
      }
    }
  }

  async function discard() {
    await send("DELETE", `/studio/data/${encodeURIComponent(data.field("data").input.value)}`);
    data.field("data").set(listed((await getJson("/studio/data")).files), BUILTIN);
    adapt();
  }

  async function start(event) {
    event.preventDefault();
    show(error);
    settings.clearErrors();
    const chosen = await settings.values();
    if (!chosen) return;
    const { unit, length: amount, ...rest } = chosen;
    if (unit && !amount) return void (length.error("Say how many."), length.focus());
    const body = { ...(await described()), ...rest, ...(unit ? { [unit]: amount } : {}) };
    try {
      const run = await postJson("/studio/runs", body);
      location.hash = `#/runs/${encodeURIComponent(run.name)}`;
    } catch (failed) {
      if (!settings.showError(failed) && !data.showError(failed)) show(error, problem(failed));
    }
  }

  const picker = h("input", { type: "file", class: "file", "aria-label": "Upload a data file", onchange: () => upload([...picker.files]) });
  const zone = h("div", { class: "drop" }, h("p", {}, "Drop a file here: CSV, TSV, JSON lines, plain text, Parquet."), picker);
  const advanced = h("details", { class: "more" }, h("summary", {}, "Columns"), h("div", { class: "grid" }, columns.nodes));
  const checking = h("button", { type: "button", onclick: check }, "Check the data");
  const remove = h("button", { type: "button", hidden: true, onclick: () => discard().catch((failed) => show(report, problem(failed))) }, "Remove the file");
  onDrop(zone, upload);
  task.addEventListener("change", adapt);
  data.field("data").input.addEventListener("change", adapt);
  settings.field("unit").input.addEventListener("change", adapt);
  settings.field("name").input.addEventListener("input", () => (renamed = true));

  show(
    root,
    h("div", { class: "head" }, h("h2", {}, "New training")),
    h("section", { class: "card", "aria-label": "Data" }, h("h3", { class: "step-title" }, h("span", {}, "1"), "Data"), h("div", { class: "form" }, data.nodes, h("div", { class: "wide" }, zone), h("div", { class: "wide" }, advanced), h("div", { class: "actions" }, checking, remove), h("div", { class: "wide" }, report))),
    h("section", { class: "card", "aria-label": "Model" }, h("h3", { class: "step-title" }, h("span", {}, "2"), "Model and length"), h("form", { class: "form", novalidate: true, onsubmit: start }, settings.nodes, h("div", { class: "actions" }, h("button", { class: "primary", type: "submit" }, "Start training")), h("div", { class: "wide" }, error))),
  );
  adapt();
}

const listed = (files) => [[BUILTIN, "the task's built-in data"], ...files.map((each) => [each.name, each.folder ? `${each.name} (folder)` : `${each.name} (${size(each.bytes)})`])];

function freeName(task, runs) {
  const taken = new Set(runs.map((each) => each.name));
  let [name, number] = [task, 1];
  while (taken.has(name)) name = `${task}-${++number}`;
  return name;
}
