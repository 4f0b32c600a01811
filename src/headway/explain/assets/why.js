// Step 5, continued: logit lens, direct logit attribution, head importance.

function lens() {
  const count = story.lens[0].rows.length;
  const whole = count === 1 && story.output?.kind === "classes";
  const name = Object.keys(story.sequences).findLast((each) => tokensOf(each).length === count);
  const titles = whole
    ? story.lens[0].rows[0].map((_, i) => ["best", "second", "third"][i])
    : range(count).map((i) => (name ? brief(texts(name)[i], 12) : String(i)));
  const place = (layer) => (layer < 0 ? "embedding" : `layer ${layer}`);
  const probabilityOf = (guess) => `${visible(guess.text)}  ${percent(guess.probability)}`;
  const guessed = (guesses, text, tell) => {
    const node = el("td", { "data-walk": "1" }, text && brief(text, whole ? 24 : 12));
    return describe(tint(node, "weight", guesses[0]?.probability ?? 0, 1), () => [tell, ...guesses.map(probabilityOf)]);
  };
  const rows = [...story.lens].reverse().map(({ layer, rows: tokens }) => {
    const where = `after ${place(layer)}`;
    const cells = whole
      ? tokens[0].map((guess) => guessed([guess], `${guess.text} ${percent(guess.probability)}`, where))
      : tokens.map((guesses, i) => guessed(guesses, guesses[0] && visible(guesses[0].text), `${where}, token ${i}`));
    return line(place(layer), cells);
  });
  const shown = table(["after", ...titles], rows, { class: "lens", id: "lens" });
  shown.classList.add("snug");
  const end = () => (shown.scrollLeft = shown.scrollWidth); // the last token is the one with the open answer
  if (story.output?.kind === "next" && !story.sequences.target) requestAnimationFrame(end);
  return [heading(WORDS.lensTitle), ...prose(WORDS.lens), shown, legend("weight", 1, "probability")];
}

function attribution() {
  const { target, logit, parts, method } = story.attribution;
  const most = largestSize(parts.map(([, value]) => value));
  const ordered = [...parts].sort((a, b) => Math.abs(b[1]) - Math.abs(a[1]));
  const rows = ordered.map(([name, value]) =>
    line(
      name,
      barCell(value, most, fixed(value, 3), () => [`${name}: ${number(value, 6)}`, `of the logit ${number(logit, 6)}`]),
    ),
  );
  const total = sum(parts.map(([, value]) => value));
  const direct = method !== "integrated";
  const words = direct ? WORDS.attribution : WORDS.integrated;
  return [
    heading(direct ? "Direct logit attribution" : "Integrated gradients"),
    el("p", { class: "prose" }, "The logit of ", bdi(target, "target"), ` is ${number(logit, 5)}. `, words),
    table([direct ? "part" : "token", "adds to the logit"], rows, { id: "attribution", class: "sums wide" }),
    el("p", { class: "check" }, Math.abs(total - logit) < 1e-2 ? "✓ " : "≠ ", `The parts sum to ${number(total, 6)}.`),
  ];
}

const RANKED = 40;

function ranking() {
  const most = largestSize(story.heads.map((each) => each.change));
  const rows = story.heads.slice(0, RANKED).map(({ name, layer, head, change, gradient }) => {
    const place = story.attention.findIndex((attention) => attention.name === name);
    const title = `${place < 0 ? `layer ${layer}` : layerName(story.attention[place])}, head ${head}`;
    const cells = [
      barCell(change, most, fixed(change, 3), () => [
        title,
        `without it the answer's logit falls by ${number(change, 6)}`,
      ]),
      gradient === null ? el("td") : cell(fixed(gradient, 3), () => [title, `by gradient ${number(gradient, 6)}`]),
    ];
    const press = () => choose({ layer: place, head });
    return { node: line(place < 0 ? title : pressable(title, press), cells), place, head };
  });
  const select = oneOf(
    rows.map(({ node }) => node),
    "aria-selected",
  );
  const redraw = () => select(rows.findIndex(({ place, head }) => place === chosen.layer && head === chosen.head));
  const ranks = table(
    ["head", "logit lost without it", "by gradient"],
    rows.map(({ node }) => node),
    { id: "ranking", class: "sums wide tight" },
  );
  return [[heading("Head importance for this answer"), ...prose(WORDS.ranking), ranks], redraw];
}
