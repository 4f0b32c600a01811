// A picture's classes.
import { bars } from "../bars.js";
import { segment } from "../api.js";
import { base64, show } from "../dom.js";

export const pictureCall = async ({ picture, ...parameters }, frame) =>
  frame.send({ inputs: await base64(picture), ...(Object.keys(parameters).length ? { parameters } : {}), explain: true });

export const card = {
  verb: () => "Classify",
  fields: () => [{ kind: "picture", name: "picture", label: "Picture", required: true, params: ["inputs"], missing: "Choose a picture." }],
  call: (values, model) => ({ path: `/models/${segment(model.id)}`, file: "picture.png" }),
  async run(values, frame) {
    const response = await pictureCall(values, frame);
    show(frame.output, bars(await response.json(), { name: "Classes" }));
  },
};
