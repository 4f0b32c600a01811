// A text turned into another: translation and summary, with the alignment of the two where it is wanted.
import { getJson, segment } from "../api.js";
import { alignment } from "../alignment.js";
import { h, show } from "../dom.js";
import { problem } from "../states.js";

const EXAMPLES = { translate: "the 3rd of May 1998", summarize: "The council met on Tuesday. After a long debate it agreed to build a bridge, which will open next year." };
const VERBS = { translate: "Translate", summarize: "Summarise" };

export const card = {
  verb: (model) => VERBS[model.task],
  fields: (model) => [
    { kind: "text", name: "text", label: "Source text", required: true, params: ["inputs"], rows: 4, value: EXAMPLES[model.task] },
    { kind: "number", name: "num_beams", label: "Beams", more: true, min: 1, max: 16, whole: true, placeholder: "the model's own", wide: false },
    { kind: "number", name: "max_new_tokens", label: "Most tokens", more: true, min: 1, max: 32768, whole: true, placeholder: "the model's own", wide: false },
  ],
  call: ({ text, ...parameters }, model) => ({
    path: `/models/${segment(model.id)}`,
    json: { inputs: text, ...(Object.keys(parameters).length ? { parameters } : {}) },
  }),
  async answer(response, values, { output, model, explain }) {
    const [found] = await response.json();
    const text = found.translation_text ?? found.summary_text;
    const below = h("div");
    const button = h("button", { type: "button" }, "Show alignment");
    button.addEventListener("click", async () => {
      [button.disabled, button.textContent] = [true, "Computing the alignment…"];
      try {
        show(below, alignment(await getJson(`${explain}/alignment`)));
        button.remove();
      } catch (error) {
        show(below, problem(error));
        [button.disabled, button.textContent] = [false, "Show alignment"];
      }
    });
    show(output, h("p", { class: "result", lang: "" }, text || h("span", { class: "quiet" }, "The answer is empty.")), text && model.alignment && explain && button, below);
  },
};
