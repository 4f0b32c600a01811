// Step 3, to its end: every score, the softmax of them, and the weighted sum of the values.

function everyKey(attention, work, looked) {
  const size = work.asked.length;
  const root = Math.abs(attention.scale - 1 / Math.sqrt(size)) < 1e-6;
  const masks = work.mask.some((may) => !may);
  const most = Object.fromEntries(["score", "scaled", "bias"].map((name) => [name, largestSize(work[name] ?? [])]));
  const rows = looked.map((text, key) => {
    const where = `[${chosen.head}, ${chosen.query}, ${key}]`;
    const step = (name, title, how) =>
      barCell(work[name][key], most[name], fixed(work[name][key], 2), () => [
        `${title} ${where} = ${number(work[name][key], 6)}`,
        how,
      ]);
    const cellsOfKey = [
      step("score", "q · k", "the sum of the terms above"),
      step("scaled", "scaled", `${number(work.score[key])} × ${number(attention.scale, 6)}`),
      work.bias && step("bias", "bias", "added for the distance"),
      masks && el("td", { text: work.mask[key] ? "✓" : `${MINUS}∞` }),
      barCell(work.weight[key], 1, fixed(work.weight[key], 4), () => [
        `softmax ${where} = ${number(work.weight[key], 6)}`,
        "worked out by this page",
      ]),
      recordedCell(attention, key),
    ];
    const properties = { ...isKey(key), class: work.mask[key] ? null : "hidden", onclick: () => choose({ key }) };
    return line(keyButton(text, key), cellsOfKey, properties);
  });
  const scaled = root ? `÷ √${size}` : `× ${number(attention.scale)}`;
  const columns = ["looks at", "q · k", scaled, work.bias && "+ bias", masks && "mask", "softmax", "recorded"];
  return [
    heading("Every score, and what softmax makes of them"),
    ...prose(
      root ? WORDS.divide(size, number(Math.sqrt(size), 3)) : WORDS.multiply(number(attention.scale)),
      masks && (attention.causal ? WORDS.causal : WORDS.masked),
      WORDS.softmax,
    ),
    table(columns, rows, { id: "every-key" }),
  ];
}

const TOP = 8; // keys whose part of the sum is shown; the rest are one row

function weightedSum(attention, work, looked) {
  const v = tensor(attention.v).of(work.shared);
  const z = Array.from(work.z);
  const order = range(looked.length).sort((a, b) => work.weight[b] - work.weight[a]);
  const top = order.slice(0, TOP).filter((key) => work.weight[key] > 0.001);
  const parts = top.map((key) => Array.from(v.of(key).values, (value) => value * work.weight[key]));
  const labels = top.map((key) => `${percent(work.weight[key])} ${looked[key]}`);
  const others = order.slice(top.length).filter((key) => work.weight[key] > 0).length;
  if (others) {
    parts.push(z.map((value, i) => value - sum(parts.map((part) => part[i]))));
    labels.push(`${others} more`);
  }
  const recorded = attention.z ? Array.from(tensor(attention.z).of(chosen.head, chosen.query).values) : null;
  const most = largestSize([...parts.flat(), ...z]);
  const map = (name, rows, more) => {
    const matrix = new Tensor([rows.length, z.length], Float64Array.from(rows.flat()));
    return heatMap({ name, matrix, kind: "signed", most, cell: 20, ...more });
  };
  const index = (_, j) => [chosen.head, chosen.query, j];
  const results = {
    index,
    shape: attention.z?.shape,
    rows: recorded ? ["here", "recorded"] : ["here"],
    rowWord: "worked out",
  };
  const worst = Math.max(difference(work.weight, recordedWeights()), recorded ? difference(z, recorded) : 0);
  const verdictOn = `This page's arithmetic and the model's own numbers differ by at most ${number(worst, 2)}.`;
  return [
    heading("The weighted sum"),
    ...prose(WORDS.weighted),
    figure("weight × v", "", map("weight × v", parts, { rows: labels })),
    figure("z", "their sum", map("z", recorded ? [z, recorded] : [z], results)),
    el("p", { class: "check", id: "check", "data-worst": String(worst) }, worst < 1e-3 ? "✓ " : "≠ ", verdictOn),
  ];
}
