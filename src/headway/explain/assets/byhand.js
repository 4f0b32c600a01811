// Step 3: one head, one token, worked out number by number, beside what the model recorded.

function buildByHand(body) {
  const place = el("div");
  body.append(...prose(WORDS.byhand), el("p", { class: "formula", text: WORDS.formula }), place);
  const redraw = () => place.replaceChildren(...byHand());
  redraw();
  return redraw;
}

function byHand() {
  const attention = current();
  const [asks, looked] = [texts(attention.queries), texts(attention.keys)];
  const where = ` (token ${chosen.query}), ${layerName(attention)}, head ${chosen.head}`;
  const who = el("p", { class: "who" }, el("span", { class: "q", text: "Query: " }), bdi(asks[chosen.query]), where);
  if (!attention.q || !attention.k || !attention.v) return [who, ...weightsOnly(attention, looked)];
  const work = attend(attention, chosen.head, chosen.query);
  return [
    who,
    ...threeVectors(attention, work, looked),
    ...oneProduct(attention, work, asks, looked),
    ...everyKey(attention, work, looked),
    ...weightedSum(attention, work, looked),
  ].filter(Boolean);
}

const recordedWeights = () => Array.from(weightsOf().of(chosen.query).values);
const keyButton = (text, key) => pressable(bdi(text), () => choose({ key }));
const isKey = (key) => ({ "aria-selected": String(key === chosen.key) });

function recordedCell(attention, key) {
  const value = weightsOf(attention).at(chosen.query, key);
  return barCell(value, 1, fixed(value, 4), () => [
    `weights[${chosen.head}, ${chosen.query}, ${key}] = ${number(value, 6)}`,
    `shape ${attention.weights.shape.join(" × ")}`,
  ]);
}

function weightsOnly(attention, looked) {
  const rows = looked.map((text, key) => line(keyButton(text, key), recordedCell(attention, key), isKey(key)));
  const why = attention.kind === "additive" ? WORDS.additive : WORDS.notKept;
  return [...prose(why), table(["looks at", "weight"], rows, { id: "every-key" })];
}

function threeVectors(attention, work, looked) {
  const q = tensor(attention.q);
  const turned = story.embedding.some((each) => each.position.kind === "rotary" && each.sequence === attention.queries);
  const after = turned ? ", turned by its position" : "";
  const share = `; ${attention.heads} query heads share ${attention.kv_heads} of these`;
  const shared = `${share}, this one reads number ${work.shared}`;
  const every = (name, wire) => {
    const matrix = tensor(wire).of(work.shared);
    return heatMap({
      ...{ name, index: (i, j) => [work.shared, i, j], shape: wire.shape, matrix, rows: looked },
      ...{ kind: "signed", most: spread(matrix), cell: rowHeight(looked.length), pick: (key) => choose({ key }) },
    });
  };
  const own = heatMap({
    ...{ name: "q", index: (_, j) => [chosen.head, chosen.query, j], shape: q.shape },
    ...{ matrix: new Tensor([1, work.asked.length], work.asked), rows: [texts(attention.queries)[chosen.query]] },
    ...{ kind: "signed", most: spread(q.of(chosen.head)), cell: 24 },
  });
  const name = (letter) => el("span", { class: letter, text: letter });
  const few = attention.kv_heads < attention.heads ? shared : "";
  return [
    heading("The three vectors"),
    figure(name("q"), `the query of this token: ${work.asked.length} numbers${after}`, own),
    el(
      "div",
      { class: "pair" },
      figure(name("k"), `the key of every token${after}${few}`, every("k", attention.k)),
      figure(name("v"), `the value of every token${few && "; shared likewise"}`, every("v", attention.v)),
    ),
  ];
}
