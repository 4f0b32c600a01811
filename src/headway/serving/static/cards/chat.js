// A conversation, streamed, with the probability of each token.
import { stream } from "../api.js";
import { makeFields } from "../fields.js";
import { announce, h, newId, show } from "../dom.js";
import { problem } from "../states.js";
import { chatToken, tokenText } from "../tokens.js";

const OPTIONS = [
  { kind: "text", name: "system", label: "System message", rows: 2, more: true },
  { kind: "number", name: "max_tokens", label: "Most tokens", wide: false, more: true, min: 1, max: 32768, whole: true, placeholder: "as many as fit" },
  { kind: "number", name: "temperature", label: "Temperature", wide: false, more: true, min: 0, max: 2, placeholder: "the model's own" },
  { kind: "number", name: "seed", label: "Seed", wide: false, more: true, min: 0, max: 4294967295, whole: true, placeholder: "random" },
];

export const card = {
  open(root, { model, key, footer }) {
    const messages = [];
    const options = makeFields(OPTIONS);
    const id = newId("message");
    const log = h("div", { class: "talk", role: "log", "aria-label": "Conversation", "aria-live": "polite" });
    const start = h("p", { class: "quiet" }, "Say something to begin. Point at a word of an answer to see how likely it was.");
    const input = h("textarea", { id, rows: "2", placeholder: "Write a message" });
    const submit = h("button", { class: "primary", type: "submit" }, "Send");
    const stop = h("button", { type: "button", hidden: true, onclick: () => controller?.abort() }, "Stop");
    const clear = h("button", { type: "button", onclick: () => reset() }, "New conversation");
    let controller = null;

    function reset() {
      controller?.abort();
      messages.length = 0;
      show(log, start);
      input.focus();
    }

    async function answer() {
      const given = input.value.trim();
      if (!given || controller) return;
      const values = await options.values();
      if (!values) return;
      const { system, ...chosen } = values;
      start.remove();
      controller = new AbortController();
      messages.push({ role: "user", content: given });
      input.value = "";
      const text = tokenText("Answer");
      const below = h("div");
      log.append(h("div", { class: "turn user" }, h("span", { class: "who" }, "You"), h("p", {}, given)));
      const turn = h("div", { class: "turn assistant", "aria-busy": "true" }, h("span", { class: "who" }, model.id), text.node, below);
      log.append(turn);
      turn.scrollIntoView({ block: "nearest" });
      [submit.disabled, stop.hidden] = [true, false];
      const json = { model: model.id, messages: [...(system ? [{ role: "system", content: system }] : []), ...messages], ...chosen };
      const call = { path: "/v1/chat/completions", json };
      let explain = null;
      try {
        const wanted = { ...json, stream: true, logprobs: true, top_logprobs: 5, explain: true };
        for await (const event of stream(call.path, wanted, { signal: controller.signal })) {
          explain = event.explain ?? explain;
          const choice = event.choices[0];
          if (choice?.delta.content) text.add(chatToken(choice));
        }
        announce("Answer ready");
      } catch (error) {
        if (error.name !== "AbortError") show(below, problem(error));
      } finally {
        controller = null;
        turn.setAttribute("aria-busy", "false");
        [submit.disabled, stop.hidden] = [false, true];
      }
      const said = text.text();
      if (said) {
        messages.push({ role: "assistant", content: said });
        below.append(footer({ call, explain, key }));
      } else {
        messages.pop();
        if (!below.childNodes.length) show(below, h("p", { class: "quiet" }, "No answer."));
      }
      turn.scrollIntoView({ block: "nearest" });
    }

    const form = h(
      "form",
      { class: "form", novalidate: true, onsubmit: (event) => { event.preventDefault(); answer(); } },
      h("div", { class: "field wide" }, h("label", { for: id }, "Message"), input),
      h("div", { class: "actions" }, submit, stop, clear, h("span", { class: "quiet keys" }, h("kbd", {}, "Enter"), " sends, ", h("kbd", {}, "Shift"), " ", h("kbd", {}, "Enter"), " is a new line")),
      options.nodes,
    );
    input.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); answer(); }
    });
    show(log, start);
    show(root, h("article", { class: "card" }, log, form));
    return () => controller?.abort();
  },
};
