// Step 4: every head small, one head large, and its weights as lines.

function buildHeads(body) {
  body.append(...prose(manyHeads() ? WORDS.heads : WORDS.oneHead));
  const buttons = [];
  for (const [title, members] of manyHeads() ? groups() : []) {
    body.append(heading(`${title}: layers down, heads across`), thumbnails(members, buttons));
  }
  const press = oneOf(buttons.map(([node]) => node));
  const large = el("div", { id: "large" });
  body.append(large);
  const kind = () => [current().queries, current().keys, current().kind, current().causal].join();
  const show = keeping(large, kind, () => oneHead(body));
  const redraw = () => {
    press(buttons.findIndex(([, layer, head]) => layer === chosen.layer && head === chosen.head));
    show();
  };
  redraw();
  return redraw;
}

// The largest weight of all, so that the small pictures can be compared with each other.
let strongestOfAll = 0;
const strongest = () => {
  strongestOfAll ||= Math.max(...story.attention.map((attention) => largestSize(tensor(attention.weights).values)));
  return strongestOfAll;
};

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
  const weights = weightsOf(attention, head);
  const canvas = el("canvas", { width: keys, height: queries });
  const name = `${layerName(attention)}, head ${head}`;
  const press = () => choose({ layer, head });
  const node = el("button", { type: "button", class: "thumb", "aria-label": name, onclick: press }, canvas);
  paint(canvas, weights, "weight", strongest(), tensor(attention.mask).values);
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
  const names = attention.kind === "self" ? Object.keys(PLACES) : ["first", "last"];
  const large = names.filter((name) => shares[name] >= 0.15).sort((a, b) => shares[b] - shares[a]);
  const where = large.slice(0, 2).map((name) => `${percent(shares[name])} to ${PLACES[name]}`);
  return [...where, `spread over ${number(over, 2)} of ${plural(weights.shape[1], "token")}`].join("; ");
}

function oneHead(body) {
  const attention = current();
  const [queryTexts, keyTexts] = [texts(attention.queries), texts(attention.keys)];
  const paired = Math.max(queryTexts.length, keyTexts.length) <= 16;
  const map = heatMap({
    ...{ name: "weights", index: (i, j) => [chosen.head, i, j], matrix: weightsOf(), kind: "weight", most: 1 },
    ...{ rows: queryTexts, columns: keyTexts, rowWord: "query", square: true },
    cell: squareCell(body, keyTexts.length, paired ? 2 : 1),
    pick: (query, key) => choose({ query, key }),
  });
  const [drawn, scale] = [keyTexts.length <= MANY_TOKENS && lines(queryTexts, keyTexts), el("div")];
  const [title, says, caption] = [heading("", "large-name"), el("p", { class: "prose" }), new Text()];
  const image = story.sequences[attention.keys].picture;
  const drawing = !image && story.sequences[attention.queries].picture; // patches that attend to words
  const onImage = el("div");
  const aligned = attention.kind !== "self" && story.output?.kind !== "objects";
  const across = aligned && queryTexts.length > 1 && alignment(body, queryTexts, keyTexts);
  const show = () => {
    const weights = weightsOf();
    const name = headName(current());
    const most = largestSize(weights.values);
    const future = current().causal ? "; hatched cells are the future, which the mask hides" : "";
    title.textContent = name;
    says.textContent = `Of its weight on this text: ${habit(weights, current())} (means over the rows).`;
    caption.textContent = `${current().weights.shape.join(" × ")}: ${WORDS.rows}${future}`;
    const mask = tensor(current().mask).values;
    map.show({ matrix: weights, mask, most, shape: current().weights.shape, label: `weights of ${name}` });
    scale.replaceChildren(legend("weight", most));
    map.choose(chosen.query, chosen.key);
    drawn?.show?.(weights);
    across?.show?.();
    if (drawing) {
      const [patches, keys] = weights.shape;
      const toKey = range(patches).map((query) => weights.values[query * keys + chosen.key]);
      const named = el("p", { class: "caption", dir: "auto" }, "weight on ", word(tokensOf(current().keys)[chosen.key].text));
      onImage.replaceChildren(picture(drawing, toKey), named);
    }
    if (!image) return;
    const patches = recordedWeights().slice(image.first, image.first + image.rows * image.columns);
    onImage.replaceChildren(picture(image, patches));
  };
  const nodes = [
    title,
    says,
    image && figure(image.kind === "sound" ? "on the spectrogram" : "on the image", WORDS.onImage, onImage),
    drawing && figure("on the picture", WORDS.onDrawing, onImage),
    el(
      "div",
      { class: paired ? "pair" : null },
      figure("weights", caption, map, scale),
      drawn && figure("lines", WORDS.lines, drawn),
    ),
    across,
  ];
  return [nodes, show];
}

// Cross-attention: the source token behind each target token, over all heads of the layer. The rows are labelled by the
// predicted token, which is the one after the decoder's input token.
function alignment(body, queryTexts, keyTexts) {
  const [heads, queries, keys] = current().weights.shape;
  const mean = new Tensor([queries, keys], new Float32Array(queries * keys));
  const targets = queryTexts.map((text, i) => (story.output?.rows[i] ? visible(taken(story.output.rows[i]).text) : text));
  const map = heatMap({
    ...{ name: "mean weight", matrix: mean, rows: targets, columns: keyTexts, rowWord: "target" },
    ...{ kind: "weight", most: 1, cell: squareCell(body, keys), square: true },
    pick: (query, key) => choose({ query, key }),
  });
  const list = el("ul", { class: "pairs", "aria-label": "the source token with the largest weight for each target token" });
  const over = heads > 1 ? "the mean over this layer's heads: " : "";
  const node = figure("alignment", over + WORDS.alignment, map, legend("weight", 1), list);
  node.id = "alignment";
  let layer = null;
  node.show = () => {
    if (layer === chosen.layer) return;
    layer = chosen.layer;
    const all = tensor(current().weights);
    mean.values.fill(0);
    range(heads).forEach((head) => all.of(head).values.forEach((weight, i) => (mean.values[i] += weight / heads)));
    map.show();
    const best = (i) => keyTexts[largest(Array.from(mean.of(i).values))];
    list.replaceChildren(...targets.map((text, i) => el("li", {}, bdi(text), " ← ", bdi(best(i)))));
  };
  return node;
}
