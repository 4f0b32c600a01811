"use strict";
// Making elements. Data only ever becomes text nodes and attributes, never markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "text") node.textContent = value;
    else if (name === "css") for (const [key, each] of Object.entries(value)) node.style.setProperty(key, each);
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

const el = (tag, properties = {}, ...children) => fill(document.createElement(tag), properties, children);
const svg = (tag, properties = {}, ...children) => fill(document.createElementNS(SVG, tag), properties, children);

// The page's own sentences, which may have **strong** and `code` words. Data never passes through here.
function prose(...sentences) {
  return sentences.filter(Boolean).map((sentence) => {
    const parts = sentence.split(/(\*\*[^*]+\*\*|`[^`]+`)/);
    const spans = parts.map((part) => {
      if (part.startsWith("**")) return el("strong", { text: part.slice(2, -2) });
      if (part.startsWith("`")) return el("code", { text: part.slice(1, -1) });
      return part;
    });
    return el("p", { class: "prose" }, spans);
  });
}

const heading = (text, id = null) => el("h3", { text, id });
const figure = (name, caption, ...children) =>
  el("figure", {}, el("figcaption", {}, el("b", {}, name), " ", caption), children);
const range = (count) => Array.from({ length: count }, (_, index) => index);
const plural = (count, word, many = `${word}s`) => `${count.toLocaleString("en")} ${count === 1 ? word : many}`;
