// A step of the story: it folds, is drawn when it comes near the viewport, and is updated in place with the choice.

const steps = [];
const later = window.requestIdleCallback ?? ((work) => setTimeout(work, 30));

// build(body) draws once and returns a function that redraws after a choice, or nothing. `count` is the step's number.
function step(id, title, gist, build, count = String(steps.filter((each) => each.numbered).length + 1)) {
  const body = el("div", { class: "body" });
  const badge = el("span", { class: "count", text: count, "aria-hidden": "true" });
  const summary = el(
    "summary",
    {},
    badge,
    el("h2", { text: title, dir: "auto" }),
    el("span", { class: "gist", text: gist }),
  );
  const node = el("details", { class: "step", id, open: true }, summary, body);
  const state = { redraw: null, drawn: false, stale: false, near: false, seen: false };
  const self = { node, numbered: Number(count) > 0, ...state };
  self.draw = () => {
    if (!node.open) return;
    const [first, stale] = [!self.drawn, self.stale];
    [self.drawn, self.stale] = [true, false];
    if (first) {
      body.replaceChildren();
      self.redraw = build(body) ?? null;
    } else if (stale) self.redraw?.();
  };
  node.addEventListener("toggle", () => {
    if (self.near) self.draw();
  });
  steps.push(self);
  document.getElementById("steps").append(node);
}

// A drawing is updated with the choice: at once where it is in the viewport, else when it comes
// there or the browser has nothing else to do. `draw` is called with what was last given.
const away = new WeakSet(); // nodes that are off the screen
const pending = new Map(); // node → its drawing
const sight = new IntersectionObserver(
  (entries) => {
    for (const { target, isIntersecting } of entries) {
      if (isIntersecting) away.delete(target);
      else away.add(target);
      if (isIntersecting && pending.has(target)) drawPending(target);
    }
  },
  { rootMargin: "200px" },
);

function inSight(node, draw) {
  sight.observe(node);
  return (...given) => {
    pending.set(node, () => draw(...given));
    if (!away.has(node)) drawPending(node);
  };
}

function drawPending(node) {
  const draw = pending.get(node);
  pending.delete(node);
  if (node.isConnected) draw(); // else something of another kind stands in its place
}

// A container whose nodes are rebuilt only when `kind()` changes; otherwise they are updated with
// the new numbers, so that focus and scroll position are kept. make() returns the nodes and the update function.
function keeping(place, kind, make) {
  let [made, show] = [null, null];
  return () => {
    const wanted = kind();
    if (wanted !== made) {
      const [nodes, update] = make();
      place.replaceChildren(...nodes.filter(Boolean));
      [made, show] = [wanted, update];
    }
    show();
  };
}

function watchSteps() {
  const watch = (margin, name) => {
    const observer = new IntersectionObserver(
      (entries) => {
        for (const entry of entries) {
          const self = steps.find((each) => each.node === entry.target);
          self[name] = entry.isIntersecting;
          if (self[name]) self.draw();
        }
      },
      { rootMargin: margin },
    );
    steps.forEach((self) => observer.observe(self.node));
  };
  watch("400px", "near");
  watch("0px", "seen");
  listeners.push(() => {
    for (const self of steps) {
      self.stale = self.drawn;
      if (self.stale && self.seen) self.draw();
    }
    later(drawTheRest);
  });
}

function goTo(id) {
  const self = steps.find((each) => each.node.id === id);
  self.node.open = true;
  self.draw();
  const calm = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
  self.node.scrollIntoView({ behavior: calm ? "auto" : "smooth" });
  self.node.querySelector("summary").focus({ preventScroll: true });
}

const BREATH = 8; // ms of drawing, after which the browser may do something else

// What is out of sight is drawn too, a little at a time, when the browser has nothing else to do: to be found, printed,
// jumped to.
function drawTheRest() {
  const began = performance.now();
  for (const node of [...pending.keys()]) {
    if (performance.now() - began > BREATH) break;
    if (pending.has(node)) drawPending(node);
  }
  const next = pending.size ? null : steps.find((self) => (self.stale || !self.drawn) && self.node.open);
  next?.draw();
  if (next || pending.size) later(drawTheRest);
}

// Redraws everything after a change of colours or width: what is near the viewport at once.
function drawAgain() {
  for (const self of steps) {
    self.drawn = false;
    if (self.near) self.draw();
  }
  later(drawTheRest);
}
