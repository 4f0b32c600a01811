// Curves over the steps of training, as SVG. A pointer shows the values at a step.
import { count, h, short, svg, tip } from "./dom.js";

const [WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT] = [560, 250, 60, 26, 12, 24];
const MOST_POINTS = 600; // of one line; more are not visible
const DASHES = ["", "7 4", "2 4", "10 3 2 3", "1 3"];

/** `lines`: { name, points: [[step, value]], index }. */
export function chart(title, lines) {
  const drawn = lines.filter((line) => line.points.length);
  const all = drawn.flatMap((line) => line.points);
  const scale = scales(all);
  const last = drawn.length === 1 ? drawn[0].points.at(-1) : null;
  const pointer = svg("line", { class: "pointer", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" });
  const drawing = svg(
    "svg",
    { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": summary(title, drawn) },
    axes(scale),
    drawn.map((line) => curve(line, scale)),
    pointer,
  );
  drawing.addEventListener("pointermove", (event) => point(event, drawing, pointer, drawn, scale));
  drawing.addEventListener("pointerleave", () => {
    pointer.setAttribute("visibility", "hidden");
    tip(null);
  });
  return h("figure", { class: "chart" }, h("figcaption", {}, title, last && h("span", { class: "last" }, short(last[1]))), drawing);
}

function scales(points) {
  const steps = points.map((each) => each[0]);
  const values = points.map((each) => each[1]);
  const bounds = (numbers) => numbers.reduce(([low, high], n) => [Math.min(low, n), Math.max(high, n)], [Infinity, -Infinity]);
  let [x0, x1] = points.length ? bounds(steps) : [0, 1];
  let [y0, y1] = points.length ? bounds(values) : [0, 1];
  x0 = Math.min(x0, 0);
  if (x1 === x0) x1 = x0 + 1;
  if (y1 === y0) [y0, y1] = [y0 - (Math.abs(y0) || 1) * 0.1, y1 + (Math.abs(y1) || 1) * 0.1];
  const ticks = niceTicks(y0, y1, 4);
  [y0, y1] = [Math.min(y0, ticks[0]), Math.max(y1, ticks.at(-1))];
  return {
    x: (step) => LEFT + ((step - x0) / (x1 - x0)) * (WIDTH - LEFT - RIGHT),
    y: (value) => HEIGHT - BOTTOM - ((value - y0) / (y1 - y0)) * (HEIGHT - BOTTOM - TOP),
    step: (x) => x0 + ((x - LEFT) / (WIDTH - LEFT - RIGHT)) * (x1 - x0),
    ticks, steps: niceTicks(x0, x1, 5).filter((each) => each >= x0 && each <= x1 && Number.isInteger(each)),
  };
}

/** About so many round numbers from low to high. */
export function niceTicks(low, high, wanted) {
  const rough = (high - low) / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const unit = [1, 2, 2.5, 5, 10].map((each) => each * power).find((each) => each >= rough) ?? rough;
  const out = [];
  for (let at = Math.floor(low / unit); at * unit <= high + unit * 0.999 && out.length < 50; at++) out.push(Number((at * unit).toPrecision(12)));
  return out;
}

function axes({ x, y, ticks, steps }) {
  return [
    ticks.map((value) => [
      svg("line", { class: "rule", x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value) }),
      svg("text", { class: "axis", x: LEFT - 8, y: y(value) + 4, "text-anchor": "end" }, short(value)),
    ]),
    steps.map((step) => svg("text", { class: "axis", x: x(step), y: HEIGHT - 8, "text-anchor": step === 0 ? "start" : "middle" }, count(step))),
  ];
}

/** At most MOST_POINTS of them: of each part the extremes, so that spikes stay visible. */
export function thinned(points, most = MOST_POINTS) {
  if (points.length <= most) return points;
  const part = Math.ceil((2 * points.length) / most);
  const out = [];
  for (let at = 0; at < points.length; at += part) {
    const own = points.slice(at, at + part);
    const low = own.reduce((best, each) => (each[1] < best[1] ? each : best));
    const high = own.reduce((best, each) => (each[1] > best[1] ? each : best));
    out.push(...(low === high ? [low] : [low, high].sort((a, b) => a[0] - b[0])));
  }
  return out;
}

function curve({ points, index = 0 }, { x, y }) {
  const shown = thinned(points);
  const path = shown.map(([step, value], i) => `${i ? "L" : "M"}${x(step).toFixed(1)} ${y(value).toFixed(1)}`).join("");
  const dots = shown.length < 25 ? shown.map(([step, value]) => svg("circle", { class: "dot", cx: x(step), cy: y(value), r: 2.5 })) : [];
  return svg("g", { class: `c${index % 6}` }, svg("path", { class: "line", d: path, "stroke-dasharray": DASHES[index % DASHES.length] }), dots);
}

export function key(index) {
  return svg("svg", { viewBox: "0 0 26 8", class: `c${index % 6}`, "aria-hidden": "true" }, svg("line", { class: "line", x1: 1, x2: 25, y1: 4, y2: 4, "stroke-dasharray": DASHES[index % DASHES.length] }));
}

function point(event, drawing, pointer, lines, scale) {
  const box = drawing.getBoundingClientRect();
  const step = scale.step(((event.clientX - box.left) / box.width) * WIDTH);
  const near = lines.map((line) => ({ line, at: line.points.reduce((best, each) => (Math.abs(each[0] - step) < Math.abs(best[0] - step) ? each : best)) }));
  if (!near.length) return;
  const x = scale.x(near[0].at[0]);
  for (const name of ["x1", "x2"]) pointer.setAttribute(name, x);
  pointer.setAttribute("visibility", "visible");
  const anchor = { getBoundingClientRect: () => ({ left: event.clientX + 12, top: event.clientY - 6, bottom: event.clientY + 6 }) };
  const rows = near.map(({ line, at }) => h("tr", {}, h("td", {}, lines.length > 1 ? line.name : `step ${count(at[0])}`), h("td", { class: "number" }, short(at[1]))));
  tip(anchor, h("table", {}, h("tbody", {}, rows)));
}

function summary(title, lines) {
  if (!lines.length) return `${title}: no values yet`;
  const part = ({ name, points }) => `${lines.length > 1 ? `${name} ` : ""}from ${short(points[0][1])} at step ${points[0][0]} to ${short(points.at(-1)[1])} at step ${points.at(-1)[0]}`;
  return `${title}: ${lines.map(part).join("; ")}`;
}
