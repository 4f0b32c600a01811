// Step 2: ids → vectors, and positions.

function buildEmbedding(body) {
  body.append(...prose(sounding() ? WORDS.soundEmbedding : pictured() ? WORDS.patchEmbedding : WORDS.embedding));
  const explained = new Set(); // kinds of position whose text is on the page already
  const redraws = story.embedding.map((embedding) => oneEmbedding(body, embedding, explained)).filter(Boolean);
  return () => redraws.forEach((redraw) => redraw());
}

function oneEmbedding(body, embedding, explained) {
  const { sequence, position } = embedding;
  const rows = texts(sequence);
  const [token, values, result] = [embedding.token, position.values, embedding.result].map(tensor);
  const strip = (name, matrix, note) => {
    const most = spread(matrix);
    const map = heatMap({ name, matrix, rows, kind: "signed", most, cell: rowHeight(rows.length), note });
    return figure(name, matrix.shape.join(" × "), map, legend("signed", most));
  };
  if (story.embedding.length > 1) body.append(heading(story.sequences[sequence].label));
  const image = story.sequences[sequence].picture;
  const name = image?.kind === "sound" ? "sound embedding" : image ? "patch embedding" : "token embedding";
  body.append(strip(name, token));
  if (!explained.has(position.kind)) body.append(...prose(!explained.size && WORDS.order, WORDS.positions[position.kind]));
  explained.add(position.kind);
  if (values) body.append(strip("position", values));
  if (values && position.kind === "learned") body.append(nearness(values));
  if (position.kind === "sinusoidal") body.append(...sinusoid(tensor(position.pattern) ?? values, rows.length));
  let redraw = null;
  if (position.angles) redraw = dials(body, tensor(position.angles), sequence);
  if (position.kind === "relative" || position.kind === "alibi") redraw = distances(body);
  if (!values && difference(result.values, token.values) < 1e-6) {
    body.append(...prose(WORDS.untouched));
    return redraw;
  }
  const summed = token.values.map((value, i) => value + (values?.values[i] ?? 0));
  const plain = !embedding.also.length && difference(result.values, summed) < 1e-3;
  const note = (i, j) =>
    `${number(token.at(i, j))} + ${number(values.at(i, j))}${plain ? "" : ", and more,"} = ${number(result.at(i, j))}`;
  body.append(
    ...prose(plain ? WORDS.summed : WORDS.also[embedding.also.join("+")] || WORDS.summedAndMore),
    strip("input of the first layer", result, values && note),
  );
  return redraw;
}

// A scale that a few outliers do not bleach: the 99th percentile of the sizes; of few numbers, the largest.
function spread(matrix) {
  const sizes = Float32Array.from(matrix.values, Math.abs).sort();
  const last = sizes.length - 1;
  return sizes[sizes.length < 100 ? last : Math.floor(0.99 * last)] || sizes[last] || 1;
}
