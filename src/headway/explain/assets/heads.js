// Step 4: every head at a glance, one head large, and its looks as lines.

function buildHeads(body) {
  body.append(...prose(WORDS.heads));
  const buttons = [];
  const many = story.attention.length > 1 || story.attention[0].heads > 1;
  for (const [title, members] of many ? groups() : []) {
    body.append(heading(`${title}: layers down, heads across`), thumbnails(members, buttons));
  }
  const large = el("div", { id: "large" });
  body.append(large);
  const redraw = () => {
    for (const [node, layer, head] of buttons) {
      node.setAttribute("aria-pressed", String(layer === chosen.layer && head === chosen.head));
    }
    large.replaceChildren(...oneHead(body).filter(Boolean));
  };
  redraw();
  return redraw;
}

function groups() {
  const found = new Map();
  story.attention.forEach((attention, layer) => {
    const title = `${attention.stack} ${KINDS[attention.kind]}`;
    found.set(title, [...(found.get(title) ?? []), [attention, layer]]);
  });
  return found;
}

function thumbnails(members, buttons) {
  const heads = Math.max(...members.map(([attention]) => attention.heads));
  const mark = (text = "") => el("i", { text });
  const grid = el("div", { class: "grid", css: { "--heads": heads } }, mark(), range(heads).map(String).map(mark));
  for (const [attention, layer] of members) {
    grid.append(mark(String(attention.layer)));
    for (const head of range(heads)) {
      if (head >= attention.heads) {
        grid.append(mark());
        continue;
      }
      const node = thumbnail(attention, layer, head);
      buttons.push([node, layer, head]);
      grid.append(node);
    }
  }
  return el("div", { class: "scroll plain" }, grid);
}

function thumbnail(attention, layer, head) {
  const [, queries, keys] = attention.weights.shape;
  const mask = tensor(attention.mask).values;
  const weights = weightsOf(attention, head);
  const canvas = el("canvas", { width: keys, height: queries });
  const name = `${layerName(attention)}, head ${head}`;
  const press = () => choose({ layer, head });
  const node = el("button", { type: "button", class: "thumb", "aria-label": name, onclick: press }, canvas);
  paint(canvas, weights, "weight", 1, (i, j) => !mask[i * keys + j]);
  return describe(node, () => [name, `weights[${head}], ${queries} × ${keys}`, habit(weights, attention)]);
}

const PLACES = {
  first: "the first token",
  last: "the last token",
  itself: "itself",
  previous: "the token before",
  next: "the token after",
};

function habit(weights, attention) {
  const { shares, spread: over } = habits(weights);
  const asked = attention.kind === "self" ? Object.keys(PLACES) : ["first", "last"];
  const large = asked.filter((name) => shares[name] >= 0.15).sort((a, b) => shares[b] - shares[a]);
  const where = large.slice(0, 2).map((name) => `${percent(shares[name])} to ${PLACES[name]}`);
  return [...where, `spread over ${number(over, 2)} of ${weights.shape[1]} tokens`].join("; ");
}

function oneHead(body) {
  const attention = current();
  const [asks, looked] = [texts(attention.queries), texts(attention.keys)];
  const weights = weightsOf();
  const mask = tensor(attention.mask);
  const name = `${layerName(attention)}, head ${chosen.head}`;
  const paired = Math.max(asks.length, looked.length) <= 16;
  const map = heatMap({
    ...{ name: "weights", index: (i, j) => [chosen.head, i, j], shape: attention.weights.shape, matrix: weights },
    ...{ rows: asks, columns: looked, rowWord: "looks", kind: "weight", most: 1, label: `weights of ${name}` },
    ...{
      cell: squareCell(body, looked.length, paired ? 2 : 1),
      square: true,
      hidden: (i, j) => !mask.values[i * looked.length + j],
    },
    pick: (query, key) => choose({ query, key }),
  });
  map.choose(chosen.query, chosen.key);
  const future = attention.causal ? "; hatched cells are the future, which the mask hides" : "";
  const caption = `${attention.weights.shape.join(" × ")}: each row is a token that looks, and sums to one${future}`;
  const image = story.sequences[attention.keys].picture;
  const patches = image && recordedWeights().slice(image.first, image.first + image.rows * image.columns);
  return [
    heading(name, "large-name"),
    el("p", {
      class: "prose",
      text: `Of its weight on this text: ${habit(weights, attention)} (means over the rows).`,
    }),
    el(
      "div",
      { class: paired ? "pair" : null },
      figure("weights", caption, map, legend("weight", 1)),
      figure("lines", WORDS.lines, lines(asks, looked, weights)),
    ),
    image && figure("on the picture", "what the chosen token looks at; dark is no weight", picture(image, patches)),
    attention.kind !== "self" && alignment(body, attention, asks, looked),
  ];
}

// Cross-attention: which read token each written token came from, over all heads of the layer.
function alignment(body, attention, asks, looked) {
  const all = tensor(attention.weights);
  const [heads, queries, keys] = all.shape;
  const mean = new Float32Array(queries * keys);
  range(heads).forEach((head) => all.of(head).values.forEach((weight, i) => (mean[i] += weight / heads)));
  const matrix = new Tensor([queries, keys], mean);
  const best = (i) => looked[largest(Array.from(matrix.of(i).values))];
  const pairs = asks.map((text, i) => el("li", {}, bdi(text), " ← ", bdi(best(i))));
  const label = "the read token that each written token looks at most";
  const list = el("ul", { class: "pairs", "aria-label": label }, pairs);
  const map = heatMap({
    ...{ name: "mean weight", matrix, rows: asks, columns: looked, rowWord: "written", kind: "weight", most: 1 },
    ...{ cell: squareCell(body, keys), square: true, pick: (query, key) => choose({ query, key }) },
  });
  const means = heads > 1 ? [map, legend("weight", 1)] : [];
  const node = figure("alignment", `the mean over this layer's heads: ${WORDS.alignment}`, means, list);
  node.id = "alignment";
  return node;
}
