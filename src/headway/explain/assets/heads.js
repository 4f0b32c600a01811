// Step 4: every head at a glance, one head large, and its looks as lines.

function buildHeads(body) {
  body.append(
    ...prose(
      "Every layer has several heads, and each looks for something else: a word before, a matching bracket, the verb of a subject, or just the first token, where a head rests when it has found nothing. Each small picture is one head: rows look at columns, and the brighter stroke against the background is more weight. Press one to see it large.",
    ),
  );
  const buttons = [];
  for (const group of groups()) {
    body.append(el("h3", { text: `${group.title}: layers down, heads across` }), thumbnails(group.members, buttons));
  }
  const large = el("div", { id: "large" });
  body.append(large);
  const redraw = () => {
    buttons.forEach(([node, layer, head]) =>
      node.setAttribute("aria-pressed", String(layer === chosen.layer && head === chosen.head)),
    );
    large.replaceChildren(...oneHead(body));
  };
  redraw();
  return redraw;
}

function groups() {
  const found = new Map();
  story.attention.forEach((attention, layer) => {
    const title = `${attention.stack} ${KINDS[attention.kind]}`;
    if (!found.has(title)) found.set(title, { title, members: [] });
    found.get(title).members.push([attention, layer]);
  });
  return [...found.values()];
}

function thumbnails(members, buttons) {
  const heads = Math.max(...members.map(([attention]) => attention.heads));
  const grid = el(
    "div",
    { class: "grid", css: { "--heads": heads } },
    el("i"),
    range(heads).map((head) => el("i", { text: String(head) })),
  );
  for (const [attention, layer] of members) {
    const mask = tensor(attention.mask).values;
    const [, queries, keys] = attention.weights.shape;
    grid.append(el("i", { text: String(attention.layer) }));
    for (const head of range(heads)) {
      if (head >= attention.heads) {
        grid.append(el("i"));
        continue;
      }
      const canvas = el("canvas", { width: keys, height: queries });
      const name = `${layerName(attention)}, head ${head}`;
      const node = el(
        "button",
        { type: "button", class: "thumb", "aria-label": name, onclick: () => choose({ layer, head }) },
        canvas,
      );
      describe(node, () => [
        name,
        `weights[${head}], ${queries} × ${keys}`,
        habit(weightsOf(attention, head), attention),
      ]);
      paint(canvas, weightsOf(attention, head), "weight", 1, (i, j) => !mask[i * keys + j]);
      buttons.push([node, layer, head]);
      grid.append(node);
    }
  }
  return el("div", { class: "scroll plain" }, grid);
}

function habit(weights, attention) {
  const { shares, spread: over } = habits(weights);
  const names =
    attention.kind === "self"
      ? {
          first: "the first token",
          itself: "itself",
          previous: "the token before",
          next: "the token after",
          last: "the last token",
        }
      : { first: "the first token", last: "the last token" };
  const top = Object.keys(names)
    .map((name) => [shares[name], names[name]])
    .filter(([share]) => share >= 0.15)
    .sort((a, b) => b[0] - a[0])
    .slice(0, 2);
  const where = top.map(([share, name]) => `${percent(share)} on ${name}`).join(", ");
  return `${where ? `${where}; ` : ""}spreads over ${number(over, 2)} of ${weights.shape[1]} tokens`;
}

function oneHead(body) {
  const attention = current();
  const [asks, looked] = [texts(attention.queries), texts(attention.keys)];
  const weights = weightsOf();
  const mask = tensor(attention.mask);
  const map = heatMap({
    name: "weights",
    index: (i, j) => [chosen.head, i, j],
    shape: attention.weights.shape,
    matrix: weights,
    rows: asks,
    columns: looked,
    rowWord: "looks",
    kind: "weight",
    most: 1,
    cell: squareCell(body, looked.length),
    square: true,
    hidden: (i, j) => !mask.at(i, j),
    pick: (query, key) => choose({ query, key }),
    label: `weights of ${layerName(attention)}, head ${chosen.head}`,
  });
  map.choose(chosen.query, chosen.key);
  const image = story.sequences[attention.keys].picture;
  const own = Array.from(weights.of(chosen.query).values);
  return [
    heading(`${layerName(attention)}, head ${chosen.head}`, "large-name"),
    el(
      "p",
      { class: "prose" },
      `On this text its weight goes ${habit(weights, attention)} (on average over the rows; a row spread evenly over 3 tokens counts as 3).`,
    ),
    el(
      "figure",
      {},
      el(
        "figcaption",
        {},
        el("b", { text: "weights" }),
        ` ${attention.weights.shape.join(" × ")}: each row is a token that looks, and sums to one${attention.causal ? "; hatched cells are the future, which the mask hides" : ""}`,
      ),
      map,
      legend("weight", 1),
    ),
    image &&
      el(
        "figure",
        {},
        el("figcaption", {}, "what the chosen token looks at; dark is no weight"),
        picture(image, own.slice(image.first, image.first + image.rows * image.columns)),
      ),
    attention.kind !== "self" && alignment(body, attention, asks, looked),
    heading("The same head as lines"),
    el(
      "p",
      { class: "prose" },
      "From each token on the left to the tokens it looks at on the right; the stronger the line, the more weight. Press a token on the left to see its lines alone.",
    ),
    lines(asks, looked, weights),
  ];
}

// Cross-attention: which read token each written token came from, over all heads of the layer.
function alignment(body, attention, asks, looked) {
  const all = tensor(attention.weights);
  const [heads, queries, keys] = all.shape;
  const mean = new Float32Array(queries * keys);
  for (let head = 0; head < heads; head++)
    all.of(head).values.forEach((weight, i) => {
      mean[i] += weight / heads;
    });
  const matrix = new Tensor([queries, keys], mean);
  const map = heatMap({
    name: "mean weight",
    matrix,
    rows: asks,
    columns: looked,
    rowWord: "written",
    kind: "weight",
    most: 1,
    cell: squareCell(body, keys),
    square: true,
    pick: (query, key) => choose({ query, key }),
  });
  const pairs = asks.map((text, i) =>
    el("li", {}, bdi(text), " ← ", bdi(looked[largest(Array.from(matrix.of(i).values))])),
  );
  return el(
    "figure",
    { id: "alignment" },
    el(
      "figcaption",
      {},
      el("b", { text: "alignment" }),
      ` the mean over the ${plural(heads, "head")} of this layer: written tokens are rows, read ones columns. A diagonal means word for word; a crossing means that the order changed.`,
    ),
    map,
    legend("weight", 1),
    el("ul", { class: "pairs", "aria-label": "the read token each written token looks at most" }, pairs),
  );
}
