// A picture from a caption.
import { segment } from "../api.js";
import { h, show } from "../dom.js";

export const card = {
  verb: () => "Draw",
  fields: (model) => [
    { kind: "line", name: "text", label: "Caption", required: true, params: ["inputs"], value: "a red circle" },
    { kind: "number", name: "seed", label: "Seed", wide: false, min: 0, max: 2147483647, whole: true, value: "0" },
    ...(takes(model, "guidance") ? [{ kind: "number", name: "guidance_scale", label: "Guidance", wide: false, min: 0, max: 100, placeholder: "the model's own" }] : []),
    ...(takes(model, "steps") ? [{ kind: "number", name: "num_inference_steps", label: "Steps", wide: false, more: true, min: 1, max: 1000, whole: true, placeholder: "the model's own" }] : []),
  ],
  call: ({ text, ...parameters }, model) => ({ path: `/models/${segment(model.id)}`, json: { inputs: text, parameters }, saves: "picture.png" }),
  async answer(response, { text }, { output }) {
    const address = URL.createObjectURL(await response.blob());
    const image = h("img", { src: address, alt: text, class: "drawing" });
    show(output, h("figure", {}, image, h("figcaption", {}, h("a", { href: address, download: "picture.png" }, "Save the picture"))));
  },
};

const takes = (model, option) => (model.options ?? ["guidance", "steps"]).includes(option);
