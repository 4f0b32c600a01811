// Speech as text, from a file or the microphone.
import { segment } from "../api.js";
import { addKind } from "../fields.js";
import { base64, h, show } from "../dom.js";
import { soundField } from "../recorder.js";

addKind("sound", soundField);

export const card = {
  verb: () => "Transcribe",
  fields: () => [
    { kind: "sound", name: "sound", label: "Recording", required: true, params: ["inputs"], missing: "Choose a file, or record one." },
    { kind: "line", name: "language", label: "Language", more: true, wide: false, placeholder: "found by the model" },
  ],
  call: (values, model) => ({ path: `/models/${segment(model.id)}`, file: "speech.wav" }),
  async run({ sound, language }, frame) {
    const parameters = { return_timestamps: true, ...(language ? { language } : {}) };
    const response = await frame.send({ inputs: await base64(sound), parameters, explain: true });
    const { text, chunks = [] } = await response.json();
    const line = (each) => h("li", {}, h("span", { class: "time" }, clock(each.timestamp[0])), " ", each.text.trim());
    show(frame.output, h("p", { class: "result" }, text || h("span", { class: "quiet" }, "No speech was found.")), chunks.length > 1 && h("ol", { class: "segments", "aria-label": "Segments" }, chunks.map(line)));
  },
};

const clock = (seconds) => `${Math.floor(seconds / 60)}:${String(Math.floor(seconds % 60)).padStart(2, "0")}`;
