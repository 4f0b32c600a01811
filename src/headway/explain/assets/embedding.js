// Step 2: ids → vectors, and how the model is told the order.

const ORDER = {
  sinusoidal:
    "So to every row a fixed pattern of sines and cosines is **added**. Each pair of columns is a wave: the first ones turn quickly from one position to the next, the last ones hardly at all, like the hands of a clock. No two positions have the same pattern, and a step of the same length is the same rotation wherever it starts.",
  learned:
    "So to every row a second row is **added**, one for its position. These were learned like the embeddings; position 3 has the same row in every text.",
  rotary:
    "This model adds nothing here. Instead every attention layer **turns** its queries and keys, two numbers at a time, by an angle that grows with the position (rotary positions).",
  relative:
    "This model adds nothing here. Instead attention adds to each score a learned number that depends on **how far apart** the two tokens are.",
  alibi:
    "This model adds nothing here. Instead attention takes from each score an amount that grows with the **distance** between the two tokens, at another rate in each head (ALiBi).",
  none: "This model adds nothing for the position: what it knows of order comes from reading in order, or from a mask that lets a token see only what came before.",
};

function buildEmbedding(body) {
  body.append(
    ...prose(
      "Each id picks one row of the **embedding table**: a list of numbers that training has found for that token. Tokens used alike have rows alike. Orange is above zero, blue below, pale near zero.",
      "Attention alone does not know order: shuffle the tokens and each would get the same answer.",
    ),
  );
  const redraws = story.embedding.map((embedding) => oneEmbedding(body, embedding)).filter(Boolean);
  return () => redraws.forEach((redraw) => redraw());
}

function oneEmbedding(body, embedding) {
  const { sequence, position } = embedding;
  const rows = texts(sequence);
  const [token, values, result] = [embedding.token, position.values, embedding.result].map(tensor);
  if (story.embedding.length > 1) body.append(heading(story.sequences[sequence].label));
  const strip = (name, matrix, note) => {
    const most = spread(matrix);
    const map = heatMap({
      name,
      matrix,
      rows,
      kind: "signed",
      most,
      cell: rowHeight(rows.length),
      note,
      label: `${name} of every token`,
    });
    body.append(
      el(
        "figure",
        {},
        el("figcaption", {}, el("b", { text: name }), ` ${matrix.shape.join(" × ")}`),
        map,
        legend("signed", most),
      ),
    );
  };
  strip("token embedding", token);
  body.append(...prose(ORDER[position.kind]));
  let redraw = null;
  if (values) {
    strip("position", values);
    body.append(position.kind === "sinusoidal" ? waves(values) : nearness(values));
  }
  if (position.angles) redraw = dials(body, tensor(position.angles), sequence);
  if (position.kind === "relative" || position.kind === "alibi") redraw = distances(body);
  const plain =
    values &&
    difference(
      result.values,
      token.values.map((value, i) => value + values.values[i]),
    ) < 1e-3;
  const equal = (i, j) =>
    values &&
    `${number(token.at(i, j))} + ${number(values.at(i, j))}${plain ? " = " : ", and more → "}${number(result.at(i, j))}`;
  body.append(
    ...prose(
      values
        ? plain
          ? "Their sum, number by number, goes into the first layer:"
          : "Their sum, with whatever else the model does here (a segment row, a norm), goes into the first layer:"
        : "What goes into the first layer:",
    ),
  );
  strip("input of the first layer", result, equal);
  return redraw;
}

// A scale that a few outliers do not bleach: the 99th percentile of the sizes.
function spread(matrix) {
  const sizes = Float32Array.from(matrix.values, Math.abs).sort();
  return sizes[Math.floor(0.99 * (sizes.length - 1))] || sizes[sizes.length - 1] || 1;
}
