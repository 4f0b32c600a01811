// Step 3, continued: one dot product term by term; then every key's score, weight and share of the result.

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
  const [match, mismatch] = [sum(products.filter((term) => term > 0)), sum(products.filter((term) => term < 0))];
  const few = products.length <= 8;
  const line = (i) => `${number(work.asked[i])} × ${number(key[i])} = ${number(products[i])}`;
  const bars = products.map((term, i) =>
    describe(
      el(
        "div",
        { class: "term", "data-sign": Math.sign(term) },
        el("i", { css: { "--size": Math.abs(term) / (most || 1) } }),
      ),
      () => [`q[${i}] × k[${i}] = ${number(products[i], 6)}`, line(i), verdict(term, most)],
    ),
  );
  const strips = el(
    "div",
    { class: "strips", css: { "--wide": products.length } },
    el("b", { class: "q", text: "q" }),
    cells(work.asked, "q"),
    el("b", { class: "k", text: "k" }),
    cells(key, "k"),
    el("b", { text: "q·k" }),
    el("div", { class: "terms" }, bars),
  );
  const table = walkable(
    el(
      "table",
      { class: "sums" },
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          ["i", "q", "k", "q × k", ""].map((text) => el("th", { scope: "col", text })),
        ),
      ),
      el(
        "tbody",
        {},
        products.map((term, i) =>
          el(
            "tr",
            {},
            el("th", { scope: "row", text: String(i) }),
            el("td", { class: "n", text: fixed(work.asked[i]) }),
            el("td", { class: "n", text: fixed(key[i]) }),
            barCell(term, most, fixed(term), () => [`q[${i}] × k[${i}] = ${number(term, 6)}`, line(i)]),
            el("td", { text: verdict(term, most) }),
          ),
        ),
      ),
    ),
  );
  return [
    heading("One dot product, term by term"),
    el(
      "p",
      { class: "prose" },
      "Does the ",
      el("span", { class: "k", text: "key" }),
      " of ",
      bdi(looked[chosen.key]),
      ` (token ${chosen.key}) fit the `,
      el("span", { class: "q", text: "query" }),
      " of ",
      bdi(asks[chosen.query]),
      "? Multiply them number by number. Where both have the same sign the term is above zero, a match; where they differ it is below, a mismatch. The size says how much both care.",
    ),
    strips,
    few &&
      el(
        "p",
        { class: "formula" },
        products.map((_, i) => [i ? " + " : "", `(${number(work.asked[i])} × ${number(key[i])})`]),
        ` = ${number(work.score[chosen.key], 5)}`,
      ),
    el(
      "p",
      { class: "total", id: "total" },
      el("span", { class: "more", text: `matches ${number(match)}` }),
      el("span", { class: "less", text: `mismatches ${number(mismatch)}` }),
      describe(el("strong", { tabindex: 0, text: `score ${number(work.score[chosen.key], 5)}` }), () => [
        `score = q[${chosen.head}, ${chosen.query}] · k[${work.shared}, ${chosen.key}]`,
        `= ${number(work.score[chosen.key], 7)}`,
      ]),
    ),
    el(
      "details",
      { open: few },
      el("summary", { text: `all ${products.length} terms as numbers` }),
      el("div", { class: "scroll" }, table),
    ),
  ];
}

function cells(values, name) {
  const most = largestSize(values);
  return el(
    "div",
    { class: "cells" },
    Array.from(values, (value, i) => {
      const cell = tint(el("i", { text: values.length <= 12 ? number(value, 3) : "" }), "signed", value, most);
      return describe(cell, () => [`${name}[${i}] = ${number(value, 6)}`, `${values.length} numbers`]);
    }),
  );
}

function everyKey(attention, work, looked) {
  const recorded = Array.from(weightsOf().of(chosen.query).values);
  const size = work.asked.length;
  const root = Math.abs(attention.scale - 1 / Math.sqrt(size)) < 1e-6;
  const [mostScore, mostScaled] = [largestSize(work.score), largestSize(work.scaled)];
  const anyMask = work.mask.some((may) => !may);
  const columns = [
    "looks at",
    "q · k",
    root ? `÷ √${size}` : `× ${number(attention.scale)}`,
    work.bias && "+ bias",
    anyMask && "mask",
    "softmax",
    "recorded",
  ];
  const rows = looked.map((text, key) => {
    const hidden = !work.mask[key];
    const where = `${chosen.head}, ${chosen.query}, ${key}`;
    return el(
      "tr",
      { class: hidden ? "hidden" : null, "aria-selected": String(key === chosen.key), onclick: () => choose({ key }) },
      el("th", { scope: "row" }, keyButton(text, key)),
      barCell(work.score[key], mostScore, fixed(work.score[key], 2), () => [
        `q · k [${where}] = ${number(work.score[key], 6)}`,
      ]),
      barCell(work.scaled[key], mostScaled, fixed(work.scaled[key], 2), () => [
        `scaled [${where}] = ${number(work.scaled[key], 6)}`,
        `${number(work.score[key])} × ${number(attention.scale, 6)}`,
      ]),
      work.bias &&
        barCell(work.bias[key], largestSize(work.bias), fixed(work.bias[key], 2), () => [
          `bias[${where}] = ${number(work.bias[key], 6)}`,
        ]),
      anyMask && el("td", { text: hidden ? `${MINUS}∞` : "✓" }),
      barCell(work.weight[key], 1, fixed(work.weight[key], 4), () => [
        `softmax [${where}] = ${number(work.weight[key], 6)}`,
        "worked out by this page",
      ]),
      barCell(recorded[key], 1, fixed(recorded[key], 4), () => weightLines(attention, key)),
    );
  });
  const table = walkable(
    el(
      "table",
      { class: "sums", id: "every-key" },
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          columns.filter(Boolean).map((text) => el("th", { scope: "col", text })),
        ),
      ),
      el("tbody", {}, rows),
    ),
  );
  return [
    heading("Every score, and what softmax makes of them"),
    ...prose(
      `The same for every token. Each score is ${root ? `divided by √dₖ = √${size} = ${number(Math.sqrt(size), 3)}` : `multiplied by ${number(attention.scale)}`}: a sum of many terms grows with their number, and softmax of large numbers would give everything to one token and leave nothing to learn from.`,
      anyMask &&
        (attention.causal
          ? "The **mask** sets the scores of later tokens to −∞, before the softmax: they get exactly no weight, and the rest still sum to one."
          : "The **mask** sets some scores to −∞ (padding, or tokens that may not be seen): they get exactly no weight."),
      "**Softmax** raises e to each score and divides by their sum. All weights are above zero and together exactly one: shares of this token's attention. Press a row to see its dot product above.",
    ),
    el("div", { class: "scroll" }, table),
  ];
}

function weightedSum(attention, work, looked) {
  const v = tensor(attention.v).of(work.shared);
  const size = v.shape[1];
  const order = range(looked.length).sort((a, b) => work.weight[b] - work.weight[a]);
  const top = order.slice(0, 8).filter((key) => work.weight[key] > 0.001);
  const parts = top.map((key) => Array.from(v.of(key).values, (value) => value * work.weight[key]));
  const rest = Array.from(work.z, (value, i) => value - sum(parts.map((part) => part[i])));
  const others = order.slice(top.length).filter((key) => work.weight[key] > 0).length;
  const matrix = [...parts, ...(others ? [rest] : [])];
  const labels = [
    ...top.map((key) => `${percent(work.weight[key])} ${looked[key]}`),
    ...(others ? [`${others} more`] : []),
  ];
  const flat = (rows) => new Tensor([rows.length, size], Float64Array.from(rows.flat()));
  const most = Math.max(largestSize(rest), ...parts.map(largestSize), largestSize(work.z));
  const recorded = attention.z ? tensor(attention.z).of(chosen.head, chosen.query).values : null;
  const weights = Array.from(weightsOf().of(chosen.query).values);
  const worst = Math.max(difference(work.weight, weights), recorded ? difference(Array.from(work.z), recorded) : 0);
  const rows = recorded ? [Array.from(work.z), Array.from(recorded)] : [Array.from(work.z)];
  return [
    heading("The weighted sum"),
    ...prose(
      "Now the values. Each is multiplied by its weight, and they are added up: the token receives mostly the values of the tokens that it looks at most. That sum, z, is what this head found out for it. The z of all heads are put side by side and mixed by one more matrix, Wᴼ.",
    ),
    el(
      "figure",
      {},
      el("figcaption", {}, el("b", { class: "v", text: "weight × v" })),
      heatMap({ name: "weight × v", matrix: flat(matrix), rows: labels, kind: "signed", most, cell: 20 }),
    ),
    el(
      "figure",
      {},
      el("figcaption", {}, el("b", { text: "z" }), " their sum"),
      heatMap({
        name: "z",
        index: (_, j) => [chosen.head, chosen.query, j],
        shape: attention.z?.shape,
        matrix: flat(rows),
        rows: recorded ? ["here", "recorded"] : ["here"],
        rowWord: "worked out",
        kind: "signed",
        most,
        cell: 20,
      }),
    ),
    el(
      "p",
      { class: "check", id: "check", "data-worst": String(worst) },
      worst < 1e-3 ? "✓ " : "≠ ",
      `This page's arithmetic and the model's own numbers differ by at most ${number(worst, 2)}.`,
    ),
  ];
}
