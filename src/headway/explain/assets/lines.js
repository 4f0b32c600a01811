// Token-to-token lines: queries left, keys right.

const FAINT = 0.06;

function lines(asks, looked, weights) {
  const rows = Math.max(asks.length, looked.length);
  const each = rows <= 32 ? 26 : rows <= 96 ? 18 : 12;
  const canvas = el("canvas", { "aria-hidden": "true" });
  const side = (labels, kind, press, isOn) =>
    el(
      "div",
      { class: `side ${kind}` },
      labels.map((text, i) =>
        el("button", { type: "button", "aria-pressed": String(isOn(i)), onclick: () => press(i) }, bdi(text)),
      ),
    );
  const node = el(
    "div",
    { class: "lines", css: { "--each": `${each}px` } },
    side(
      asks,
      "q",
      (query) => choose({ query }),
      (i) => i === chosen.query,
    ),
    canvas,
    side(
      looked,
      "k",
      (key) => choose({ key }),
      (i) => i === chosen.key,
    ),
  );
  const draw = () => {
    const wide = canvas.clientWidth;
    const high = rows * each;
    const dense = Math.min(2, window.devicePixelRatio || 1);
    canvas.width = wide * dense;
    canvas.height = high * dense;
    canvas.style.setProperty("height", `${high}px`);
    const pen = canvas.getContext("2d");
    pen.scale(dense, dense);
    pen.strokeStyle = getComputedStyle(canvas).color;
    const stroke = (query, key, weight, strong) => {
      const [from, to] = [(query + 0.5) * each, (key + 0.5) * each];
      pen.globalAlpha = strong ? 0.4 + 0.6 * weight : 0.1 + 0.35 * weight;
      pen.lineWidth = strong ? 1 + 5 * weight : 0.6 + 2 * weight;
      pen.beginPath();
      pen.moveTo(2, from);
      pen.bezierCurveTo(wide * 0.4, from, wide * 0.6, to, wide - 2, to);
      pen.stroke();
    };
    for (let i = 0; i < asks.length; i++) {
      const row = weights.of(i).values;
      for (let j = 0; j < looked.length; j++) if (i !== chosen.query && row[j] > FAINT) stroke(i, j, row[j], false);
    }
    weights.of(chosen.query).values.forEach((weight, key) => {
      if (weight > 0.005) stroke(chosen.query, key, weight, true);
    });
  };
  requestAnimationFrame(draw);
  return node;
}
