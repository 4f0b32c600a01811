// A step of the story: it folds, it is drawn when it comes near the screen, and redrawn when the choice changes.

const steps = [];
const later = window.requestIdleCallback ?? ((work) => setTimeout(work, 30));

// build(body) draws once and returns a function that redraws after a choice, or nothing.
function step(id, title, gist, build) {
  const body = el("div", { class: "body" });
  const node = el(
    "details",
    { class: "step", id, open: true },
    el(
      "summary",
      {},
      el("span", { class: "count", text: String(steps.length + 1), "aria-hidden": "true" }),
      el("h2", { text: title }),
      el("span", { class: "gist", text: gist }),
    ),
    body,
  );
  const self = { node, redraw: null, built: false, stale: false, near: false };
  self.draw = () => {
    if (!node.open) return;
    if (!self.built) {
      self.built = true;
      self.redraw = build(body) ?? null;
    } else if (self.stale) {
      self.redraw?.();
    }
    self.stale = false;
  };
  self.again = () => {
    body.replaceChildren();
    self.built = false;
    if (self.near) self.draw();
  };
  node.addEventListener("toggle", () => {
    if (self.near) self.draw();
  });
  steps.push(self);
  document.getElementById("steps").append(node);
}

function watchSteps() {
  const observer = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) {
        const self = steps.find((each) => each.node === entry.target);
        self.near = entry.isIntersecting;
        if (self.near) self.draw();
      }
    },
    { rootMargin: "400px" },
  );
  steps.forEach((self) => observer.observe(self.node));
  listeners.push(() => {
    for (const self of steps) {
      if (!self.built) continue;
      self.stale = true;
      if (self.near) self.draw();
    }
    later(() =>
      steps.forEach((self) => {
        if (self.built) self.draw();
      }),
    );
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

// Everything anew: the colours or the width have changed.
const drawAgain = () => steps.forEach((self) => self.again());
