// Position figures: sinusoids, learned vectors, rotary angles, score biases.

const INKS = ["var(--query)", "var(--key)", "var(--value)", "var(--plain)"];

// The sinusoidal pattern over positions, as a picture and as curves; the text has the first `count` of them.
function sinusoid(pattern, count) {
  const most = largestSize(pattern.values) || 1;
  const named = { name: "pattern", matrix: pattern, rows: range(pattern.shape[0]).map(String), rowWord: "place" };
  const map = heatMap({ ...named, kind: "signed", most, cell: pattern.shape[0] > 16 ? 4 : 12 });
  return [
    figure("pattern", `${pattern.shape.join(" × ")}: ${WORDS.pattern}`, map, legend("signed", most)),
    waves(pattern, count),
  ];
}

// A few columns of the pattern as curves over the positions; those of the text are dots.
function waves(values, count) {
  const [places, width] = values.shape;
  const columns = [...new Set([0, 0.25, 0.5, 0.8].map((part) => 2 * Math.floor((part * width) / 4)))];
  const [high, wide] = [120, 640];
  const most = largestSize(values.values) || 1;
  const x = (i) => (places > 1 ? (i / (places - 1)) * (wide - 20) + 10 : wide / 2);
  const y = (value) => high / 2 - (value / most) * (high / 2 - 8);
  const curves = columns.map((column, nth) => {
    const points = range(places).map((i) => [x(i), y(values.at(i, column))]);
    const dots = points.slice(0, count).map(([cx, cy], i) =>
      describe(svg("circle", { cx, cy, r: count > 40 ? 2 : 3.5, fill: INKS[nth], "data-walk": "1" }), () => [
        `position[${i}, ${column}] = ${number(values.at(i, column), 6)}`,
        `shape ${values.shape.join(" × ")}`,
      ]),
    );
    return svg("g", {}, svg("polyline", { points: points.join(" "), fill: "none", stroke: INKS[nth] }), dots);
  });
  const names = columns.map((column, nth) => el("span", { css: { color: INKS[nth] }, text: `column ${column}` }));
  const label = "Columns of the position table as waves: the first turn quickly, the last slowly";
  const axis = svg("line", { x1: 0, x2: wide, y1: high / 2, y2: high / 2, class: "axis" });
  const chart = svg(
    "svg",
    { viewBox: `0 0 ${wide} ${high}`, class: "chart", role: "img", "aria-label": label },
    axis,
    curves,
  );
  return figure("waves", [WORDS.waves, names], walkable(chart));
}

// Learned positions: the cosine similarity of each two.
function nearness(values) {
  const [count] = values.shape;
  const rows = range(count).map((i) => values.of(i).values);
  const length = rows.map((row) => Math.sqrt(sum(terms(row, row))) || 1);
  const cosines = rows.flatMap((a, i) => rows.map((b, j) => sum(terms(a, b)) / (length[i] * length[j])));
  const labels = range(count).map(String);
  const map = heatMap({
    ...{
      name: "similarity",
      matrix: new Tensor([count, count], Float32Array.from(cosines)),
      rows: labels,
      columns: labels,
    },
    ...{
      rowWord: "position",
      kind: "signed",
      most: 1,
      cell: Math.max(2, Math.min(18, Math.floor(300 / count))),
      square: true,
    },
  });
  return figure("similarity of positions", WORDS.similarity, map, legend("signed", 1, "cosine"));
}

// Rotary: every pair of numbers is a clock; the two hands are the query and the key.
function dials(body, angles, sequence) {
  const [count, pairs] = angles.shape;
  const shown = range(Math.min(pairs, 32)).map((i) => Math.floor((i * pairs) / Math.min(pairs, 32)));
  const caption = el("p", { class: "caption" });
  const place = walkable(el("div", { class: "dials" }));
  const title = `${angles.shape.join(" × ")}: one clock for each pair of a query's or key's numbers, i and i + ${pairs}`;
  body.append(figure("angles", title, place, caption));
  const hand = (angle, kind) =>
    svg("line", { x1: 0, y1: 0, x2: 15 * Math.cos(angle), y2: -15 * Math.sin(angle), class: `hand ${kind}` });
  const clock = (pair, query, key) => {
    const [queryAngle, keyAngle] = [angles.at(query, pair), angles.at(key, pair)];
    const label = `pair ${pair}: ${number(queryAngle)} and ${number(keyAngle)} radians`;
    const face = svg("circle", { r: 16, class: "dial" });
    const node = svg(
      "svg",
      { viewBox: "-18 -18 36 36", "data-walk": "1", role: "img", "aria-label": label },
      face,
      hand(keyAngle, "k"),
      hand(queryAngle, "q"),
    );
    return describe(node, () => [
      `angles[${query}, ${pair}] = ${number(queryAngle, 6)}`,
      `angles[${key}, ${pair}] = ${number(keyAngle, 6)}`,
      `shape ${angles.shape.join(" × ")}, in radians; apart ${number(queryAngle - keyAngle)}`,
    ]);
  };
  const redraw = () => {
    const own = story.attention.length && current().queries === sequence && current().keys === sequence;
    const [query, key] = own ? [chosen.query, chosen.key] : [count - 1, 0];
    place.replaceChildren(...shown.map((pair) => clock(pair, query, key)));
    place.firstChild.tabIndex = 0;
    caption.replaceChildren(
      ...[el("span", { class: "q", text: "Query hand: " }), bdi(texts(sequence)[query]), ` at position ${query}. `],
      ...[
        el("span", { class: "k", text: "Key hand: " }),
        bdi(texts(sequence)[key]),
        ` at position ${key}. `,
        WORDS.clocks,
      ],
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
    const attention = story.attention.length ? current() : null;
    if (!attention?.bias) return place.replaceChildren();
    const { shape } = attention.bias;
    const matrix = tensor(attention.bias).of(chosen.head);
    const most = largestSize(matrix.values) || 1;
    const map = heatMap({
      ...{ name: "bias", index: (i, j) => [chosen.head, i, j], shape, matrix, most },
      ...{ rows: texts(attention.queries), columns: texts(attention.keys), kind: "signed", square: true },
      ...{ cell: squareCell(body, shape[2]), mask: tensor(attention.mask).values },
    });
    return place.replaceChildren(
      figure("bias", `what ${layerName(attention)}, head ${chosen.head} adds to each score`, map, legend("signed", most)),
    );
  };
  redraw();
  return redraw;
}
