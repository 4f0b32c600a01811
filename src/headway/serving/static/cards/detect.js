// Objects in a picture, with their boxes drawn on it.
import { segment } from "../api.js";
import { h, newId, percent, show, svg } from "../dom.js";
import { pictureCall } from "./image.js";
import { colour } from "./tag.js";

const LEAST = 0.05; // objects below it are not sent

export const card = {
  verb: () => "Find objects",
  fields: () => [{ kind: "picture", name: "picture", label: "Picture", required: true, params: ["inputs"], missing: "Choose a picture." }],
  call: (values, model) => ({ path: `/models/${segment(model.id)}`, file: "picture.png" }),
  async run(values, frame) {
    const address = URL.createObjectURL(values.picture);
    const response = await pictureCall({ ...values, threshold: LEAST }, frame);
    const found = (await response.json()).sort((a, b) => b.score - a.score);
    const image = h("img", { src: address, alt: "The picture" });
    await image.decode();
    show(frame.output, view(image, found));
  },
};

function view(image, found) {
  const [width, height] = [image.naturalWidth, image.naturalHeight];
  const layer = svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "boxes", "aria-hidden": "true" });
  const list = h("ul", { class: "found-list", "aria-label": "Objects" });
  const id = newId("threshold");
  const slider = h("input", { id, type: "range", min: LEAST, max: 1, step: 0.01 });
  slider.value = Math.min(0.5, found[0]?.score ?? 0.5);
  const value = h("output", { for: id });
  const unit = Math.max(width, height) / 400;

  function draw() {
    const least = Number(slider.value);
    const shown = found.filter((each) => each.score >= least).slice(0, 100);
    value.textContent = percent(least);
    show(layer, shown.map(box));
    show(list, shown.length ? shown.map((each) => h("li", { class: `c${colour(each.label)}` }, h("span", { class: "chip" }, each.label), " ", percent(each.score))) : h("li", { class: "quiet" }, "No object is above this probability."));
  }
  function box({ label, score, box: { xmin, ymin, xmax, ymax } }) {
    const text = `${label} ${percent(score)}`;
    return svg(
      "g",
      { class: `box c${colour(label)}` },
      svg("rect", { x: xmin, y: ymin, width: Math.max(0, xmax - xmin), height: Math.max(0, ymax - ymin), "stroke-width": 2 * unit, rx: 2 * unit }),
      svg("text", { x: xmin + 3 * unit, y: Math.max(ymin - 4 * unit, 12 * unit), "font-size": 13 * unit, "stroke-width": 3 * unit }, text),
    );
  }
  slider.addEventListener("input", draw);
  draw();
  return h("div", {}, h("div", { class: "canvas" }, image, layer), h("div", { class: "actions" }, h("label", { for: id }, "Least probability"), slider, value), list);
}
