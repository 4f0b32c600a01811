// A recording from a file or the microphone. What the microphone gives is sent as WAV, 16 kHz, one channel.
import { h } from "./dom.js";
import { onDrop } from "./picture.js";

const RATE = 16000;
const MOST_SECONDS = 300;

export function soundField({ id, errorId }) {
  let file = null;
  let address = null;
  let recorder = null;
  let timer = null;
  const input = h("input", { id, type: "file", accept: "audio/*", class: "file", "aria-describedby": errorId });
  const player = h("audio", { controls: true, hidden: true, "aria-label": "The recording" });
  const button = h("button", { type: "button", onclick: () => (recorder ? recorder.stop() : record()) }, "Record");
  const state = h("span", { class: "quiet", role: "status" }, "Drop a sound file here, choose one, or record.");
  const zone = h("div", { class: "drop" }, state, h("div", { class: "actions" }, input, button), player);

  function take(found) {
    if (!found) return;
    if (address) URL.revokeObjectURL(address);
    [file, address] = [found, URL.createObjectURL(found)];
    player.src = address;
    player.hidden = false;
    state.textContent = found.name ?? "Recorded";
  }

  async function record() {
    let source;
    try {
      source = await navigator.mediaDevices.getUserMedia({ audio: true });
    } catch {
      state.textContent = "The microphone cannot be used here: allow it, or choose a file. A browser allows it on this machine and over https only.";
      return;
    }
    const parts = [];
    recorder = new MediaRecorder(source);
    recorder.addEventListener("dataavailable", (event) => parts.push(event.data));
    recorder.addEventListener("stop", async () => {
      clearTimeout(timer);
      source.getTracks().forEach((track) => track.stop());
      button.textContent = "Record";
      const kind = recorder.mimeType;
      recorder = null;
      try {
        take(await asWav(new Blob(parts, { type: kind })));
      } catch {
        state.textContent = "Nothing was recorded.";
      }
    });
    recorder.start();
    timer = setTimeout(() => recorder?.stop(), MOST_SECONDS * 1000);
    button.textContent = "Stop recording";
    state.textContent = "Recording…";
  }

  onDrop(zone, (files) => take(files[0]));
  input.addEventListener("change", () => take(input.files[0]));
  return { node: zone, input, set: take, read: () => file };
}

/** Any sound that the browser can decode, as WAV. */
export async function asWav(blob) {
  const context = new AudioContext();
  const decoded = await context.decodeAudioData(await blob.arrayBuffer());
  await context.close();
  const offline = new OfflineAudioContext(1, Math.max(1, Math.ceil(decoded.duration * RATE)), RATE);
  const source = offline.createBufferSource();
  source.buffer = decoded;
  source.connect(offline.destination);
  source.start();
  const samples = (await offline.startRendering()).getChannelData(0);
  return new File([wav(samples)], "recording.wav", { type: "audio/wav" });
}

function wav(samples) {
  const view = new DataView(new ArrayBuffer(44 + 2 * samples.length));
  const text = (at, letters) => [...letters].forEach((letter, i) => view.setUint8(at + i, letter.charCodeAt(0)));
  text(0, "RIFF");
  view.setUint32(4, 36 + 2 * samples.length, true);
  text(8, "WAVEfmt ");
  view.setUint32(16, 16, true);
  view.setUint16(20, 1, true); // PCM
  view.setUint16(22, 1, true); // channels
  view.setUint32(24, RATE, true);
  view.setUint32(28, 2 * RATE, true);
  view.setUint16(32, 2, true);
  view.setUint16(34, 16, true);
  text(36, "data");
  view.setUint32(40, 2 * samples.length, true);
  samples.forEach((value, i) => view.setInt16(44 + 2 * i, Math.max(-1, Math.min(1, value)) * 32767, true));
  return view.buffer;
}
