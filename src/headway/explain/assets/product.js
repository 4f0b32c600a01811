// Step 3, continued: one dot product, term by term.

// How the notes speak of a term: strong from 60% of the largest one's size, minor under 10% of it.
function verdict(term, most) {
  const part = Math.abs(term) / (most || 1);
  const size = part >= 0.6 ? "strong " : part < 0.1 ? "minor " : "";
  return term === 0 ? "nothing" : `${size}${term > 0 ? "match ✓" : "mismatch ✗"}`;
}

function oneProduct(attention, work, asks, looked) {
  const key = tensor(attention.k).of(work.shared, chosen.key).values;
  const products = terms(work.asked, key);
  const most = largestSize(products);
  const score = work.score[chosen.key];
  const few = products.length <= 8;
  const lines = (i) => [
    `q[${i}] × k[${i}] = ${number(products[i], 6)}`,
    `${number(work.asked[i])} × ${number(key[i])}: ${verdict(products[i], most)}`,
  ];
  const bars = products.map((term, i) => {
    const bar = el("i", { css: { "--size": Math.abs(term) / (most || 1) } });
    return describe(el("div", { class: "term", "data-sign": Math.sign(term), "data-walk": "1" }, bar), () => lines(i));
  });
  const letter = (name) => el("span", { class: name, text: { q: "query", k: "key" }[name] });
  const question = [
    ...["Does the ", letter("k"), " of ", bdi(looked[chosen.key]), ` (token ${chosen.key}) fit the `, letter("q")],
    ...[" of ", bdi(asks[chosen.query]), "? "],
  ];
  const formula = products.map((_, i) => `(${number(work.asked[i])} × ${number(key[i])})`).join(" + ");
  const total = el("strong", { tabindex: 0, text: `score ${number(score, 5)}` });
  const part = (sign) => number(sum(products.filter((term) => Math.sign(term) === sign)));
  return [
    heading("One dot product, term by term"),
    el("p", { class: "prose" }, question, WORDS.product),
    el(
      "div",
      { class: "strips", css: { "--wide": products.length } },
      [el("b", { class: "q", text: "q" }), cells(work.asked, "q"), el("b", { class: "k", text: "k" }), cells(key, "k")],
      [el("b", { text: "q·k" }), walkable(el("div", { class: "terms" }, bars))],
    ),
    few && el("p", { class: "formula", text: `${formula} = ${number(score, 5)}` }),
    el(
      "p",
      { class: "total", id: "total" },
      el("span", { class: "more", text: `matches ${part(1)}` }),
      el("span", { class: "less", text: `mismatches ${part(-1)}` }),
      describe(total, () => [
        `q[${chosen.head}, ${chosen.query}] · k[${work.shared}, ${chosen.key}] = ${number(score, 7)}`,
        `the sum of ${products.length} terms`,
      ]),
    ),
    allTerms(work.asked, key, products, lines),
  ];
}

let termsShown = null; // as the reader left it

// Every term in a table, which is made when it is opened.
function allTerms(q, k, products, lines) {
  const most = largestSize(products);
  const open = termsShown ?? products.length <= 8;
  const rows = () =>
    products.map((term, i) =>
      line(String(i), [
        cell(fixed(q[i]), () => [`q[${i}] = ${number(q[i], 6)}`]),
        cell(fixed(k[i]), () => [`k[${i}] = ${number(k[i], 6)}`]),
        barCell(term, most, fixed(term), () => lines(i)),
        el("td", { text: verdict(term, most) }),
      ]),
    );
  const node = el("details", { open }, el("summary", { text: `all ${products.length} terms as numbers` }));
  const fillIn = () => {
    if (node.open && node.children.length === 1) node.append(table(["i", "q", "k", "q × k", "fit"], rows()));
  };
  node.addEventListener("toggle", () => {
    termsShown = node.open;
    fillIn();
  });
  fillIn();
  return node;
}

function cells(values, name) {
  const most = largestSize(values);
  const nodes = Array.from(values, (value, i) => {
    const node = el("i", { "data-walk": "1", text: values.length <= 12 ? number(value, 3) : "" });
    return describe(tint(node, "signed", value, most), () => [
      `${name}[${i}] = ${number(value, 6)}`,
      `of ${values.length}`,
    ]);
  });
  return walkable(el("div", { class: "cells" }, nodes));
}
