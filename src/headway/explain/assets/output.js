// Step 6: scores → probabilities → the choice.

const SHOWN = 12;
const settings = { temperature: 1, k: Infinity, p: 1 };

const SAYS = {
  next: "The last vector is compared with every token the model can say: one dot product each, a **score** (logit). Softmax makes the scores **probabilities**. Then one token is chosen: the best (greedy), or one drawn by lot. The sliders change the lot: **temperature** below 1 sharpens it, above 1 flattens it; **top-k** keeps the k best; **top-p** keeps the fewest best that together have probability p. What is left is made to sum to one again.",
  fill: "At the masked place the vector is compared with every token of the vocabulary: one score each, and softmax makes them probabilities.",
  classes:
    "One vector stands for the whole text. A last matrix gives each class a score, softmax makes the scores probabilities, and the best one is the answer.",
  tags: "Each token's last vector gets a score for each tag, and softmax makes them probabilities. Press a token to see its scores.",
  span: "Each token gets two scores: does the answer begin here, does it end here? The answer is the stretch whose two scores have the largest sum.",
  vector:
    "This model does not choose anything. It turns the text into one vector; texts that mean the same have vectors that point the same way.",
};

function buildOutput(body) {
  const { output } = story;
  body.append(...prose(SAYS[output.kind]));
  if (output.vector) body.append(...vector(tensor(output.vector)));
  let shown = output.rows.length - 1;
  if (output.kind !== "next") shown = 0;
  const place = el("div");
  const draw = () => {
    if (output.rows.length) place.replaceChildren(...candidates(output.rows[shown]));
  };
  if (output.rows.length > 1)
    body.append(
      rowChoice(
        output,
        () => shown,
        (row) => {
          shown = row;
          draw();
        },
      ),
    );
  if (output.kind === "next" && output.rows.length) body.append(sliders(output.rows, draw));
  body.append(place);
  draw();
  if (output.answer)
    body.append(
      el(
        "p",
        { class: "total" },
        "answer: ",
        el("strong", { dir: "auto", text: visible(output.answer).replaceAll("␣", " ") }),
      ),
    );
}

function rowChoice(output, shown, press) {
  const best = (row) => row.candidates.find((each) => each.id === row.chosen) ?? row.candidates[0];
  const tagged = output.kind === "tags";
  const buttons = output.rows.map((row, i) =>
    el(
      "button",
      {
        type: "button",
        class: "token",
        onclick: () => {
          press(i);
          mark();
        },
      },
      bdi(row.label),
      tagged && el("small", { dir: "auto", text: best(row)?.text }),
    ),
  );
  const mark = () => buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(i === shown())));
  mark();
  return el("div", { class: "tokens", role: "group", "aria-label": "which choice to show" }, buttons);
}

function candidates(row) {
  const { before, after, rest, restBefore } = narrow(row, settings);
  const plain = settings.temperature === 1 && settings.k >= row.count && settings.p >= 1;
  const shown = row.candidates.slice(0, SHOWN);
  const rows = shown.map((candidate, i) => {
    const note = () => [
      `${visible(candidate.text)} (id ${candidate.id})`,
      `logit ${number(candidate.logit, 6)}`,
      `probability ${number(Math.exp(candidate.logit - row.logsumexp), 6)} at temperature 1`,
      `now ${number(after[i], 6)}`,
    ];
    return el(
      "tr",
      { class: after[i] === 0 ? "hidden" : null, "aria-selected": String(candidate.id === row.chosen) },
      el("th", { scope: "row" }, bdi(candidate.text)),
      describe(el("td", { class: "n", "data-walk": "1", text: fixed(candidate.logit, 3) }), note),
      barCell(before[i], 1, percent(before[i]), note),
      !plain && barCell(after[i], 1, after[i] === 0 ? "out" : percent(after[i]), note),
    );
  });
  const others = row.count - shown.length;
  const kept = sum(row.candidates.slice(SHOWN).map((_, i) => after[SHOWN + i])) + rest;
  const left = sum(before.slice(SHOWN)) + restBefore;
  const heads = [
    "candidate",
    "score",
    settings.temperature === 1 ? "softmax" : `softmax(score ÷ ${settings.temperature})`,
    !plain && "after top-k, top-p",
  ];
  return [
    el("p", { class: "who", dir: "auto", text: row.label }),
    el(
      "div",
      { class: "scroll" },
      walkable(
        el(
          "table",
          { class: "sums", id: "candidates" },
          el(
            "thead",
            {},
            el(
              "tr",
              {},
              heads.filter(Boolean).map((text) => el("th", { scope: "col", text })),
            ),
          ),
          el(
            "tbody",
            {},
            rows,
            others > 0 &&
              el(
                "tr",
                { class: "rest" },
                el("th", { scope: "row", text: `${others.toLocaleString("en")} others` }),
                el("td"),
                barCell(left, 1, percent(left), () => ["all the others together"]),
                !plain && barCell(kept, 1, percent(kept), () => ["all the others together"]),
              ),
          ),
        ),
      ),
    ),
    row.count > row.candidates.length &&
      settings.temperature !== 1 &&
      el("p", {
        class: "caption",
        text: `Only the ${row.candidates.length} best scores are on this page; away from temperature 1 the share of the others is an estimate that takes them as alike.`,
      }),
  ];
}

function sliders(rows, draw) {
  const most = Math.min(...rows.map((row) => row.candidates.length));
  const told = {
    temperature: (value) => value.toFixed(2),
    k: (value) => (value === Infinity ? "all" : String(value)),
    p: (value) => value.toFixed(2),
  };
  const outputs = {};
  const slide = (name, label, attributes, read) => {
    const input = el("input", {
      type: "range",
      id: `slide-${name}`,
      ...attributes,
      oninput: () => {
        settings[name] = read(Number(input.value));
        outputs[name].textContent = told[name](settings[name]);
        input.setAttribute("aria-valuetext", told[name](settings[name]));
        draw();
      },
    });
    outputs[name] = el("output", { text: told[name](settings[name]) });
    return el("label", {}, el("span", { text: label }), input, outputs[name]);
  };
  const drawn = el("span", { class: "drawn", role: "status" });
  const lot = () => {
    const row = rows[rows.length - 1];
    const { after } = narrow(row, settings);
    let ticket = Math.random();
    const winner = after.findIndex((share) => (ticket -= share) < 0);
    drawn.replaceChildren("drawn: ", winner < 0 ? "one of the others" : bdi(row.candidates[winner].text));
  };
  return el(
    "div",
    { class: "sliders" },
    slide(
      "temperature",
      "temperature",
      { min: 0.1, max: 2, step: 0.05, value: settings.temperature },
      (value) => value,
    ),
    slide(
      "k",
      "top-k",
      { min: 1, max: most + 1, step: 1, value: settings.k === Infinity ? most + 1 : settings.k },
      (value) => (value > most ? Infinity : value),
    ),
    slide("p", "top-p", { min: 0.05, max: 1, step: 0.05, value: settings.p }, (value) => value),
    el("div", {}, el("button", { type: "button", text: "draw one by lot", onclick: lot }), " ", drawn),
  );
}

function vector(values) {
  const matrix = new Tensor([1, values.shape[0]], values.values);
  const length = Math.sqrt(sum(terms(values.values, values.values)));
  return [
    el(
      "figure",
      {},
      el("figcaption", {}, el("b", { text: "vector" }), ` ${values.shape[0]} numbers, length ${number(length)}`),
      heatMap({
        name: "vector",
        index: (_, j) => [j],
        shape: values.shape,
        matrix,
        rows: ["the text"],
        rowWord: "of",
        kind: "signed",
        most: spread(matrix),
        cell: 36,
      }),
      legend("signed", spread(matrix)),
    ),
  ];
}
