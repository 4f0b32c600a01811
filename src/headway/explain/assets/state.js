// The current choice: an attention layer, one head of it, a query and a key.

const tokensOf = (name) => story.sequences[name]?.tokens ?? [];
const texts = (name) => tokensOf(name).map((token) => visible(token.text));
const KINDS = { self: "self-attention", cross: "cross-attention", additive: "attention", multiplicative: "attention" };

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

const MANY_TOKENS = 600; // with more, what has a row for each of them is scrolled, and lines are left out
const pictured = () => Object.values(story.sequences).some((sequence) => sequence.picture);
const sounding = () => Object.values(story.sequences).some((sequence) => sequence.picture?.kind === "sound");
const manyHeads = () => story.attention.length > 1 || story.attention[0].heads > 1;
const headName = (attention) => (manyHeads() ? `${layerName(attention)}, head ${chosen.head}` : "the one head");

const chosen = { layer: 0, head: 0, query: 0, key: 0 };
const listeners = [];
const current = () => story.attention[chosen.layer];
const weightsOf = (attention = current(), head = chosen.head) => tensor(attention.weights).of(head);

// The first choice: the head that matters most for the answer; of an encoder-decoder, a head of cross-attention.
function firstChoice() {
  if (!story.attention.length) return;
  const kept = (attention) => attention.q !== null;
  const cross = (attention) => kept(attention) && attention.kind === "cross";
  const ranked = (story.heads ?? []).map((each) => [story.attention.findIndex((a) => a.name === each.name), each.head]);
  const firstOf = (test) => range(story.attention.length).find((layer) => test(story.attention[layer]));
  const best = (test) => ranked.find(([layer]) => layer >= 0 && test(story.attention[layer]));
  const [layer, head] = best(cross) ?? best(kept) ?? [firstOf(cross) ?? firstOf(kept) ?? 0, 0];
  const attention = story.attention[layer];
  const middle = Math.floor(tokensOf(attention.queries).length / 2);
  const first = story.sequences.target && story.output?.kind !== "objects" ? null : answering()?.at;
  choose({ layer, head, query: first ?? middle });
}

const taken = (row) => row.candidates.find((each) => each.id === row.chosen) ?? row.candidates[0];
// The shown candidates: the best, and the chosen one whatever its rank.
const shortlist = (candidates, count, id) =>
  range(candidates.length).filter((i) => i < count || candidates[i].id === id);

// The row shown first: the next token after a text, a token with a tag, else the first row.
function answering() {
  const { kind, rows } = story.output ?? { rows: [] };
  if (kind === "next" && !story.sequences.target) return rows.at(-1);
  return (kind === "tags" && rows.find((row) => taken(row)?.text !== "O")) || rows[0];
}

// The key with the largest weight for the chosen query; another token than itself, where one has any.
function strongestKey() {
  const attention = current();
  const row = Array.from(weightsOf().of(chosen.query).values);
  const others = row.map((weight, key) => (attention.queries === attention.keys && key === chosen.query ? 0 : weight));
  return largest(others.some((weight) => weight > 0) ? others : row);
}

// Changes the choice. A new layer, head or query comes with its strongest key.
function choose(change) {
  Object.assign(chosen, change);
  const attention = current();
  const inside = (value, count) => Math.min(Math.max(0, value), count - 1);
  const [heads, queries, keys] = attention.weights.shape;
  chosen.head = inside(chosen.head, heads);
  chosen.query = inside(chosen.query, queries);
  if (!("key" in change)) chosen.key = strongestKey();
  chosen.key = inside(chosen.key, keys);
  for (const listener of listeners) listener();
}

// The bar at the top that shows and changes the choice.
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
  place.append(pick("layer", "layer"), pick("head", "head"), pick("query", "query"), pick("key", "key"));
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
