// The frame of every card: a form, its answer, and below it explain, copy as curl, copy as Python.
//
// A card says what differs: `fields(model)`, `call(values, model)` → { path, json } (and, for the copies, `file` or
// `saves`), and `answer(response, values, frame)`. A card that streams has `run(values, frame)` instead of `answer`.
import { explainOf, segment, send } from "./api.js";
import { makeFields } from "./fields.js";
import { announce, h, newId, show, toast } from "./dom.js";
import { curl, python } from "./snippets.js";
import { problem } from "./states.js";

export function openCard(root, card, { model, key }) {
  if (card.open) return card.open(root, { model, key, footer });
  const fields = makeFields(card.fields(model));
  const output = h("div", { class: "answer", id: newId("answer"), "aria-live": "polite" });
  const below = h("div", { class: "below" });
  const run = h("button", { class: "primary", type: "submit" }, card.verb(model));
  const stop = h("button", { type: "button", hidden: true, onclick: () => controller?.abort() }, "Stop");
  const state = h("span", { class: "quiet", "data-state": "idle" });
  const hint = h("span", { class: "quiet keys" }, h("kbd", {}, "Ctrl"), " ", h("kbd", {}, "Enter"));
  let controller = null;

  const frame = {
    model, output, fields,
    get signal() { return controller.signal; },
    explain: null,
    /** Sends a body to the model, keeps where it is explained, and returns the response. */
    async send(json, path = `/models/${segment(model.id)}`) {
      const response = await send("POST", path, { json, signal: controller.signal });
      frame.explain = explainOf(response);
      return response;
    },
  };

  function busy(on) {
    state.dataset.state = on ? "busy" : "done";
    output.setAttribute("aria-busy", String(on));
    run.disabled = on;
    stop.hidden = !on;
    if (on) state.textContent = "Working…";
  }

  async function submit() {
    if (controller) return;
    fields.clearErrors();
    const values = await fields.values();
    if (!values) return;
    controller = new AbortController();
    const started = performance.now();
    busy(true);
    show(output);
    show(below);
    frame.explain = null;
    try {
      if (card.run) {
        await card.run(values, frame);
      } else {
        const { path, json } = card.call(values, model);
        await card.answer(await frame.send({ ...json, explain: true }, path), values, frame);
      }
      state.textContent = `${((performance.now() - started) / 1000).toFixed(2)} s`;
      show(below, footer({ call: card.call(values, model), explain: frame.explain, key }));
      announce("Answer ready");
    } catch (error) {
      state.textContent = "";
      if (error.name === "AbortError") state.textContent = "Stopped";
      else if (!fields.showError(error)) show(output, problem(error));
    } finally {
      controller = null;
      busy(false);
    }
  }

  const form = h(
    "form",
    {
      class: "form", novalidate: true,
      onsubmit: (event) => { event.preventDefault(); submit(); },
      onkeydown: (event) => {
        if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); submit(); }
      },
    },
    fields.nodes,
    h("div", { class: "actions" }, run, stop, state, hint),
  );
  show(root, h("article", { class: "card" }, form, output, below));
  return () => controller?.abort();
}

/** Explain, copy as curl and copy as Python, for one answer. */
export function footer({ call, explain, key }) {
  return h(
    "div",
    { class: "actions foot" },
    explain && h("a", { class: "button", href: explain, target: "_blank", rel: "noopener" }, "Explain"),
    h("button", { type: "button", onclick: () => copy("curl", curl(call, { key })) }, "Copy as curl"),
    h("button", { type: "button", onclick: () => copy("Python", python(call, { key })) }, "Copy as Python"),
  );
}

async function copy(kind, text) {
  try {
    await navigator.clipboard.writeText(text);
    toast(`Copied as ${kind}`);
  } catch {
    byHand(kind, text); // not allowed here, as on a page without TLS
  }
}

function byHand(kind, text) {
  const area = h("textarea", { readonly: true, rows: "8", "aria-label": `The request as ${kind}` });
  area.value = text;
  const close = h("button", { type: "button", onclick: () => dialog.close() }, "Close");
  const dialog = h("dialog", { class: "dialog", "aria-label": `Copy as ${kind}` }, h("p", {}, "Copy this text:"), area, close);
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  area.select();
}
