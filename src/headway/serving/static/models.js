// The served models at the side, and the card of the one that is chosen.
import { count, h, show, size } from "./dom.js";
import { openCard } from "./card.js";
import { commandLine, empty, problem } from "./states.js";

/** One file a task; loaded when a model of that task is opened. */
const CARDS = {
  generate: "generate", chat: "chat", translate: "translate", summarize: "translate", classify: "classify", tag: "tag",
  answer: "answer", fill: "fill", embed: "embed", "classify-image": "image", detect: "detect",
  transcribe: "transcribe", draw: "draw",
};

export async function open(root, { facts, name }) {
  const { models } = facts;
  if (!models.length) return void show(root, nothing(facts));
  const chosen = name === null ? models[0] : models.find((each) => each.id === name);
  const place = h("section", { class: "stage", "aria-label": "Model" });
  show(root, h("div", { class: "split" }, list(models, chosen), place));
  if (!chosen) {
    const known = h("a", { href: "#/" }, "Show the first model");
    return void show(place, empty("No such model", `This server has no model named ${name}.`, known));
  }
  const file = CARDS[chosen.task];
  if (!file) {
    return void show(place, heading(chosen), empty("No card for this task", `Task ${chosen.task} is not answered over HTTP; use headway run.`));
  }
  try {
    const { card } = await import(`./cards/${file}.js`);
    const body = h("div");
    show(place, heading(chosen), body);
    return openCard(body, card, { model: chosen, key: facts.key });
  } catch (error) {
    show(place, problem(error));
  }
}

function list(models, chosen) {
  const items = models.map((each) =>
    h(
      "li",
      {},
      h(
        "a",
        { class: "item", href: `#/models/${encodeURIComponent(each.id)}`, "aria-current": each === chosen ? "true" : null },
        h("span", { class: "item-name" }, each.id),
        h("span", { class: "item-task" }, each.task || "not loaded"),
      ),
    ),
  );
  return h("nav", { class: "side", "aria-label": "Models" }, h("ul", {}, items));
}

function heading(model) {
  const details = [
    model.task,
    model.bytes ? size(model.bytes) : null,
    model.context ? `context ${count(model.context)}` : null,
    model.labels ? `${count(model.labels.length)} labels` : null,
    model.weights && model.weights !== "fp32" ? model.weights : null,
    model.loaded ? null : "loads when used",
  ].filter(Boolean);
  return h("header", { class: "head" }, h("h2", {}, model.id), h("p", { class: "quiet" }, details.join(" · ")));
}

function nothing(facts) {
  const first = facts.train
    ? empty("No model yet", "Train one from a file of yours, or from the built-in data; then try it here.", h("a", { class: "button", href: "#/train" }, "Train a model"))
    : empty("No model yet", "Start the server with a model folder or a hub id:", commandLine("headway serve runs/intents"));
  return h("div", { class: "narrow" }, first);
}
