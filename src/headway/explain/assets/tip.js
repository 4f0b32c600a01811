// What a number is, where the pointer or the keyboard is: its name, shape, index and value.

const ARROWS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }; // down, across
const tip = document.getElementById("tip");
const descriptions = new WeakMap();

// `lines` is a function, so that nothing is computed before it is shown. The first line is the name.
function describe(node, lines) {
  descriptions.set(node, lines);
  return node;
}

function showTip(lines, x, y) {
  tip.replaceChildren(...lines.filter(Boolean).map((line, i) => el(i ? "div" : "strong", { dir: "auto", text: line })));
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const left = Math.min(Math.max(6, x + 14), window.innerWidth - width - 6);
  const top = y + 18 + height > window.innerHeight ? y - height - 12 : y + 18;
  tip.style.setProperty("transform", `translate(${Math.round(left)}px, ${Math.round(Math.max(6, top))}px)`);
}

function hideTip() {
  tip.hidden = true;
}

function say(text) {
  document.getElementById("say").textContent = text;
}

function subject(target) {
  let node = target;
  while (node && !descriptions.has(node)) node = node.parentNode;
  return node;
}

document.addEventListener("pointerover", (event) => {
  const node = subject(event.target);
  if (node) showTip(descriptions.get(node)(), event.clientX, event.clientY);
  else if (!event.target.closest?.("canvas")) hideTip();
});
document.addEventListener("focusin", (event) => {
  const node = subject(event.target);
  if (!node || !event.target.matches(":focus-visible")) return;
  const box = node.getBoundingClientRect();
  showTip(descriptions.get(node)(), box.left, box.bottom - 12);
  say(descriptions.get(node)().filter(Boolean).join("; "));
});
document.addEventListener("focusout", hideTip);
// Not on every scroll: the keyboard scrolls too, when it brings what it reads into view.
document.addEventListener("wheel", hideTip, { passive: true });
document.addEventListener("touchmove", (event) => event.target.closest?.("canvas") || hideTip(), { passive: true });
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") hideTip();
});
