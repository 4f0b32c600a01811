// Two scales, both safe for colour-blind eyes: one dark-to-light order for weights, blue–paper–orange for signs.

const STOPS = {
  light: {
    weight: ["f3f1ea", "d3e8d3", "8ccfc4", "43a5bf", "2370ae", "243f8c", "1d1750"],
    signed: ["083d7c", "2f7fc1", "93c1e4", "f3f1ea", "f4b77f", "d9741e", "8a3604"],
  },
  dark: {
    weight: ["22242c", "3b3270", "385a8c", "2a808e", "30a784", "7ecd57", "f8e729"],
    signed: ["b5dcff", "5a9fe0", "2d5f97", "22242c", "8f4f17", "dd8a3a", "ffd7a8"],
  },
};

const media = window.matchMedia("(prefers-color-scheme: dark)");
const theme = () => document.documentElement.dataset.theme || (media.matches ? "dark" : "light");

// How far along its scale a number is, from 0 to 1. A weight goes by its square root, so that 1% is distinguishable from
// nothing; a share is in proportion; the legend says which colour is what.
const ALONG = {
  weight: (value, most) => Math.sqrt(Math.max(0, value / most)),
  share: (value, most) => value / most,
  signed: (value, most) => 0.5 + 0.5 * (most ? value / most : 0),
};

const STEPS = 256;
const ramps = {};

// The colours of a scale, as [r, g, b] and as pixels.
function ramp(kind) {
  const name = `${theme()}-${kind}`;
  if (!ramps[name]) {
    const hexes = STOPS[theme()][kind === "signed" ? "signed" : "weight"];
    const stops = hexes.map((hex) => [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16)));
    const colours = range(STEPS).map((step) => {
      const place = (step / (STEPS - 1)) * (stops.length - 1);
      const low = Math.min(Math.floor(place), stops.length - 2);
      return stops[low].map((from, channel) => Math.round(from + (stops[low + 1][channel] - from) * (place - low)));
    });
    ramps[name] = { colours, pixels: Uint32Array.from(colours, ([r, g, b]) => (255 << 24) | (b << 16) | (g << 8) | r) };
  }
  return ramps[name];
}

const bounded = (place) => Math.round(Math.min(1, Math.max(0, place)) * (STEPS - 1));
const shade = (kind, value, most) => ramp(kind).colours[bounded(ALONG[kind](value, most))];

// One pixel a number; what the mask hides is left clear.
function paint(canvas, matrix, kind, most, mask = null) {
  const [height, width] = matrix.shape;
  const { values } = matrix;
  const { pixels } = ramp(kind);
  const along = ALONG[kind];
  const image = new Uint32Array(values.length);
  for (let i = 0; i < values.length; i++) if (!mask || mask[i]) image[i] = pixels[bounded(along(values[i], most))];
  canvas.getContext("2d").putImageData(new ImageData(new Uint8ClampedArray(image.buffer), width, height), 0, 0);
}

const css = (rgb) => `rgb(${rgb.join(" ")})`;
const readable = ([r, g, b]) => (0.299 * r + 0.587 * g + 0.114 * b > 140 ? "#16181d" : "#ffffff");

function tint(node, kind, value, most) {
  const rgb = shade(kind, value, most);
  node.style.setProperty("background-color", css(rgb));
  node.style.setProperty("color", readable(rgb));
  return node;
}

const TICKS = { weight: [0, 0.05, 0.25, 0.5, 1], share: [0, 0.25, 0.5, 0.75, 1], signed: [-1, 0, 1] };

function legend(kind, most, name = kind === "signed" ? "value" : kind) {
  const ticks = TICKS[kind].map((part) => part * most);
  const marks = ticks.map((value) => el("span", {}, tint(el("i"), kind, value, most), number(value, 2)));
  return el("div", { class: "legend", "aria-hidden": "true" }, el("b", { text: name }), marks);
}
