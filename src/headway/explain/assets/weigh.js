// Step 3, to its end: every score, the softmax of them, and the weighted sum of the values.

function everyKey(keyTexts) {
  const attention = current();
  const [size, root, masks] = [attention.q.shape[2], isRoot(attention), isMasked(attention)];
  let work = null;
  const rows = keyTexts.map((text, key) => {
    const where = () => `[${chosen.head}, ${chosen.query}, ${key}]`;
    const step = (name, title, how) =>
      barCell(0, 1, "", () => [`${title} ${where()} = ${number(work[name][key], 6)}`, how()]);
    const shown = {
      score: step("score", "q · k", () => "the sum of the terms above"),
      scaled: step("scaled", "scaled", () => `${number(work.score[key])} × ${number(attention.scale, 6)}`),
      bias: attention.bias && step("bias", "bias", () => "added for the distance"),
    };
    const may = masks && el("td");
    const weight = step("weight", "softmax", () => "computed by this page");
    const recorded = recordedCell(key);
    const node = keyRow(text, key, [...Object.values(shown), may, weight, recorded]);
    node.show = inSight(node, (most, kept) => {
      for (const [name, each] of Object.entries(shown))
        each?.show(work[name][key], most[name], fixed(work[name][key], 2));
      if (may) may.textContent = work.mask[key] ? "✓" : `${MINUS}∞`;
      weight.show(work.weight[key], 1, fixed(work.weight[key], 4));
      recorded.show(kept[key], 1, fixed(kept[key], 4));
      node.classList.toggle("hidden", !work.mask[key]);
    });
    return node;
  });
  const select = oneOf(rows, "aria-selected");
  const scaled = root ? `÷ √${size}` : `× ${number(attention.scale)}`;
  const columns = ["key", "q · k", scaled, attention.bias && "+ bias", masks && "mask", "softmax", "recorded"];
  const nodes = [
    heading("Every score, and what softmax makes of them"),
    ...prose(
      root ? WORDS.divide(size, number(Math.sqrt(size), 3)) : WORDS.multiply(number(attention.scale)),
      attention.bias && WORDS.bias,
      masks && (attention.causal ? WORDS.causal : WORDS.masked),
      WORDS.softmax,
    ),
    table(columns, rows, { id: "every-key", class: "sums tight" }),
  ];
  const show = (next) => {
    select(chosen.key);
    if (work === next) return;
    work = next;
    const most = Object.fromEntries(["score", "scaled", "bias"].map((name) => [name, largestSize(work[name] ?? [])]));
    const kept = recordedWeights();
    rows.forEach((row) => row.show(most, kept));
  };
  return [nodes, show];
}

const TOP = 8; // keys whose part of the sum is shown; the rest are one row

function weightedSum(keyTexts) {
  const place = el("div", { class: "stacked" });
  const check = el("p", { class: "check", id: "check" });
  let known = null;
  const show = (work) => {
    if (work === known) return;
    known = work;
    const attention = current();
    const v = tensor(attention.v).of(work.shared);
    const z = Array.from(work.z);
    const order = range(keyTexts.length).sort((a, b) => work.weight[b] - work.weight[a]);
    const top = order.slice(0, TOP).filter((key) => work.weight[key] > 0.001);
    const parts = top.map((key) => Array.from(v.of(key).values, (value) => value * work.weight[key]));
    const labels = top.map((key) => `${percent(work.weight[key])} ${keyTexts[key]}`);
    const others = order.slice(top.length).filter((key) => work.weight[key] > 0).length;
    if (others) {
      parts.push(z.map((value, i) => value - sum(parts.map((part) => part[i]))));
      labels.push(`${others} more`);
    }
    const recorded = attention.z ? Array.from(tensor(attention.z).of(chosen.head, chosen.query).values) : null;
    const most = spread({ values: [...parts.flat(), ...z] });
    const map = (name, rows, more) => {
      const matrix = new Tensor([rows.length, z.length], Float64Array.from(rows.flat()));
      return heatMap({ name, matrix, kind: "signed", most, cell: 20, ...more });
    };
    const results = {
      index: (_, j) => [chosen.head, chosen.query, j],
      shape: attention.z?.shape,
      rows: recorded ? ["here", "recorded"] : ["here"],
      rowWord: "computed",
    };
    const worst = Math.max(difference(work.weight, recordedWeights()), recorded ? difference(z, recorded) : 0);
    place.replaceChildren(
      figure("weight × v", WORDS.parts, map("weight × v", parts, { rows: labels })),
      figure("z", WORDS.summedUp, map("z", recorded ? [z, recorded] : [z], results), legend("signed", most)),
    );
    check.dataset.worst = String(worst);
    check.textContent = `${worst < 1e-3 ? "✓" : "≠"} ${WORDS.differ(number(worst, 2))}`;
  };
  return [[heading("The weighted sum"), ...prose(WORDS.weighted), place, check], show];
}
