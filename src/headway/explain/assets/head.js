// The top of the page: input, answer, and an overview of the steps.

function buildTop(place) {
  const dark = el("button", { id: "theme", type: "button", "aria-label": "Switch between light and dark" });
  const label = () => {
    dark.textContent = theme() === "dark" ? "☀ light" : "☾ dark";
  };
  dark.addEventListener("click", () => {
    document.documentElement.dataset.theme = theme() === "dark" ? "light" : "dark";
    label();
    drawAgain();
  });
  media.addEventListener("change", () => {
    label();
    drawAgain();
  });
  label();
  const folds = el("button", { type: "button", text: "fold all" });
  folds.addEventListener("click", () => {
    const fold = folds.textContent === "fold all";
    steps.forEach((self) => {
      self.node.open = !fold;
    });
    folds.textContent = fold ? "open all" : "fold all";
  });
  const { model } = story;
  const hint = [story.example ? WORDS.worked : WORDS.real, WORDS.hint, followable() && WORDS.follow];
  place.append(
    el("div", { class: "tools" }, folds, dark),
    el("p", { class: "kicker", dir: "auto", text: [...new Set([model.name, story.task])].filter(Boolean).join(" · ") }),
    el("h1", { dir: "auto", text: harmless(story.title) }),
    answer(),
    el(
      "dl",
      { class: "facts" },
      model.facts.map(([name, value]) =>
        el("div", {}, el("dt", { text: name }), el("dd", { dir: "auto", text: value })),
      ),
    ),
    ...story.note.map((text) => el("p", { class: "note", dir: "auto", text })),
    buildMap(),
    el("p", { class: "hint", text: hint.filter(Boolean).join(" ") }),
  );
}

// For a decoder, the generated continuation instead of the next token alone.
function answer() {
  const { output, generation, sequences } = story;
  const continued = output?.kind === "next" && !output.given && !sequences.target && generation?.text;
  const text = (continued || output?.answer || "").trim();
  const label = continued ? "the model's continuation" : output?.given ? "the given answer" : "the model's answer";
  return text && el("p", { class: "answer" }, el("span", { text: label }), el("q", { dir: "auto", text: harmless(text) }));
}

function buildMap() {
  const stacks = [...new Set(story.attention.map((each) => each.stack))];
  const stop = (id, big, small) =>
    el(
      "li",
      {},
      el(
        "a",
        {
          href: `#${id}`,
          onclick: (event) => {
            event.preventDefault();
            goTo(id);
          },
        },
        el("b", { text: big }),
        el("span", { text: small }),
      ),
    );
  const counts = Object.values(story.sequences).map((sequence) => sequence.tokens.length);
  const stops = [stop("tokens", counts.join(" + "), counts.length === 1 && counts[0] === 1 ? "token" : "tokens")];
  if (story.embedding.length) {
    stops.push(stop("embedding", `${story.embedding[0].token.shape[1]}`, "dimensions"));
  }
  const full = story.attention.find((each) => each.q);
  if (full) stops.push(stop("byhand", "q · k", `${plural(full.q.shape[2], "term")} each`));
  for (const stack of stacks) {
    const members = story.attention.filter((each) => each.stack === stack);
    const layers = new Set(members.map((each) => each.layer)).size;
    stops.push(
      stop("heads", `${layers} × ${members[0].heads}`, stacks.length > 1 ? `${stack} heads` : "layers × heads"),
    );
  }
  if (story.stream.length) stops.push(stop("stream", "x + f(x)", "each layer adds"));
  const row = story.output?.rows[0];
  if (row) stops.push(stop("output", row.count.toLocaleString("en"), row.count === 1 ? "logit" : "logits"));
  const vector = story.output?.vector;
  if (vector) stops.push(stop("output", String(vector.shape[0]), "dimensions of the embedding"));
  if (story.generation) stops.push(stop("generation", String(story.generation.steps.length), "generated tokens"));
  return el("nav", { class: "map", "aria-label": "From input to answer" }, el("ol", {}, stops));
}
