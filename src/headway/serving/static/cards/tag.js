// Entities highlighted in the text.
import { segment } from "../api.js";
import { codePoints, h, percent, show } from "../dom.js";

export const COLOURS = 6;

export const card = {
  verb: () => "Find entities",
  fields: () => [
    { kind: "text", name: "text", label: "Text", required: true, params: ["inputs"], rows: 4, value: "Marie Curie was born in Warsaw and worked in Paris." },
  ],
  call: ({ text }, model) => ({ path: `/models/${segment(model.id)}`, json: { inputs: text } }),
  async answer(response, { text }, { output }) {
    const found = await response.json();
    show(output, marked(text, found), found.length ? list(found) : h("p", { class: "quiet" }, "No entities were found."));
  },
};

/** A colour for each label, the same every time. */
export function colour(label) {
  let sum = 0;
  for (const letter of label) sum = (sum * 31 + letter.codePointAt(0)) % 1000003;
  return sum % COLOURS;
}

function marked(text, found) {
  const letters = codePoints(text);
  const parts = [];
  let at = 0;
  for (const each of found) {
    parts.push(letters.slice(at, each.start).join(""));
    parts.push(h("mark", { class: `entity c${colour(each.entity_group)}`, title: percent(each.score) }, letters.slice(each.start, each.end).join(""), h("span", { class: "entity-label" }, each.entity_group)));
    at = each.end;
  }
  parts.push(letters.slice(at).join(""));
  return h("p", { class: "passage" }, parts);
}

function list(found) {
  const row = (each) => h("tr", {}, h("td", {}, each.word), h("td", {}, each.entity_group), h("td", { class: "number" }, percent(each.score)));
  const head = h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Entity"), h("th", { scope: "col" }, "Label"), h("th", { scope: "col", class: "number" }, "Probability")));
  return h("table", { class: "plain" }, head, h("tbody", {}, found.map(row)));
}
