// Step 3: one head, one token, worked out number by number, beside what the model recorded.

function buildByHand(body) {
  body.append(
    ...prose(
      "Attention lets a token gather what it needs from other tokens. From each token's vector a head makes three short ones: a **query**, what am I looking for? a **key**, how do I describe myself? and a **value**, what do I pass on? Everything below is worked out by this page from those three, and then compared with what the model itself recorded.",
    ),
    el(
      "p",
      {
        class: "formula",
        "aria-label":
          "Attention of Q, K and V is the softmax of Q times K transposed over the square root of d k, times V",
      },
      "Attention(Q, K, V) = softmax(Q Kᵀ / √dₖ) V",
    ),
  );
  const place = el("div");
  body.append(place);
  const redraw = () => place.replaceChildren(...byHand(body));
  redraw();
  return redraw;
}

function byHand(body) {
  const attention = current();
  const [asks, looked] = [texts(attention.queries), texts(attention.keys)];
  const who = el(
    "p",
    { class: "who" },
    el("span", { class: "q", text: "Query: " }),
    bdi(asks[chosen.query]),
    ` (token ${chosen.query}), ${layerName(attention)}, head ${chosen.head}.`,
  );
  if (!attention.q || !attention.k || !attention.v) return [who, ...withoutVectors(attention, looked)];
  const work = attend(attention, chosen.head, chosen.query);
  return [
    who,
    ...threeVectors(attention, work, looked),
    ...oneProduct(attention, work, asks, looked),
    ...everyKey(attention, work, looked),
    ...weightedSum(attention, work, looked),
  ];
}

function withoutVectors(attention, looked) {
  const why =
    attention.kind === "additive"
      ? "This is the older, additive attention (Bahdanau 2014): a score is not a dot product but the output of a small network that is shown the two states, vᵀ tanh(W s + U h). The weights are its softmax."
      : "The queries, keys and values of this layer were not kept, to keep the page small; its weights were. Choose another layer above, or make the page with this layer kept (`--layers`).";
  const weight = Array.from(weightsOf().of(chosen.query).values);
  const rows = looked.map((text, key) =>
    el(
      "tr",
      { "aria-selected": String(key === chosen.key) },
      el("th", { scope: "row" }, keyButton(text, key)),
      barCell(weight[key], 1, fixed(weight[key], 4), () => weightLines(attention, key)),
    ),
  );
  return [
    ...prose(why),
    el(
      "div",
      { class: "scroll" },
      el(
        "table",
        { class: "sums" },
        el(
          "thead",
          {},
          el(
            "tr",
            {},
            ["looks at", "weight"].map((text) => el("th", { scope: "col", text })),
          ),
        ),
        el("tbody", {}, rows),
      ),
    ),
  ];
}

function threeVectors(attention, work, looked) {
  const [q, k, v] = [attention.q, attention.k, attention.v].map(tensor);
  const turned = story.embedding.some((each) => each.position.kind === "rotary" && each.sequence === attention.queries);
  const shared =
    attention.kv_heads < attention.heads
      ? ` (${attention.heads} query heads share ${attention.kv_heads} key and value heads; this head reads number ${work.shared})`
      : "";
  const figure = (kind, name, says, map) =>
    el("figure", { class: kind }, el("figcaption", {}, el("b", { class: kind, text: name }), ` ${says}`), map);
  const keys = (name, wire, matrix) =>
    heatMap({
      name,
      index: (i, j) => [work.shared, i, j],
      shape: wire.shape,
      matrix: matrix.of(work.shared),
      rows: looked,
      kind: "signed",
      most: spread(matrix.of(work.shared)),
      cell: rowHeight(looked.length),
      pick: (key) => choose({ key }),
    });
  return [
    heading("The three vectors"),
    figure(
      "q",
      "q",
      `query of this token: ${work.asked.length} numbers${turned ? ", turned by its position" : ""}`,
      heatMap({
        name: "q",
        index: (_, j) => [chosen.head, chosen.query, j],
        shape: q.shape,
        matrix: new Tensor([1, work.asked.length], work.asked),
        rows: [texts(attention.queries)[chosen.query]],
        kind: "signed",
        most: spread(q.of(chosen.head)),
        cell: 24,
      }),
    ),
    el(
      "div",
      { class: "pair" },
      figure(
        "k",
        "k",
        `key of every token${turned ? ", turned by its position" : ""}${shared}`,
        keys("k", attention.k, k),
      ),
      figure("v", "v", "value of every token", keys("v", attention.v, v)),
    ),
  ];
}

const weightLines = (attention, key) => [
  `weights[${chosen.head}, ${chosen.query}, ${key}] = ${number(weightsOf(attention).at(chosen.query, key), 6)}`,
  `shape ${attention.weights.shape.join(" × ")}`,
];

const keyButton = (text, key) =>
  el("button", { type: "button", class: "link", onclick: () => choose({ key }) }, bdi(text));

function barCell(value, most, text, lines) {
  const side = value < 0 ? "less" : "more";
  const size = Math.min(1, Math.abs(value) / (most || 1));
  return describe(
    el(
      "td",
      { "data-walk": "1" },
      el("span", { class: "n", text }),
      el("span", { class: `bar ${side}`, css: { "--size": size } }),
    ),
    lines,
  );
}
