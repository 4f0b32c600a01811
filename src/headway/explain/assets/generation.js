// Step 7: generation, one token at a time.

function buildGeneration(body) {
  const { steps: generated } = story.generation;
  const { target } = story.sequences;
  const given = target ? texts("target").slice(0, 1) : texts("text");
  const place = el("div", { "aria-live": "polite" });
  const where = el("span", { class: "n" });
  let at = 0;
  const go = (to) => {
    at = Math.min(Math.max(0, to), generated.length - 1);
    whole.value = String(at);
    where.textContent = `step ${at + 1} of ${generated.length}`;
    back.disabled = at === 0;
    next.disabled = at === generated.length - 1;
    place.replaceChildren(...oneStep(generated, at, given));
  };
  const back = el("button", { type: "button", text: "◀ back", onclick: () => go(at - 1) });
  const next = el("button", { type: "button", text: "next ▶", id: "next-step", onclick: () => go(at + 1) });
  const whole = el("input", { type: "range", min: 0, max: generated.length - 1, value: 0, "aria-label": "step" });
  whole.addEventListener("input", () => go(Number(whole.value)));
  const player = el("div", { class: "player", id: "player" }, back, whole, next, where);
  player.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.target === whole || !step) return;
    event.preventDefault();
    go(at + step);
  });
  body.append(...prose(WORDS.generation), player, place);
  go(0);
}

// The tokens with the weight that each got in this step, as the mean over the heads.
function pieces(words, attention, from) {
  const heads = attention?.shape[0];
  return words.map((text, i) => {
    const node = bdi(text, `piece${i >= from ? " own" : ""}`);
    if (!attention) return node;
    const weight = sum(range(heads).map((head) => attention.at(head, i))) / heads;
    const lines = () => [`${text}: ${number(weight, 6)}`, `mean weight over ${plural(heads, "head")}`];
    return describe(tint(node, "weight", weight, 1), lines);
  });
}

function oneStep(all, at, given) {
  const now = all[at];
  const before = [...given, ...all.slice(0, at).map((each) => visible(each.text))];
  const attention = tensor(now.attention);
  const keys = attention?.shape[1];
  const own = keys === before.length && !story.sequences.target;
  const read =
    story.sequences.source && keys === tokensOf("source").length ? pieces(texts("source"), attention, Infinity) : null;
  const rows = shortlist(now.candidates, 6, now.id).map((i) => {
    const candidate = now.candidates[i];
    const probability = Math.exp(candidate.logit - now.logsumexp);
    const lines = () => [`${visible(candidate.text)}: id ${candidate.id}`, `probability ${number(probability, 6)}`];
    const marks = { "aria-selected": String(candidate.id === now.id) };
    return line(word(candidate.text), barCell(probability, 1, percent(probability), lines), marks);
  });
  const generated = [
    pieces(before, own ? attention : null, given.length),
    el("span", { class: "new" }, word(now.text, "piece")),
  ];
  return [
    read && el("p", { class: "written", dir: "auto" }, read),
    el("p", { class: "written", dir: "auto", id: "written" }, generated),
    (own || read) && el("p", { class: "caption", text: WORDS.stepWeights }),
    table(["candidate", "probability"], rows, { class: "sums wide" }),
  ].filter(Boolean);
}
