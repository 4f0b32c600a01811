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

const STEPS = 256;
const ramps = {};

function ramp(kind) {
  const name = `${theme()}-${kind}`;
  if (!ramps[name]) {
    const stops = STOPS[theme()][kind].map((hex) => [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16)));
    ramps[name] = range(STEPS).map((step) => {
      const place = (step / (STEPS - 1)) * (stops.length - 1);
      const low = Math.min(Math.floor(place), stops.length - 2);
      return stops[low].map((from, channel) => Math.round(from + (stops[low + 1][channel] - from) * (place - low)));
    });
  }
  return ramps[name];
}

// A weight is coloured by its square root, so that 1% can be told from nothing; the legend says which colour is what.
function shade(kind, value, most) {
  const place = kind === "weight" ? Math.sqrt(Math.max(0, value / most)) : 0.5 + 0.5 * (most ? value / most : 0);
  const bounded = Math.min(1, Math.max(0, place));
  return ramp(kind)[Math.round(bounded * (STEPS - 1))];
}

const css = (rgb) => `rgb(${rgb.join(" ")})`;
const readable = ([r, g, b]) => (0.299 * r + 0.587 * g + 0.114 * b > 140 ? "#16181d" : "#ffffff");

function tint(node, kind, value, most) {
  const rgb = shade(kind, value, most);
  node.style.setProperty("background-color", css(rgb));
  node.style.setProperty("color", readable(rgb));
  return node;
}

function legend(kind, most, name = kind === "weight" ? "weight" : "value") {
  const ticks = kind === "weight" ? [0, 0.05, 0.25, 0.5, 1].map((part) => part * most) : [-most, 0, most];
  const marks = ticks.map((value) => el("span", {}, tint(el("i"), kind, value, most), number(value, 2)));
  return el("div", { class: "legend", "aria-hidden": "true" }, el("b", { text: name }), marks);
}
