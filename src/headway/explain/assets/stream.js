// Step 5: what each layer adds. Norm, residual and feed-forward as sizes; what the model would say on the way.

const PARTS = { embedding: "embedding", attention: "attention", cross: "cross-attention", feedforward: "feed-forward" };

function buildStream(body) {
  body.append(
    ...prose(
      "A layer does not replace a token's vector, it **adds** to it: x ← x + attention(x), then x ← x + feed-forward(x). This running sum is the **residual stream**. Attention brings in what other tokens know; the **feed-forward** network then works on each token alone, widening the vector, bending it with a non-linear function and narrowing it again. A **norm** keeps the sizes in hand, before each part or after it.",
      "The bars show, for the chosen token, the length (the Euclidean norm) of what each part adds, beside the length of the stream after it. A long bar changes the token much; a short one leaves it almost as it was.",
    ),
  );
  const place = el("div");
  const redraws = [];
  if (story.stream.length) {
    body.append(place);
    redraws.push(() => place.replaceChildren(...contributions()));
  }
  if (story.lens) body.append(...lens());
  if (story.attribution) body.append(...attribution());
  if (story.heads) {
    const [nodes, redraw] = ranking();
    body.append(...nodes);
    redraws.push(redraw);
  }
  const redraw = () => redraws.forEach((each) => each());
  redraw();
  return redraw;
}

function contributions() {
  const asked = story.attention.length ? current().queries : Object.keys(story.sequences)[0];
  const name = story.stream.some((part) => part.sequence === asked) ? asked : story.stream[0].sequence;
  const token = story.attention.length && name === asked ? chosen.query : 0;
  const parts = story.stream.filter((part) => part.sequence === name);
  const most = Math.max(...parts.map((part) => Math.max(part.stream[token], part.branch?.[token] ?? 0)));
  const title = (part) => (part.layer < 0 ? PARTS[part.part] : `layer ${part.layer} ${PARTS[part.part]}`);
  const rows = parts.map((part) =>
    el(
      "tr",
      { class: part.part },
      el("th", { scope: "row", text: title(part) }),
      part.branch
        ? barCell(part.branch[token], most, fixed(part.branch[token], 2), () => [
            `${title(part)} adds ${number(part.branch[token], 6)}`,
            `token ${token} of ${part.branch.length}`,
            `${percent(part.branch[token] / part.stream[token])} of the stream after it`,
          ])
        : el("td"),
      barCell(part.stream[token], most, fixed(part.stream[token], 2), () => [
        `stream after ${title(part)}: ${number(part.stream[token], 6)}`,
        `token ${token} of ${part.stream.length}`,
      ]),
      part.cosine
        ? describe(el("td", { class: "n", "data-walk": "1", text: fixed(part.cosine[token], 2) }), () => [
            `cosine ${number(part.cosine[token], 6)}`,
            "between the stream before and after: 1 is unturned, 0 a right angle",
          ])
        : el("td"),
    ),
  );
  const adding = parts.filter((part) => part.branch);
  const labels = texts(name);
  const matrix = new Tensor(
    [adding.length, labels.length],
    Float32Array.from(adding.flatMap((part) => part.branch.map((value, i) => value / (part.stream[i] || 1)))),
  );
  return [
    el("p", { class: "who" }, "Token: ", bdi(labels[token]), ` (${token})`),
    el(
      "div",
      { class: "scroll" },
      walkable(
        el(
          "table",
          { class: "sums" },
          el(
            "thead",
            {},
            el(
              "tr",
              {},
              ["part", "adds", "stream after", "cosine"].map((text) => el("th", { scope: "col", text })),
            ),
          ),
          el("tbody", {}, rows),
        ),
      ),
    ),
    adding.length > 0 &&
      el(
        "figure",
        {},
        el(
          "figcaption",
          {},
          el("b", { text: "adds ÷ stream" }),
          " every part (rows) and token (columns): how large a share of the stream is new",
        ),
        heatMap({
          name: "adds ÷ stream",
          matrix,
          rows: adding.map(title),
          columns: labels,
          rowWord: "part",
          kind: "weight",
          most: Math.max(1, largestSize(matrix.values)),
          cell: 18,
          pick: (_, query) => follow(name, query),
        }),
      ),
  ];
}

function lens() {
  const last = story.lens[story.lens.length - 1];
  const name = Object.keys(story.sequences).find((each) => tokensOf(each).length === last.rows.length) ?? "text";
  const head = el(
    "tr",
    {},
    el("th", { scope: "col", text: "after layer" }),
    texts(name)
      .slice(0, last.rows.length)
      .map((text) => el("th", { scope: "col" }, bdi(text))),
  );
  const rows = story.lens.toReversed().map((layer) =>
    el(
      "tr",
      {},
      el("th", { scope: "row", text: layer.layer < 0 ? "embedding" : String(layer.layer) }),
      layer.rows.map((guesses, i) =>
        describe(
          tint(
            el("td", { "data-walk": "1" }, guesses.length ? bdi(guesses[0].text) : ""),
            "weight",
            guesses[0]?.probability ?? 0,
            1,
          ),
          () => [
            `after layer ${layer.layer}, token ${i}`,
            ...guesses.map((guess) => `${visible(guess.text)}  ${percent(guess.probability)}`),
          ],
        ),
      ),
    ),
  );
  return [
    heading("What it would say if it stopped here"),
    ...prose(
      "The **logit lens**: read the stream after each layer as if it were the last, with the model's own output matrix. Down the page is towards the start. Watch where the answer appears, and what it was before.",
    ),
    el(
      "div",
      { class: "scroll" },
      walkable(el("table", { class: "lens" }, el("thead", {}, head), el("tbody", {}, rows))),
    ),
    legend("weight", 1),
  ];
}

function attribution() {
  const { target, logit, parts } = story.attribution;
  const most = largestSize(parts.map(([, value]) => value));
  const rows = parts.map(([name, value]) =>
    el(
      "tr",
      {},
      el("th", { scope: "row", text: name }),
      barCell(value, most, fixed(value, 3), () => [`${name}: ${number(value, 6)}`, `of the logit ${number(logit, 6)}`]),
    ),
  );
  const total = sum(parts.map(([, value]) => value));
  return [
    heading("Who argued for the answer"),
    el(
      "p",
      { class: "prose" },
      "The score of ",
      bdi(target),
      ` is ${number(logit, 5)}. Because the stream is a sum, the score is one too: this is the share of each part (direct logit attribution; what a part does through later layers counts for those).`,
    ),
    el("div", { class: "scroll" }, walkable(el("table", { class: "sums" }, el("tbody", {}, rows)))),
    el("p", { class: "check" }, Math.abs(total - logit) < 1e-2 ? "✓ " : "≠ ", `The parts sum to ${number(total, 6)}.`),
  ];
}

function ranking() {
  const most = largestSize(story.heads.map((each) => each.change));
  const rows = story.heads.slice(0, 40).map((each) => {
    const layer = story.attention.findIndex((attention) => attention.name === each.name);
    const title = layer >= 0 ? layerName(story.attention[layer]) : `layer ${each.layer}`;
    const press = () => choose({ layer, head: each.head });
    return [
      el(
        "tr",
        {},
        el(
          "th",
          { scope: "row" },
          layer >= 0
            ? el("button", { type: "button", class: "link", onclick: press, text: `${title}, head ${each.head}` })
            : `${title}, head ${each.head}`,
        ),
        barCell(each.change, most, fixed(each.change, 3), () => [
          `${title}, head ${each.head}`,
          `the answer's score changes by ${number(each.change, 6)} without it`,
        ]),
        el("td", { class: "n", text: each.gradient === null ? "" : fixed(each.gradient, 3) }),
      ),
      layer,
      each.head,
    ];
  });
  const redraw = () =>
    rows.forEach(([row, layer, head]) =>
      row.setAttribute("aria-selected", String(layer === chosen.layer && head === chosen.head)),
    );
  return [
    [
      heading("Which heads matter for this answer"),
      ...prose(
        "Silence one head, run the model again, and see how the answer's score changes: below zero, the head spoke for the answer; above, against it. The gradient is a quick estimate of the same.",
      ),
      el(
        "div",
        { class: "scroll" },
        walkable(
          el(
            "table",
            { class: "sums" },
            el(
              "thead",
              {},
              el(
                "tr",
                {},
                ["head", "change without it", "by gradient"].map((text) => el("th", { scope: "col", text })),
              ),
            ),
            el(
              "tbody",
              {},
              rows.map(([row]) => row),
            ),
          ),
        ),
      ),
    ],
    redraw,
  ];
}
