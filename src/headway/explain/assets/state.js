// What is being looked at: one layer's attention, one head of it, the token that looks and the token looked at.

const tokensOf = (name) => story.sequences[name]?.tokens ?? [];
const texts = (name) => tokensOf(name).map((token) => visible(token.text));
const KINDS = { self: "self-attention", cross: "cross-attention", additive: "attention" };

function layerName(attention) {
  const stacks = new Set(story.attention.map((each) => each.stack));
  const kinds = new Set(story.attention.map((each) => each.kind));
  const parts = [
    stacks.size > 1 && attention.stack,
    `layer ${attention.layer}`,
    kinds.size > 1 && KINDS[attention.kind],
  ];
  return parts.filter(Boolean).join(" · ");
}

const pictured = () => Object.values(story.sequences).some((sequence) => sequence.picture);
const manyHeads = () => story.attention.length > 1 || story.attention[0].heads > 1;
const headName = (attention) => (manyHeads() ? `${layerName(attention)}, head ${chosen.head}` : "the one head");

const chosen = { layer: 0, head: 0, query: 0, key: 0 };
const listeners = [];
const current = () => story.attention[chosen.layer];
const weightsOf = (attention = current(), head = chosen.head) => tensor(attention.weights).of(head);

// To begin with: the head that matters most for the answer, and of a translator the one that looks across.
function firstChoice() {
  if (!story.attention.length) return;
  const kept = (attention) => attention.q !== null;
  const across = (attention) => kept(attention) && attention.kind === "cross";
  const ranked = (story.heads ?? []).map((each) => [story.attention.findIndex((a) => a.name === each.name), each.head]);
  const best = (test) => ranked.find(([layer]) => layer >= 0 && test(story.attention[layer]));
  const [layer, head] = best(across) ?? best(kept) ?? [Math.max(0, story.attention.findIndex(kept)), 0];
  const attention = story.attention[layer];
  const middle = Math.floor(tokensOf(attention.queries).length / 2);
  choose({ layer, head, query: (story.sequences.target ? null : answering()?.at) ?? middle });
}

const taken = (row) => row.candidates.find((each) => each.id === row.chosen) ?? row.candidates[0];
// Which candidates are shown: the best, and the one that was chosen wherever it stands.
const shortlist = (candidates, count, id) =>
  range(candidates.length).filter((i) => i < count || candidates[i].id === id);

// The choice that is looked at first: what comes after a text, a token with a tag, else the first there is.
function answering() {
  const { kind, rows } = story.output ?? { rows: [] };
  if (kind === "next" && !story.sequences.target) return rows.at(-1);
  return (kind === "tags" && rows.find((row) => taken(row)?.text !== "O")) || rows[0];
}

// The key that the chosen query looks at most; another token than itself, where it looks at one.
function mostLookedAt() {
  const attention = current();
  const row = Array.from(weightsOf().of(chosen.query).values);
  const others = row.map((weight, key) => (attention.queries === attention.keys && key === chosen.query ? 0 : weight));
  return largest(others.some((weight) => weight > 0) ? others : row);
}

// Changes the choice. A new layer, head or query is compared first with the key that it looks at most.
function choose(change) {
  Object.assign(chosen, change);
  const attention = current();
  const inside = (value, count) => Math.min(Math.max(0, value), count - 1);
  const [heads, queries, keys] = attention.weights.shape;
  chosen.head = inside(chosen.head, heads);
  chosen.query = inside(chosen.query, queries);
  if (!("key" in change)) chosen.key = mostLookedAt();
  chosen.key = inside(chosen.key, keys);
  for (const listener of listeners) listener();
}

// The bar at the top that always says, and changes, what is looked at.
function buildPicks(place) {
  if (!story.attention.length) {
    place.remove();
    return;
  }
  const selects = {};
  const pick = (name, label) => {
    selects[name] = el("select", {
      id: `pick-${name}`,
      onchange: () => choose({ [name]: Number(selects[name].value) }),
    });
    return el("label", {}, el("span", { text: label }), selects[name]);
  };
  place.append(pick("layer", "layer"), pick("head", "head"), pick("query", "this token"), pick("key", "looks at"));
  const listed = {};
  const options = (name, what, labels) => {
    const select = selects[name];
    if (listed[name] !== what) select.replaceChildren(...labels().map((text, value) => el("option", { value, text })));
    listed[name] = what;
    select.parentNode.hidden = select.length < 2;
    select.value = String(chosen[name]);
  };
  const words = (name) => () => texts(name).map((text, i) => `${i}  ${text}`);
  listeners.push(() => {
    const attention = current();
    options("layer", "layers", () => story.attention.map(layerName));
    options("head", attention.heads, () => range(attention.heads).map(String));
    options("query", attention.queries, words(attention.queries));
    options("key", attention.keys, words(attention.keys));
  });
}
