// A text's classes with their probabilities; a pair of texts where the model takes one.
import { bars } from "../bars.js";
import { segment } from "../api.js";
import { show } from "../dom.js";

export const card = {
  verb: () => "Classify",
  fields: (model) => [
    { kind: "text", name: "text", label: "Text", required: true, params: ["inputs", "text"], rows: 3, value: "please cancel my order" },
    ...(model.pair ? [{ kind: "text", name: "pair", label: "Second text", rows: 2, params: ["text_pair"] }] : []),
  ],
  call: ({ text, pair }, model) => ({
    path: `/models/${segment(model.id)}`,
    json: { inputs: pair ? { text, text_pair: pair } : text },
  }),
  async answer(response, values, { output }) {
    const [rows] = await response.json();
    show(output, bars(rows, { name: "Classes" }));
  },
};
