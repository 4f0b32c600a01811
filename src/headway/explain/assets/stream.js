// Step 5: what each layer adds. Norm, residual and feed-forward as sizes of contribution.

const PARTS = { embedding: "embedding", attention: "attention", cross: "cross-attention", feedforward: "feed-forward" };
const partName = (part) => (part.layer < 0 ? PARTS[part.part] : `layer ${part.layer} ${PARTS[part.part]}`);

function buildStream(body) {
  const redraws = [];
  body.append(...prose(WORDS.stream));
  if (story.stream.length) {
    const place = el("div");
    body.append(...prose(WORDS.sizes), place);
    redraws.push(() => place.replaceChildren(...contributions()));
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

// The token whose vector is followed: the one that looks, if its sequence has a stream.
function followed() {
  const asked = story.attention.length ? current().queries : null;
  const own = story.stream.some((part) => part.sequence === asked);
  return own ? [asked, chosen.query] : [story.stream[0].sequence, 0];
}

function contributions() {
  const [name, token] = followed();
  const parts = story.stream.filter((part) => part.sequence === name);
  const most = largestSize(parts.flatMap((part) => [part.stream[token], part.branch?.[token] ?? 0]));
  const rows = parts.map((part) => {
    const [adds, after, cosine] = [part.branch?.[token], part.stream[token], part.cosine?.[token]];
    const place = `token ${token} of ${part.stream.length}`;
    const share = () => `${percent(adds / after)} of the stream after it`;
    return line(partName(part), [
      adds === undefined
        ? el("td")
        : barCell(adds, most, fixed(adds, 2), () => [`${partName(part)} adds ${number(adds, 6)}`, place, share()]),
      barCell(after, most, fixed(after, 2), () => [`stream after ${partName(part)}: ${number(after, 6)}`, place]),
      cosine === undefined ? el("td") : cell(fixed(cosine, 2), () => [`cosine ${number(cosine, 6)}`, place]),
    ]);
  });
  const labels = texts(name);
  const adding = parts.filter((part) => part.branch);
  const who = el("p", { class: "who" }, "Token: ", bdi(labels[token]), ` (${token})`);
  const bars = table(["part", "adds", "stream after", "cosine"], rows);
  if (!adding.length) return [who, bars];
  const shares = adding.flatMap((part) => part.branch.map((value, i) => value / (part.stream[i] || 1)));
  const highest = Math.max(1, largestSize(shares));
  const matrix = new Tensor([adding.length, labels.length], Float32Array.from(shares));
  const map = heatMap({
    ...{ name: "adds ÷ stream", matrix, rows: adding.map(partName), columns: labels, rowWord: "part", kind: "weight" },
    ...{ most: highest, cell: 18, pick: (_, query) => follow(name, query) },
  });
  const caption = "every part and token: how large what is added is, beside the stream after it";
  return [who, bars, figure("adds ÷ stream", caption, map, legend("weight", highest, "share"))];
}
