// Elements from plain values. Text is always inserted as text: nothing here parses markup.

const PROPERTIES = new Set(["value", "checked", "disabled", "hidden", "textContent", "selected", "open", "multiple"]);
const SVG = "http://www.w3.org/2000/svg";

function fill(node, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) {
      if (PROPERTIES.has(name)) node[name] = value ?? "";
    } else if (name.startsWith("on")) {
      node.addEventListener(name.slice(2), value);
    } else if (name === "style") {
      for (const [key, each] of Object.entries(value)) node.style.setProperty(key, each);
    } else if (PROPERTIES.has(name)) {
      node[name] = value;
    } else {
      node.setAttribute(name, value === true ? "" : value);
    }
  }
  node.append(...children.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== false));
  return node;
}

export const h = (tag, props = {}, ...children) => fill(document.createElement(tag), props, children);
export const svg = (tag, props = {}, ...children) => fill(document.createElementNS(SVG, tag), props, children);
export const show = (node, ...children) => node.replaceChildren(...children.flat(Infinity).filter(Boolean));

let counter = 0;
export const newId = (stem) => `${stem}-${++counter}`;

/** Tells screen readers, without moving the focus. */
export function announce(text) {
  const node = document.getElementById("status");
  node.textContent = "";
  requestAnimationFrame(() => (node.textContent = text));
}

let toastTimer;
export function toast(text) {
  const node = document.getElementById("toast");
  node.textContent = text;
  node.hidden = false;
  announce(text);
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => (node.hidden = true), 2500);
}

/** A tooltip beside an element. */
export function tip(anchor, ...content) {
  const node = document.getElementById("tip");
  if (!anchor) return void (node.hidden = true);
  show(node, ...content);
  node.hidden = false;
  const box = anchor.getBoundingClientRect();
  const own = node.getBoundingClientRect();
  const left = Math.max(8, Math.min(box.left, innerWidth - own.width - 8));
  const above = box.top - own.height - 8;
  node.style.left = `${left}px`;
  node.style.top = `${above > 8 ? above : box.bottom + 8}px`;
}

export const percent = (share) => `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)}%`;
export const count = (number) => number.toLocaleString("en");

export function size(bytes) {
  const units = ["bytes", "kB", "MB", "GB", "TB"];
  let step = 0;
  while (bytes >= 1000 && step < units.length - 1) [bytes, step] = [bytes / 1000, step + 1];
  return `${step ? bytes.toFixed(1) : bytes} ${units[step]}`;
}

export function duration(seconds) {
  const [minutes, rest] = [Math.floor(seconds / 60), Math.round(seconds % 60)];
  if (minutes < 1) return `${rest} s`;
  return minutes < 60 ? `${minutes} min ${rest} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** Up to four significant digits. */
export function short(value) {
  if (!Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (value !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(2);
  return String(Number(value.toPrecision(4)));
}

/** A text by its code points: places in answers count characters as Python does. */
export const codePoints = (text) => Array.from(text);

/** The bytes of a file in base64. */
export function base64(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result.slice(reader.result.indexOf(",") + 1));
    reader.onerror = () => reject(new Error(`${file.name ?? "the file"} cannot be read`));
    reader.readAsDataURL(file);
  });
}

/** Waits until calls stop coming. */
export function debounced(call, wait) {
  let timer;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => call(...given), wait);
  };
}
