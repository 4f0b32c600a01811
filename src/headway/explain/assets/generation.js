// Step 7: writing on, one token at a time.

function buildGeneration(body) {
  const { steps: taken } = story.generation;
  body.append(
    ...prose(
      "The chosen token is put at the end of the text, and everything above happens again for the longer text. That is all that writing is. Step with the buttons, or with the arrow keys.",
    ),
  );
  const name = story.sequences.target ? "target" : "text";
  const length = taken[0].attention && name === "text" ? taken[0].attention.shape[1] : null;
  const given = tokensOf(name)
    .slice(0, length ?? (name === "target" ? 1 : undefined))
    .map((token) => token.text);
  let at = 0;
  const place = el("div", { "aria-live": "polite" });
  const back = el("button", { type: "button", text: "◀ back", onclick: () => go(at - 1) });
  const next = el("button", { type: "button", text: "next ▶", id: "next-step", onclick: () => go(at + 1) });
  const whole = el("input", {
    type: "range",
    min: 0,
    max: taken.length - 1,
    value: 0,
    "aria-label": "step",
    oninput: () => go(Number(whole.value)),
  });
  const where = el("span", { class: "n" });
  const go = (to) => {
    at = Math.min(Math.max(0, to), taken.length - 1);
    whole.value = String(at);
    where.textContent = `step ${at + 1} of ${taken.length}`;
    back.disabled = at === 0;
    next.disabled = at === taken.length - 1;
    place.replaceChildren(...oneStep(taken, at, given));
  };
  const player = el("div", { class: "player", id: "player" }, back, whole, next, where);
  player.addEventListener("keydown", (event) => {
    if (event.target === whole || !["ArrowLeft", "ArrowRight"].includes(event.key)) return;
    event.preventDefault();
    go(at + (event.key === "ArrowRight" ? 1 : -1));
  });
  body.append(player, place);
  go(0);
}

function oneStep(taken, at, given) {
  const now = taken[at];
  const before = [...given, ...taken.slice(0, at).map((each) => each.text)];
  const attention = now.attention && tensor(now.attention);
  const looks =
    attention && attention.shape[1] === before.length
      ? range(before.length).map(
          (key) => sum(range(attention.shape[0]).map((head) => attention.at(head, key))) / attention.shape[0],
        )
      : null;
  const words = before.map((text, i) => {
    const word = bdi(text, `piece${i >= given.length ? " written" : ""}`);
    return looks
      ? describe(tint(word, "weight", looks[i], 1), () => [
          `${visible(text)}: ${number(looks[i], 6)}`,
          "mean weight over the heads of the last layer",
        ])
      : word;
  });
  const shown = now.candidates.slice(0, 6);
  const rows = shown.map((candidate) => {
    const probability = Math.exp(candidate.logit - now.logsumexp);
    return el(
      "tr",
      { "aria-selected": String(candidate.id === now.id) },
      el("th", { scope: "row" }, bdi(candidate.text)),
      barCell(probability, 1, percent(probability), () => [
        `${visible(candidate.text)} (id ${candidate.id})`,
        `probability ${number(probability, 6)}`,
        `logit ${number(candidate.logit, 6)}`,
      ]),
    );
  });
  return [
    el("p", { class: "written", dir: "auto" }, words, " ", el("span", { class: "new" }, bdi(now.text, "piece"))),
    looks &&
      el("p", {
        class: "caption",
        text: "Colour: how much the last layer looked at each token for this step (mean over its heads).",
      }),
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
              ["candidate", "probability"].map((text) => el("th", { scope: "col", text })),
            ),
          ),
          el("tbody", {}, rows),
        ),
      ),
    ),
  ];
}
