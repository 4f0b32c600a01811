// Token-to-token lines: queries left, keys right. Made once for two texts; `show` draws the weights of a head.

const [FAINT, FAINTEST] = [0.06, 0.005]; // weights under these have no line: of any token, of the chosen one

function lines(queryTexts, keyTexts) {
  const rows = Math.max(queryTexts.length, keyTexts.length);
  const each = rows <= 32 ? 26 : rows <= 96 ? 18 : 12;
  const canvas = el("canvas", { "aria-hidden": "true" });
  const buttons = (labels, press) =>
    labels.map((text, i) => el("button", { type: "button", onclick: () => press(i) }, bdi(text)));
  const [left, right] = [buttons(queryTexts, (query) => choose({ query })), buttons(keyTexts, (key) => choose({ key }))];
  const [pressLeft, pressRight] = [oneOf(left), oneOf(right)];
  const node = el(
    "div",
    { class: "lines", css: { "--each": `${each}px` } },
    el("div", { class: "side q" }, left),
    canvas,
    el("div", { class: "side k" }, right),
  );
  let pen = null;
  let wide = 0;
  let weights = null;
  const measure = () => {
    const dense = Math.min(2, window.devicePixelRatio || 1);
    wide = canvas.clientWidth;
    [canvas.width, canvas.height] = [wide * dense, rows * each * dense];
    canvas.style.setProperty("height", `${rows * each}px`);
    pen = canvas.getContext("2d");
    pen.scale(dense, dense);
    pen.strokeStyle = getComputedStyle(canvas).color;
  };
  const stroke = (query, key, weight, strong) => {
    const [from, to] = [(query + 0.5) * each, (key + 0.5) * each];
    pen.globalAlpha = strong ? 0.4 + 0.6 * weight : 0.1 + 0.35 * weight;
    pen.lineWidth = strong ? 1 + 5 * weight : 0.6 + 2 * weight;
    pen.beginPath();
    pen.moveTo(2, from);
    pen.bezierCurveTo(wide * 0.4, from, wide * 0.6, to, wide - 2, to);
    pen.stroke();
  };
  const draw = () => {
    const { values } = weights;
    pen.clearRect(0, 0, wide, rows * each);
    const row = (query, least, strong) => {
      for (let key = 0; key < keyTexts.length; key++) {
        const weight = values[query * keyTexts.length + key];
        if (weight > least) stroke(query, key, weight, strong);
      }
    };
    for (let query = 0; query < queryTexts.length; query++) if (query !== chosen.query) row(query, FAINT, false);
    row(chosen.query, FAINTEST, true);
  };
  node.show = (next) => {
    weights = next;
    pressLeft(chosen.query);
    pressRight(chosen.key);
    if (pen) draw();
  };
  requestAnimationFrame(() => {
    measure();
    draw();
  });
  return node;
}
