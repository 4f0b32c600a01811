// Text that continues a prompt, token by token.
import { stream } from "../api.js";
import { h, show } from "../dom.js";
import { completionToken, tokenText } from "../tokens.js";

export const card = {
  verb: () => "Generate",
  fields: () => [
    { kind: "text", name: "prompt", label: "Prompt", required: true, rows: 4, value: "Once upon a time" },
    { kind: "number", name: "max_tokens", label: "Most tokens", wide: false, more: true, min: 1, max: 32768, whole: true, value: "100" },
    { kind: "number", name: "temperature", label: "Temperature", wide: false, more: true, min: 0, max: 2, placeholder: "the model's own" },
    { kind: "number", name: "top_p", label: "Top p", wide: false, more: true, min: 0.01, max: 1, placeholder: "the model's own" },
    { kind: "number", name: "seed", label: "Seed", wide: false, more: true, min: 0, max: 4294967295, whole: true, placeholder: "random" },
  ],
  call: (values, model) => ({ path: "/v1/completions", json: { model: model.id, ...values } }),
  async run(values, frame) {
    const { path, json } = card.call(values, frame.model);
    const text = tokenText("Generated text");
    show(frame.output, h("div", { class: "result" }, h("span", { class: "prompt" }, values.prompt), text.node));
    for await (const event of stream(path, { ...json, stream: true, logprobs: 5, explain: true }, { signal: frame.signal })) {
      frame.explain = event.explain ?? frame.explain;
      const choice = event.choices[0];
      if (choice?.text) text.add(completionToken(choice));
    }
    if (!text.text()) frame.output.append(h("p", { class: "quiet" }, "The model ended at once."));
  },
};
