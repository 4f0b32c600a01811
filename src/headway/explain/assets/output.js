// Step 6: logits → probabilities → the answer.

const MAX_CANDIDATES = 12;
const settings = { temperature: 1, k: Infinity, p: 1 };

function buildOutput(body) {
  const { output } = story;
  const { rows } = output;
  const writes = output.kind === "next";
  let shown = Math.max(0, rows.indexOf(answering()));
  const place = el("div");
  const listed = rows.length && output.kind !== "number";
  const draw = () => listed && place.replaceChildren(...candidates(rows[shown], output.kind));
  body.append(...prose(WORDS.output[output.kind]));
  if (output.kind === "picture") body.append(picture(story.sequences.target.picture));
  if (output.vector) body.append(vector(tensor(output.vector)));
  if (rows.length > 1)
    body.append(
      rowChoice(
        output,
        () => shown,
        (row) => ((shown = row), draw()),
      ),
    );
  if (writes && rows.length) body.append(sliders(rows, () => rows[shown], draw));
  body.append(place);
  draw();
  if (output.answer && !output.vector)
    body.append(el("p", { class: "total" }, "answer: ", el("strong", { dir: "auto", text: harmless(output.answer.trim()) })));
}

function rowChoice(output, shown, press) {
  const buttons = output.rows.map((row, i) => {
    const tag = ["tags", "labels"].includes(output.kind) && el("small", { dir: "auto", text: taken(row)?.text ?? "" });
    const go = () => {
      press(i);
      mark(i);
    };
    return el("button", { type: "button", class: "token", onclick: go }, word(row.label), tag);
  });
  const mark = oneOf(buttons);
  mark(shown());
  return el("div", { class: "tokens long", role: "group", "aria-label": "position to show" }, buttons);
}

const CAPTIONS = {
  next: (label) => ["Next token after ", word(label)],
  span: (label) => [`The ${label} of the answer`],
  classes: () => ["Class"],
  labels: (label) => ["Label ", word(label)],
  fill: (label) => ["Token at ", word(label)],
};

function candidates(row, kind) {
  const { before, after, rest, restBefore } = narrow(row, settings);
  const plain = settings.temperature === 1 && settings.k === Infinity && settings.p >= 1;
  const shown = shortlist(row.candidates, MAX_CANDIDATES, row.chosen);
  const rows = shown.map((i) => {
    const candidate = row.candidates[i];
    const lines = () => [
      `${visible(candidate.text)}: id ${candidate.id}`,
      `logit ${number(candidate.logit, 6)}`,
      `probability ${number(Math.exp(candidate.logit - row.logsumexp), 6)} at temperature 1, ${number(after[i], 6)} now`,
    ];
    const cells = [
      cell(fixed(candidate.logit, 3), lines),
      barCell(before[i], 1, percent(before[i]), lines),
      !plain && barCell(after[i], 1, after[i] === 0 ? "out" : percent(after[i]), lines),
    ];
    const marks = { "aria-selected": String(candidate.id === row.chosen), class: after[i] === 0 ? "hidden" : null };
    return line([word(candidate.text), kind === "span" && ` (token ${candidate.id})`], cells, marks);
  });
  if (row.count > shown.length) {
    const unseen = (shares) => sum(shares.filter((_, i) => !shown.includes(i)));
    const [left, kept] = [unseen(before) + restBefore, unseen(after) + rest];
    const lines = () => ["all the others together", `probability ${number(left, 6)}`];
    const cells = [el("td"), barCell(left, 1, percent(left), lines), !plain && barCell(kept, 1, percent(kept), lines)];
    rows.push(line(`${(row.count - shown.length).toLocaleString("en")} others`, cells, { class: "rest" }));
  }
  const soft = settings.temperature === 1 ? "softmax" : `softmax(logit ÷ ${settings.temperature})`;
  const who = el("p", { class: "who" }, CAPTIONS[kind]?.(row.label) ?? ["Logits of ", word(row.label)]);
  const estimated = row.count > row.candidates.length && settings.temperature !== 1;
  const note = estimated ? el("p", { class: "caption", text: WORDS.estimate(row.candidates.length) }) : "";
  return [
    who,
    table(["candidate", "logit", soft, !plain && "after top-k, top-p"], rows, { id: "candidates", class: "sums wide" }),
    note,
  ];
}

function sliders(rows, row, draw) {
  const most = Math.max(...rows.map((each) => each.candidates.length));
  const slide = (name, label, limits, parse, format) => {
    const value = el("output", { text: format(settings[name]) });
    const input = el("input", { type: "range", id: `slide-${name}`, ...limits });
    input.addEventListener("input", () => {
      settings[name] = parse(Number(input.value));
      value.textContent = format(settings[name]);
      input.setAttribute("aria-valuetext", value.textContent);
      draw();
    });
    return el("label", {}, el("span", { text: label }), input, value);
  };
  const same = (value) => value;
  const two = (value) => value.toFixed(2);
  const kept = (value) => (value > most ? Infinity : value);
  const all = (value) => (value === Infinity ? "all" : String(value));
  const drawn = el("span", { role: "status" });
  const sample = () => {
    let left = Math.random();
    const found = narrow(row(), settings).after.findIndex((share) => (left -= share) < 0);
    drawn.replaceChildren("sampled: ", found < 0 ? "one of the others" : word(row().candidates[found].text));
  };
  return el(
    "div",
    { class: "sliders" },
    slide("temperature", "temperature", { min: 0.1, max: 2, step: 0.05, value: settings.temperature }, same, two),
    slide("k", "top-k", { min: 1, max: most + 1, step: 1, value: Math.min(settings.k, most + 1) }, kept, all),
    slide("p", "top-p", { min: 0.05, max: 1, step: 0.05, value: settings.p }, same, two),
    el("div", {}, el("button", { type: "button", id: "sample", text: "sample a token", onclick: sample }), " ", drawn),
  );
}

function vector(values) {
  const matrix = new Tensor([1, values.shape[0]], values.values);
  const length = Math.sqrt(sum(terms(values.values, values.values)));
  const map = heatMap({
    ...{ name: "vector", index: (_, j) => [j], shape: values.shape, matrix, rows: ["the text"], rowWord: "of" },
    ...{ kind: "signed", most: spread(matrix), cell: 36 },
  });
  return figure(
    "vector",
    `${values.shape[0]} numbers, length ${number(length)}`,
    map,
    legend("signed", spread(matrix)),
  );
}
