// Step 3, continued: one dot product, term by term.

// Names for the size of a term: strong from 60% of the largest one's size, minor under 10% of it.
function verdict(term, most) {
  const part = Math.abs(term) / (most || 1);
  const size = part >= 0.6 ? "strong " : part < 0.1 ? "minor " : "";
  return term === 0 ? "nothing" : `${size}${term > 0 ? "match ✓" : "mismatch ✗"}`;
}

const WRITTEN_OUT = 12; // numbers whose cells are wide enough to be read

function oneProduct() {
  const size = current().q.shape[2];
  let [q, k, products, most] = [[], [], [], 1];
  const lines = (i) => [
    `q[${i}] × k[${i}] = ${number(products[i], 6)}`,
    `${number(q[i])} × ${number(k[i])}: ${verdict(products[i], most)}`,
  ];
  const bars = range(size).map((i) =>
    describe(el("div", { class: "term", "data-walk": "1" }, el("i")), () => lines(i)),
  );
  const [question, formula] = [el("p", { class: "prose" }), el("p", { class: "formula" })];
  const shared = () => sharedHead(current(), chosen.head);
  const [matches, mismatches] = ["more", "less"].map((name) => el("span", { class: name }));
  const total = describe(el("strong", { tabindex: 0 }), () => [
    `q[${chosen.head}, ${chosen.query}] · k[${shared()}, ${chosen.key}] = ${number(sum(products), 7)}`,
    `the sum of ${size} terms`,
  ]);
  const [qCells, kCells] = [cells(size, "q"), cells(size, "k")];
  const all = allTerms(size, (i) => [q[i], k[i], products[i], most], lines);
  const letter = (name) => el("b", { class: name, text: name });
  const nodes = [
    heading("One dot product, term by term"),
    question,
    el(
      "div",
      { class: "strips", css: { "--wide": size } },
      [letter("q"), qCells, letter("k"), kCells],
      [el("b", { text: "q·k" }), walkable(el("div", { class: "terms" }, bars))],
    ),
    size <= 8 ? formula : null,
    el("p", { class: "total", id: "total" }, matches, mismatches, total),
    all,
  ].filter(Boolean);
  const show = (work) => {
    const attention = current();
    const fit = (name) => el("span", { class: name, text: { q: "query", k: "key" }[name] });
    [q, k] = [work.queryVector, tensor(attention.k).of(work.shared, chosen.key).values];
    products = terms(q, k);
    most = largestSize(products);
    question.replaceChildren(
      ...["Does the ", fit("k"), " of ", bdi(texts(attention.keys)[chosen.key]), ` (token ${chosen.key}) fit the `],
      ...[fit("q"), " of ", bdi(texts(attention.queries)[chosen.query]), "? ", WORDS.product],
    );
    bars.forEach((bar, i) => {
      bar.classList.toggle("less", products[i] < 0);
      bar.firstChild.style.setProperty("--size", products[i] / (most || 1)); // below zero it hangs from the line
    });
    const score = work.score[chosen.key];
    const part = (sign) => number(sum(products.filter((term) => Math.sign(term) === sign)));
    const sumText = products.map((_, i) => `(${number(q[i])} × ${number(k[i])})`).join(" + ");
    formula.textContent = `${sumText} = ${number(score, 5)}`;
    matches.textContent = `matches ${part(1)}`;
    mismatches.textContent = `mismatches ${part(-1)}`;
    total.textContent = `score ${number(score, 5)}`;
    qCells.fill(q);
    kCells.fill(k);
    all.fill();
  };
  return [nodes, show];
}

// Every term in a table, which is filled in while it is open.
function allTerms(size, numbersOf, lines) {
  const rows = range(size).map((i) => {
    const [q, k] = ["q", "k"].map((name, at) => cell("", () => [`${name}[${i}] = ${number(numbersOf(i)[at], 6)}`]));
    const bar = barCell(0, 1, "", () => lines(i));
    const fit = el("td", { class: "whole" });
    const node = line(String(i), [q, k, bar, fit]);
    node.fill = () => {
      const [queryValue, key, term, most] = numbersOf(i);
      [q.textContent, k.textContent, fit.textContent] = [fixed(queryValue), fixed(key), verdict(term, most)];
      bar.show(term, most, fixed(term));
    };
    return node;
  });
  const node = el(
    "details",
    { open: size <= 8 },
    el("summary", { text: `the numbers of ${plural(size, "term")}` }),
    table(["i", "q", "k", "q × k", "fit"], rows, { class: "sums tight" }),
  );
  node.fill = () => node.open && rows.forEach((row) => row.fill());
  node.addEventListener("toggle", node.fill);
  return node;
}

// A vector as a strip: written out where its cells are wide enough, else a picture.
function cells(size, name) {
  if (size > WRITTEN_OUT) {
    const map = heatMap({ name, matrix: new Tensor([1, size], new Float32Array(size)), kind: "signed", cell: 27 });
    map.fill = (values) => map.show({ matrix: new Tensor([1, size], values), most: undefined, index: (_, j) => [j] });
    return map;
  }
  let shown = [];
  const nodes = range(size).map((i) =>
    describe(el("i", { "data-walk": "1" }), () => [`${name}[${i}] = ${number(shown[i], 6)}`, `of ${size}`]),
  );
  const node = walkable(el("div", { class: "cells" }, nodes));
  node.fill = (values) => {
    shown = values;
    const most = largestSize(values);
    nodes.forEach((each, i) => {
      each.textContent = number(values[i], 3);
      tint(each, "signed", values[i], most);
    });
  };
  return node;
}
