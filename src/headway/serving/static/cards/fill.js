// Words for the masked places of a text.
import { bars } from "../bars.js";
import { segment } from "../api.js";
import { h, show } from "../dom.js";

export const card = {
  verb: () => "Fill in",
  fields: (model) => [
    {
      kind: "text", name: "text", label: "Text", required: true, params: ["inputs"], rows: 3,
      hint: `${model.mask ?? "[MASK]"} stands where a word is to be predicted.`,
      value: `Paris is the ${model.mask ?? "[MASK]"} of France.`,
      tools: (input) => h("button", { type: "button", onclick: () => insert(input, model.mask ?? "[MASK]") }, "Insert mask"),
    },
  ],
  call: ({ text }, model) => ({ path: `/models/${segment(model.id)}`, json: { inputs: text, parameters: { top_k: 5 } } }),
  async answer(response, values, { output }) {
    const found = await response.json();
    const places = Array.isArray(found[0]) ? found : [found];
    const part = (rows, number) => [
      places.length > 1 && h("h3", {}, `Mask ${number + 1}`),
      bars(rows.map((row) => ({ label: row.token_str, score: row.score })), { name: "Words" }),
    ];
    show(output, places.map(part), places.length === 1 && h("p", { class: "result" }, places[0][0].sequence));
  },
};

function insert(input, mask) {
  input.setRangeText(mask, input.selectionStart, input.selectionEnd, "end");
  input.focus();
}
