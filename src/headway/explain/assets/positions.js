// The pictures of order: waves, clocks, and what distance does to a score.

const INKS = ["var(--query)", "var(--key)", "var(--value)", "var(--plain)"];

// A few columns of the position table as curves over the positions.
function waves(values) {
  const [count, width] = values.shape;
  const columns = [0, 0.12, 0.25, 0.45].map((part) => Math.floor((part * width) / 2) * 2);
  const [high, wide] = [120, 640];
  const most = largestSize(values.values) || 1;
  const x = (i) => (count > 1 ? (i / (count - 1)) * (wide - 20) + 10 : wide / 2);
  const y = (value) => high / 2 - (value / most) * (high / 2 - 8);
  const curves = [...new Set(columns)].map((column, nth) => {
    const points = range(count)
      .map((i) => `${x(i)},${y(values.at(i, column))}`)
      .join(" ");
    const dots = range(count).map((i) =>
      describe(
        svg("circle", { cx: x(i), cy: y(values.at(i, column)), r: count > 40 ? 2 : 3.5, fill: INKS[nth] }),
        () => [`position[${i}, ${column}] = ${number(values.at(i, column), 6)}`, `shape ${values.shape.join(" × ")}`],
      ),
    );
    return svg("g", {}, svg("polyline", { points, fill: "none", stroke: INKS[nth], "stroke-width": 1.5 }), dots);
  });
  const names = [...new Set(columns)].map((column, nth) =>
    el("span", { css: { color: INKS[nth] }, text: `column ${column}` }),
  );
  return el(
    "figure",
    {},
    el(
      "figcaption",
      {},
      el("b", { text: "waves" }),
      " some columns of the position table, from the first token to the last ",
      names,
    ),
    svg(
      "svg",
      {
        viewBox: `0 0 ${wide} ${high}`,
        class: "chart",
        role: "img",
        "aria-label": "Columns of the position table as waves: the first turn quickly, the last slowly",
      },
      svg("line", { x1: 0, x2: wide, y1: high / 2, y2: high / 2, class: "axis" }),
      curves,
    ),
  );
}

// Learned positions: how alike each two of them are.
function nearness(values) {
  const [count] = values.shape;
  const length = range(count).map((i) => Math.sqrt(sum(terms(values.of(i).values, values.of(i).values))) || 1);
  const cosine = new Float32Array(count * count);
  for (let i = 0; i < count; i++) {
    for (let j = 0; j < count; j++)
      cosine[i * count + j] = sum(terms(values.of(i).values, values.of(j).values)) / (length[i] * length[j]);
  }
  const labels = range(count).map(String);
  const map = heatMap({
    name: "likeness",
    matrix: new Tensor([count, count], cosine),
    rows: labels,
    columns: labels,
    rowWord: "position",
    kind: "signed",
    most: 1,
    cell: Math.max(2, Math.min(18, Math.floor(300 / count))),
    square: true,
    label: "Likeness of each two positions",
  });
  return el(
    "figure",
    {},
    el(
      "figcaption",
      {},
      el("b", { text: "likeness of positions" }),
      " the cosine between each two rows: 1 is the same direction. Neighbours that are alike mean that the model has learned what “near” is.",
    ),
    map,
  );
}

// Rotary: every pair of numbers is a clock; the two hands are the token that looks and the one looked at.
function dials(body, angles, sequence) {
  const pairs = angles.shape[1];
  const shown = range(Math.min(pairs, 32)).map((i) => Math.floor((i * pairs) / Math.min(pairs, 32)));
  const caption = el("p", { class: "caption" });
  const place = el("div", { class: "dials" });
  body.append(
    el(
      "figure",
      {},
      el(
        "figcaption",
        {},
        el("b", { text: "angles" }),
        ` ${angles.shape.join(" × ")}: one clock for each pair of numbers of a query or key`,
      ),
      place,
    ),
    caption,
  );
  const hand = (angle, name, kind) =>
    svg("line", {
      x1: 0,
      y1: 0,
      x2: 15 * Math.cos(angle),
      y2: -15 * Math.sin(angle),
      class: `hand ${kind}`,
      "aria-label": name,
    });
  const redraw = () => {
    const own = story.attention.length && current().queries === sequence && current().keys === sequence;
    const [query, key] = own ? [chosen.query, chosen.key] : [angles.shape[0] - 1, 0];
    place.replaceChildren(
      ...shown.map((pair) =>
        describe(
          svg(
            "svg",
            {
              viewBox: "-18 -18 36 36",
              role: "img",
              "aria-label": `pair ${pair}: ${number(angles.at(query, pair))} and ${number(angles.at(key, pair))} radians`,
            },
            svg("circle", { r: 16, class: "dial" }),
            hand(angles.at(key, pair), "key", "k"),
            hand(angles.at(query, pair), "query", "q"),
          ),
          () => [
            `angles[${query}, ${pair}] = ${number(angles.at(query, pair), 6)}`,
            `angles[${key}, ${pair}] = ${number(angles.at(key, pair), 6)}`,
            `shape ${angles.shape.join(" × ")}, in radians`,
            `apart: ${number(angles.at(query, pair) - angles.at(key, pair))}`,
          ],
        ),
      ),
    );
    caption.replaceChildren(
      el("span", { class: "q", text: "Query hand: " }),
      bdi(texts(sequence)[query]),
      ` at position ${query}. `,
      el("span", { class: "k", text: "Key hand: " }),
      bdi(texts(sequence)[key]),
      ` at position ${key}. `,
      "The first clocks are fast, the last slow. A dot product of two turned pairs depends only on the angle between the hands, and so only on how far apart the tokens are: move both along the text and nothing changes.",
    );
  };
  redraw();
  return redraw;
}

// ALiBi and T5: what the chosen head adds to a score for each distance.
function distances(body) {
  const place = el("div");
  body.append(place);
  const redraw = () => {
    const attention = current();
    if (!attention?.bias) {
      place.replaceChildren();
      return;
    }
    const bias = tensor(attention.bias).of(chosen.head);
    const mask = tensor(attention.mask);
    const map = heatMap({
      name: "bias",
      index: (i, j) => [chosen.head, i, j],
      shape: attention.bias.shape,
      matrix: bias,
      rows: texts(attention.queries),
      columns: texts(attention.keys),
      kind: "signed",
      cell: squareCell(body, bias.shape[1]),
      square: true,
      hidden: (i, j) => !mask.at(i, j),
    });
    place.replaceChildren(
      el(
        "figure",
        {},
        el(
          "figcaption",
          {},
          el("b", { text: "bias" }),
          ` what ${layerName(attention)}, head ${chosen.head} adds to each score`,
        ),
        map,
      ),
    );
  };
  redraw();
  return redraw;
}
