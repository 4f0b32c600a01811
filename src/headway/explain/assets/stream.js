// Step 5: what each layer adds. Norm, residual and feed-forward as sizes of contribution.

const PARTS = { embedding: "embedding", attention: "attention", cross: "cross-attention", feedforward: "feed-forward" };
const partName = (part) => (part.layer < 0 ? PARTS[part.part] : `layer ${part.layer} ${PARTS[part.part]}`);
const shortName = (part) => `${part.layer} ${PARTS[part.part]}`;

function buildStream(body) {
  const redraws = [];
  if (story.attribution?.method !== "integrated") body.append(...prose(WORDS.stream));
  if (story.stream.length) {
    const place = el("div");
    body.append(...prose(WORDS.sizes), place);
    redraws.push(keeping(place, () => followed()[0], contributions));
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

// The token whose vector is followed: the query, if its sequence has a stream.
function followed() {
  const sequence = story.attention.length ? current().queries : null;
  const own = story.stream.some((part) => part.sequence === sequence);
  return own ? [sequence, chosen.query] : [story.stream[0].sequence, 0];
}

function contributions() {
  const [name] = followed();
  const labels = texts(name);
  const parts = story.stream.filter((part) => part.sequence === name);
  const rows = parts.map((part) => partRow(part));
  const who = el("p", { class: "who" });
  const bars = table(["part", "adds", "stream after", "cosine"], rows, { class: "sums tight" });
  const show = () => {
    const token = followed()[1];
    const most = largestSize(parts.flatMap((part) => [part.stream[token], part.branch?.[token] ?? 0]));
    who.replaceChildren("Token: ", bdi(labels[token]), ` (${token})`);
    rows.forEach((row) => row.show(token, most));
  };
  return [[who, bars, shares(name, labels, parts)], show];
}

function partRow(part) {
  let token = 0;
  const place = () => `token ${token} of ${part.stream.length}`;
  const share = () => `${percent(part.branch[token] / part.stream[token])} of the stream after it`;
  const adds =
    part.branch &&
    barCell(0, 1, "", () => [`${partName(part)} adds ${number(part.branch[token], 6)}`, place(), share()]);
  const after = barCell(0, 1, "", () => [`stream after ${partName(part)}: ${number(part.stream[token], 6)}`, place()]);
  const cosine = part.cosine && cell("", () => [`cosine ${number(part.cosine[token], 6)}`, place()]);
  const node = line(partName(part), [adds ?? el("td"), after, cosine ?? el("td")]);
  node.show = (next, most) => {
    token = next;
    adds?.show(part.branch[token], most, fixed(part.branch[token], 2));
    after.show(part.stream[token], most, fixed(part.stream[token], 2));
    if (cosine) cosine.textContent = fixed(part.cosine[token], 2);
  };
  return node;
}

// Every part and token at a glance; it is the same whichever token is followed.
function shares(name, labels, parts) {
  const adding = parts.filter((part) => part.branch);
  if (!adding.length) return null;
  const values = adding.flatMap((part) => part.branch.map((value, i) => value / (part.stream[i] || 1)));
  const ordered = [...values].sort((a, b) => a - b);
  const most = Math.max(1, ordered[Math.floor(0.9 * (values.length - 1))]); // few are beyond it
  const map = heatMap({
    ...{ name: "adds ÷ stream", matrix: new Tensor([adding.length, labels.length], Float32Array.from(values)) },
    ...{ rows: adding.map(shortName), columns: labels, rowWord: "part", kind: "share", most, cell: 18 },
    pick: (_, query) => follow(name, query),
  });
  return figure("adds ÷ stream", WORDS.shares, map, legend("share", most));
}
