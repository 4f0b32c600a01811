// Step 1: text → tokens → ids.

function chip(token, index, press) {
  const kind = token.special ? "token special" : "token";
  const node = el("button", { type: "button", class: kind, onclick: press }, word(token.text));
  if (!pictured()) node.append(el("small", { text: String(token.id) }));
  const id = !pictured() && `id ${token.id}`;
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
    const whole = !sequence.picture && !ids && text;
    const letters = whole ? ` from ${plural([...text].length, "character")}` : "";
    const specials = chips.length - own.length;
    const special = specials ? `, ${specials} of them special` : "";
    body.append(
      ...prose(sequence.picture ? WORDS.patches : redraws.length === 0 && (ids ? WORDS.ids : WORDS.tokens)),
      el("h3", { dir: "auto", text: sequence.label }),
      sequence.picture ? picture(sequence.picture) : "",
      whole ? el("blockquote", { dir: "auto", text: harmless(text) }) : "",
      whole ? el("div", { class: "arrow", "aria-hidden": "true", text: "↓" }) : "",
      el("div", { class: "tokens" }, chips),
      el("p", { class: "caption", text: `${plural(chips.length, "token")}${letters}${special}. ${followable() ? WORDS.press : ""}` }),
    );
    const press = oneOf(chips);
    redraws.push(() => press(followedIn(name)));
  }
  const redraw = () => redraws.forEach((each) => each());
  redraw();
  return redraw;
}

// An image cut into patches; `weights`, one for each patch, darkens patches with little weight.
function picture(image, weights = null) {
  const alt = `the image, split into ${image.rows} × ${image.columns} patches`;
  const most = weights ? Math.max(...weights, 1e-9) : 1;
  const cells = range(image.rows * image.columns).map((i) => {
    const dark = weights ? 0.85 * (1 - Math.sqrt(weights[i] / most)) : 0;
    return el("i", { css: { background: `rgb(0 0 0 / ${dark})` } });
  });
  const shown = el("img", { src: `data:image/png;base64,${image.png}`, alt });
  return el(
    "div",
    { class: "picture", css: { "--across": image.columns } },
    shown,
    el("div", { class: "patches" }, cells),
  );
}
