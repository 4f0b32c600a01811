// Step 3: one head, one token, computed number by number, beside the recorded numbers.

function buildByHand(body) {
  const [words, formula, who, place] = [el("div"), el("p", { class: "formula" }), el("p", { class: "who" }), el("div")];
  body.append(words, formula, who, place);
  const kind = () => {
    const { queries, keys, kind: sort, causal, bias, q, scale, heads, kv_heads: few } = current();
    return [queries, keys, sort, causal, !bias, q?.shape, scale, heads, few, isMasked(current())].join();
  };
  const show = keeping(place, kind, () => {
    const attention = current();
    words.replaceChildren(...prose(WORDS[attention.kind] ?? WORDS.byhand));
    formula.textContent = formulaOf(attention);
    return attention.q && attention.k && attention.v ? byHand() : weightsOnly();
  });
  const redraw = () => {
    const attention = current();
    who.replaceChildren(
      el("span", { class: "q", text: "Query: " }),
      bdi(texts(attention.queries)[chosen.query]),
      ` (token ${chosen.query}), ${headName(attention)}`,
      ...comesNext(attention.queries),
    );
    show();
  };
  redraw();
  return redraw;
}

// For a model that generates: the token predicted at the query.
function comesNext(sequence) {
  const writes = story.output?.kind === "next" && sequence === (story.sequences.target ? "target" : "text");
  const row = writes && story.output.rows.find((each) => each.at === chosen.query);
  return row ? ["; next comes ", word(taken(row).text)] : [];
}

const isRoot = ({ scale, q }) => !q || Math.abs(scale - 1 / Math.sqrt(q.shape[2])) < 1e-6;
const isMasked = (attention) => tensor(attention.mask).values.some((may) => !may);

function formulaOf(attention) {
  const older = WORDS[`${attention.kind}Formula`];
  if (older) return older;
  const scale = isRoot(attention) ? " / √dₖ" : attention.scale === 1 ? "" : ` × ${number(attention.scale)}`;
  const added = [attention.bias && " + bias", isMasked(attention) && " + mask"].filter(Boolean).join("");
  return `Attention(Q, K, V) = softmax(Q Kᵀ${scale}${added}) V`;
}

// All of it from this query's work: each part is made once, and updated for another query, or only for another key
// where it knows the work.
function byHand() {
  const keyTexts = texts(current().keys);
  const parts = [threeVectors, oneProduct, everyKey, weightedSum].map((make) => {
    const [nodes, show] = make(keyTexts);
    const place = el("div", {}, nodes);
    return [place, inSight(place, show)];
  });
  let [known, work] = ["", null];
  const show = () => {
    const wanted = [chosen.layer, chosen.head, chosen.query].join();
    if (wanted !== known) [known, work] = [wanted, attend(current(), chosen.head, chosen.query)];
    parts.forEach(([, each]) => each(work));
  };
  return [parts.map(([place]) => place), show];
}

const recordedWeights = () => Array.from(weightsOf().of(chosen.query).values);
const keyRow = (text, key, cells) => line(pressable(brief(text, 18)), cells, { onclick: () => choose({ key }) });

function recordedCell(key) {
  return barCell(0, 1, "", () => [
    `weights[${chosen.head}, ${chosen.query}, ${key}] = ${number(weightsOf().at(chosen.query, key), 6)}`,
    `shape ${current().weights.shape.join(" × ")}`,
  ]);
}

function weightsOnly() {
  const keyTexts = texts(current().keys);
  const cells = keyTexts.map((_, key) => recordedCell(key));
  const rows = keyTexts.map((text, key) => keyRow(text, key, cells[key]));
  const select = oneOf(rows, "aria-selected");
  const why = WORDS[current().kind] ? [] : prose(WORDS.notKept);
  const show = () => {
    recordedWeights().forEach((value, key) => cells[key].show(value, 1, fixed(value, 4)));
    select(chosen.key);
  };
  return [[...why, table(["key", "weight"], rows, { id: "every-key", class: "sums wide" })], show];
}

function threeVectors(keyTexts) {
  const attention = current();
  const rotary = story.embedding.some((each) => each.position.kind === "rotary" && each.sequence === attention.queries);
  const rotated = rotary && attention.kind === "self"; // across two texts nothing is rotated
  const after = rotated ? ", rotated by its position" : "";
  const shared = new Text();
  const every = (name) => {
    const wire = attention[name];
    return heatMap({
      ...{ name, index: (i, j) => [sharedHead(current(), chosen.head), i, j], shape: wire.shape, rows: keyTexts },
      ...{ matrix: tensor(wire).of(0), kind: "signed", cell: rowHeight(keyTexts.length), pick: (key) => choose({ key }) },
    });
  };
  const q = heatMap({
    ...{ name: "q", index: (_, j) => [chosen.head, chosen.query, j], shape: attention.q.shape },
    ...{ matrix: tensor(attention.q).of(0).rows(0, 1), kind: "signed", cell: 24 },
  });
  const [k, v] = ["k", "v"].map(every);
  const scales = ["q", "k", "v"].map(() => el("div"));
  const name = (letter) => el("span", { class: letter, text: letter });
  const size = attention.q.shape[2];
  const nodes = [
    heading("The three vectors"),
    figure(name("q"), `the query of this token: ${plural(size, "number")}${after}`, q, scales[0]),
    el(
      "div",
      { class: "pair" },
      figure(name("k"), [`the key of every token${after}`, shared], k, scales[1]),
      figure(name("v"), `the value of every token`, v, scales[2]),
    ),
  ];
  let known = null;
  const show = (work) => {
    k.chooseRow(chosen.key);
    v.chooseRow(chosen.key);
    if (work === known) return;
    known = work;
    const { heads, kv_heads: few } = current();
    if (few < heads) shared.textContent = `; ${heads} query heads share ${few}, this one reads number ${work.shared}`;
    const own = tensor(current().q).of(chosen.head);
    const others = ["k", "v"].map((each) => tensor(current()[each]).of(work.shared));
    const most = [own, ...others].map(spread);
    q.show({ matrix: own.rows(chosen.query, 1), most: most[0] });
    k.show({ matrix: others[0], most: most[1] });
    v.show({ matrix: others[1], most: most[2] });
    scales.forEach((place, i) => place.replaceChildren(legend("signed", most[i])));
  };
  return [nodes, show];
}
