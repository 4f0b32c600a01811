// A step of the story: it folds, it is drawn when it comes near the screen, and redrawn when the choice changes.

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
  const self = { node, numbered: Number(count) > 0, redraw: null, drawn: false, stale: false, near: false };
  self.draw = () => {
    if (!node.open) return;
    const [first, stale] = [!self.drawn, self.stale];
    [self.drawn, self.stale] = [true, false];
    if (first) {
      body.replaceChildren();
      self.redraw = build(body) ?? null;
    } else if (stale) {
      if (self.redraw) inPlace(body, self.redraw);
    }
  };
  node.addEventListener("toggle", () => {
    if (self.near) self.draw();
  });
  steps.push(self);
  document.getElementById("steps").append(node);
}

// Redraws under a reader's hands: what was focused stays focused, what was scrolled stays scrolled.
function inPlace(body, redraw) {
  const focusable = () => [...body.querySelectorAll("button, input, summary, [tabindex]")];
  const scrolled = () => [...body.querySelectorAll(".scroll")];
  const focused = focusable().indexOf(document.activeElement);
  const places = scrolled().map((node) => [node.scrollLeft, node.scrollTop]);
  redraw();
  scrolled().forEach((node, i) => places[i] && node.scrollTo(...places[i]));
  if (focused >= 0 && !body.contains(document.activeElement)) focusable()[focused]?.focus({ preventScroll: true });
}

function inView(node) {
  const { top, bottom } = node.getBoundingClientRect();
  return bottom > 0 && top < window.innerHeight;
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
      if (!self.drawn) continue;
      self.stale = true;
      if (inView(self.node)) self.draw();
    }
    later(() => steps.filter((self) => self.drawn).forEach((self) => self.draw()));
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

// Far sections are drawn too, one at a time, when the browser has nothing else to do: to be found, printed, jumped to.
function drawTheRest() {
  const next = steps.find((self) => !self.drawn && self.node.open);
  if (!next) return;
  next.draw();
  later(drawTheRest);
}

// Everything anew, since the colours or the width have changed: what is near at once.
function drawAgain() {
  for (const self of steps) {
    self.drawn = false;
    if (self.near) self.draw();
  }
  later(drawTheRest);
}
