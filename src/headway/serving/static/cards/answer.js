// The answer to a question, marked in its passage.
import { bars } from "../bars.js";
import { segment } from "../api.js";
import { codePoints, h, show } from "../dom.js";

export const card = {
  verb: () => "Answer",
  fields: () => [
    { kind: "text", name: "context", label: "Passage", required: true, rows: 6, value: "The Amazon is the largest river by discharge. It rises in the Andes of Peru and reaches the Atlantic in Brazil." },
    { kind: "line", name: "question", label: "Question", required: true, params: ["question", "inputs"], value: "Where does the Amazon rise?" },
  ],
  call: ({ question, context }, model) => ({
    path: `/models/${segment(model.id)}`,
    json: { inputs: { question, context }, parameters: { top_k: 3 } },
  }),
  async answer(response, { context }, { output }) {
    const found = await response.json();
    const [best, ...others] = Array.isArray(found) ? found : [found];
    const rows = [best, ...others].map((each) => ({ label: each.answer || "no answer in the passage", score: each.score }));
    show(output, passage(context, best), bars(rows, { name: "Answers" }));
  },
};

function passage(context, { answer, start, end }) {
  const letters = codePoints(context);
  if (!answer) return h("p", { class: "passage" }, context);
  const [before, inside, after] = [letters.slice(0, start), letters.slice(start, end), letters.slice(end)].map((each) => each.join(""));
  return h("p", { class: "passage" }, before, h("mark", { class: "found" }, inside), after);
}
