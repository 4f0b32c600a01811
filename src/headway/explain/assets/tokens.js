// Step 1: text → tokens → ids.

function chip(token, index, properties = {}) {
  const node = el(
    "button",
    { type: "button", class: "token", ...properties },
    bdi(token.text),
    el("small", { text: String(token.id) }),
  );
  return describe(node, () => [`token ${index}: ${visible(token.text)}`, `id ${token.id}`, properties["data-note"]]);
}

// A press on a token follows it: as the one that looks where its sequence asks, else as the one looked at.
function follow(name, index) {
  if (!story.attention.length) return;
  if (current().queries === name) choose({ query: index });
  else if (current().keys === name) choose({ key: index });
}

function isFollowed(name, index) {
  if (!story.attention.length) return false;
  return (
    (current().queries === name && chosen.query === index) ||
    (current().queries !== name && current().keys === name && chosen.key === index)
  );
}

function buildTokens(body) {
  body.append(
    ...prose(
      "A model reads no letters. A tokenizer cuts the text into pieces it knows, the **tokens**, and each has a number, its **id**: its row in the model's vocabulary. From here on the model sees only these ids. `␣` shows a space that is part of a token; `⏎` a line end.",
    ),
  );
  const redraws = [];
  for (const [name, sequence] of Object.entries(story.sequences)) {
    const text = sequence.tokens.map((token) => token.text).join("");
    body.append(el("h3", { dir: "auto", text: sequence.label }));
    if (sequence.picture) body.append(picture(sequence.picture));
    else body.append(el("blockquote", { dir: "auto", text }));
    const chips = sequence.tokens.map((token, i) => chip(token, i, { onclick: () => follow(name, i) }));
    body.append(el("div", { class: "arrow", "aria-hidden": "true", text: "↓" }), el("div", { class: "tokens" }, chips));
    const known = Math.max(...sequence.tokens.map((token) => token.text.length), 1);
    body.append(
      el("p", {
        class: "caption",
        text: `${plural(sequence.tokens.length, "token")} from ${plural([...text].length, "character")}; the longest has ${known}. Press one to follow it through the page.`,
      }),
    );
    redraws.push(() => chips.forEach((node, i) => node.setAttribute("aria-pressed", String(isFollowed(name, i)))));
  }
  const redraw = () => redraws.forEach((each) => each());
  redraw();
  return redraw;
}

// An image cut into patches; `weights`, one for each patch, darkens what is not looked at.
function picture(image, weights = null) {
  const shown = el("img", {
    src: `data:image/png;base64,${image.png}`,
    alt: `the picture, cut into ${image.rows} × ${image.columns} patches`,
  });
  const cells = range(image.rows * image.columns).map((i) => {
    const cell = el("i");
    if (weights)
      cell.style.setProperty(
        "background",
        `rgb(0 0 0 / ${0.85 * (1 - Math.sqrt(weights[i] / Math.max(...weights, 1e-9)))})`,
      );
    return cell;
  });
  return el(
    "div",
    { class: "picture", css: { "--across": image.columns } },
    shown,
    el("div", { class: "patches" }, cells),
  );
}
