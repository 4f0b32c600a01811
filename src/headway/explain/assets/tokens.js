// Step 1: text → tokens → ids.

function chip(token, index, press) {
  const kind = token.special ? "token special" : "token";
  const node = el("button", { type: "button", class: kind, onclick: press }, word(token.text));
  const numbered = !pictured() || sounding();
  if (numbered) node.append(el("small", { text: String(token.id) }));
  const id = numbered && `id ${token.id}`;
  const lines = [`token ${index}: ${visible(token.text)}`, id, token.special && WORDS.special];
  return describe(node, () => lines);
}

const followable = () => story.attention.length > 0;

// A press on a token selects it: as the query where its sequence has the queries, else as the key, else as the query
// of the first layer where it has them.
function follow(name, index) {
  if (!followable()) return;
  if (current().queries === name) choose({ query: index });
  else if (current().keys === name) choose({ key: index });
  else choose({ layer: story.attention.findIndex((each) => each.queries === name), query: index });
}

function followedIn(name) {
  if (!followable()) return -1;
  const { queries, keys } = current();
  return queries === name ? chosen.query : keys === name ? chosen.key : -1;
}

function buildTokens(body) {
  const redraws = [];
  for (const [name, sequence] of Object.entries(story.sequences)) {
    const own = sequence.tokens.filter((token) => !token.special);
    const text = (sequence.text ?? own.map((token) => token.text).join("")).trim();
    const chips = sequence.tokens.map((token, i) => chip(token, i, () => follow(name, i)));
    const ids = own.every((token) => token.text === String(token.id));
    const objects = story.output?.kind === "objects";
    const whole = !sequence.picture && !ids && !objects && text;
    const sound = sequence.picture?.kind === "sound";
    const shown = !sound && !isFine(sequence.picture); // as chips
    const letters = whole ? ` from ${plural([...text].length, "character")}` : "";
    const specials = chips.length - own.length;
    const special = specials ? `, ${specials} of them special` : "";
    body.append(
      ...prose(
        sound ? WORDS.frames
        : objects ? sequence.picture ? WORDS.vectors : WORDS.queries
        : sequence.picture ? WORDS.patches
        : (redraws.length === 0 || sounding()) && (ids ? WORDS.ids : WORDS.tokens),
      ),
      el("h3", { dir: "auto", text: sequence.label }),
      sequence.picture ? picture(sequence.picture) : "",
      whole ? el("blockquote", { dir: "auto", text: harmless(text) }) : "",
      whole ? el("div", { class: "arrow", "aria-hidden": "true", text: "↓" }) : "",
      shown ? el("div", { class: "tokens" }, chips) : "",
      el("p", { class: "caption", text: `${plural(chips.length, "token")}${letters}${special}. ${followable() && shown ? WORDS.press : ""}` }),
    );
    const press = oneOf(chips);
    redraws.push(() => press(followedIn(name)));
  }
  const redraw = () => redraws.forEach((each) => each());
  redraw();
  return redraw;
}

// Whether an image has more patches than can be told apart as chips.
const isFine = (image) => image?.kind !== "sound" && image?.columns > 20;

// An image cut into patches, or a spectrogram into columns; `weights`, one for each, darkens those with little weight.
function picture(image, weights = null) {
  const sound = image.kind === "sound";
  const alt = sound
    ? `the spectrogram, split into ${image.columns} columns`
    : `the image, split into ${image.rows} × ${image.columns} patches`;
  const most = weights ? Math.max(...weights, 1e-9) : 1;
  const cells = range(image.rows * image.columns).map((i) => {
    const dark = weights ? 0.85 * (1 - Math.sqrt(weights[i] / most)) : 0;
    return el("i", { css: { background: `rgb(0 0 0 / ${dark})` } });
  });
  const shown = el("img", { src: `data:image/png;base64,${image.png}`, alt });
  return el(
    "div",
    { class: sound ? "picture sound" : isFine(image) ? "picture fine" : "picture", css: { "--across": image.columns } },
    shown,
    el("div", { class: "patches" }, cells),
  );
}
