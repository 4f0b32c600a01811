// The texts of the page: for students, in the terms of the papers. A teacher may change any of them.

const WORDS = {
  real: `Every number here was computed by the model for this input.`,
  worked: `Every number here is computed by the formula that the models use.`,
  hint: `Point at any picture, or tab to it and use the arrow keys, to read its numbers.`,
  follow: `Press a token, a head or a row to follow it.`,

  tokens: `A **tokenizer** splits the text into **tokens**, and each token has an **id**: its index in the model's
    vocabulary. The input of the model is these ids and nothing else. \`␣\` is a
    space that is part of a token, \`⏎\` a line end; a dashed frame is a **special token**, such as the beginning or
    the end of the text.`,
  ids: `This model has no tokenizer: its input is token **ids**.`,
  press: "Press one to follow it.",
  special: "special token, not part of the text",

  vectors: `A convolutional network, or one linear layer for each patch, turns the picture into a grid of vectors. They are
    what the queries of the detector attend to.`,
  queries: `Each query finds one object, or none. These are the queries that found one; their numbers are those of the boxes in
    the picture. Press one to see, below, which parts of the picture it attends to.`,
  patches: `A vision transformer splits the image into **patches**, and each patch is a token. One matrix, or a few
    convolutions that also see its surroundings, make a vector of its pixels.`,

  frames: `The sound becomes a **spectrogram**: time runs to the right, frequency upwards, and bright is loud.
    Convolutions join a few neighbouring columns into one vector, and each of these vectors is a token of the encoder,
    named by the time at which it begins.`,

  embedding: `Each id selects one row of the **embedding table**: a vector that was learned for that token. Tokens that
    are used alike have similar rows. Orange is above zero, blue below, faint near zero.`,
  patchEmbedding: `The pixels of each patch become its vector; a class token in front, where there is one, has a learned
    vector of its own. Orange is above zero, blue below, faint near zero.`,
  soundEmbedding: `The vectors of the sound are what the convolutions make of the spectrogram; each id of the text
    selects one row of the **embedding table**. Orange is above zero, blue below, faint near zero.`,
  order: `Attention without a mask does not depend on order: permute the tokens, and the results are permuted alike.`,
  positions: {
    sinusoidal: `So to every row a fixed pattern of sines and cosines is **added**. Each pair of columns is a wave:
      the first oscillate quickly with the position, the last slowly, like the hands of a clock. No two
      positions have the same pattern, and a step of the same length is the same rotation wherever it starts.`,
    learned: `So to every row a second row is **added**, one for its position. These were learned like the embeddings:
      position 3 has the same row in every input.`,
    rotary: `This model adds nothing here. Instead every attention layer **rotates** its queries and keys, two
      dimensions at a time, by an angle that grows with the position (rotary position embedding).`,
    relative: `This model adds nothing here. Instead attention adds to each score a learned bias that depends on the
      **distance** between the two tokens (relative position bias).`,
    alibi: `This model adds nothing here. Instead attention subtracts from each score an amount that grows with the
      **distance** between the two tokens, at a different rate in each head (ALiBi).`,
    none: `This model has no position embedding: order comes from recurrence, or from a causal mask.`,
  },
  summed: `Their sum, number by number, goes into the first layer.`,
  also: {
    segment: `A **segment embedding** is added too, one row for the first text and one for the second. The sum goes into the first layer.`,
    norm: `A **norm** then brings every token's vector to about the same length, and that goes into the first layer.`,
    "segment+norm": `A **segment embedding** is added too, one row for the first text and one for the second; then a
      **norm** brings every token's vector to about the same length. That goes into the first layer.`,
  },
  summedAndMore: `The input of the first layer is this sum with what else the model applies here: a segment embedding, a
    scale, a norm.`,
  untouched: `So the embeddings go into the first layer as they are.`,
  pattern: `the same for every text, beyond the end of this one. Each row is a position, each column a wave`,
  waves: `some columns of it over the positions; the dots are the tokens of this text:`,
  similarity: `the cosine similarity of each two rows. High values near the diagonal mean that the model has learned which
    positions are close.`,
  clocks: `The first clocks are fast, the last slow. The dot product of two rotated pairs depends only on the angle
    between the hands, and so only on the distance of the tokens: shift both by the same amount, and nothing changes.`,

  byhand: `Attention lets a token gather what it needs from other tokens. A head projects each token's
    vector to three shorter ones: a **query** (what is this token looking for?), a **key** (what does it offer?) and a
    **value** (what does it pass on?). This page computes everything below from those three and compares it with the
    recorded numbers.`,
  additive: `This is the older, additive attention (Bahdanau 2014). At each step the decoder compares its own
    state s with the encoder's state h of every source token. The score is not a dot product but the output of a small
    network with both as inputs. **Softmax** turns the scores into weights that sum to one, and the weighted sum of the
    states is the context vector, an input of the decoder.`,
  additiveFormula: "weights = softmax(vᵀ tanh(W s + U h)),  context = weights · h",
  multiplicative: `This is the older, multiplicative attention (Luong 2015). At each step the decoder compares its new state
    s with the encoder's state h of every source token: the score is a dot product, after h has been multiplied by a
    learned matrix. **Softmax** turns the scores into weights that sum to one, and the weighted sum of the states is the
    context vector, from which the token is predicted.`,
  multiplicativeFormula: "weights = softmax(sᵀ W h),  context = weights · h",
  notKept: `The queries, keys and values of this layer are not on the page, to keep it small; its weights are. Choose
    another layer above, or make the page again with this layer (\`--layers\`).`,
  product: `Multiply them number by number. Where both have the same sign the term is above zero, a match; where they
    differ it is below, a mismatch. Its size is the product of both sizes.`,
  divide: (size, root) => `The same for every token. Each score is divided by √dₖ = √${size} = ${root}: the spread of a sum
    grows with the number of terms, and the softmax of large scores would give all weight to one token and have
    vanishing gradients.`,
  multiply: (scale) => `The same for every token. Each score is multiplied by ${scale}, to keep the softmax from
    saturating.`,
  bias: `Then the **position bias** is added: a number that depends on the distance of the two tokens.`,
  causal: `The **mask** sets the scores of later tokens to −∞, before the softmax: their weight is exactly zero, and
    the others still sum to one.`,
  masked: `The **mask** sets the scores of hidden tokens to −∞: their weight is exactly zero.`,
  softmax: `**Softmax** raises e to each score and divides by the sum of them all. The weights are not negative and sum
    to one: a distribution over the keys. Press a row to see its dot product above.`,
  weighted: `Now the values. Each is multiplied by its weight, and they are added up. This weighted sum, z, is the
    head's output for this token. The z of all heads are concatenated and projected by one more matrix, Wᴼ.`,
  parts: "each value times its weight, the largest weights first",
  summedUp: "their sum, column by column",
  differ: (worst) => `This page's arithmetic and the recorded numbers differ by at most ${worst}.`,

  heads: `Every layer has several heads, and each may attend to something else: the previous token, a matching
    bracket, the subject of a verb, or only the first token, where many heads put weight that they do not need elsewhere
    (an attention sink). Each small picture is one head: rows are queries, columns keys, and a stronger colour is more
    weight. Press one to see it large.`,
  oneHead: `There is one head here. Rows are queries, columns keys, and a stronger colour is more weight.`,
  rows: "each row is one query and sums to one",
  onImage: "the weights of the chosen query; dark is little weight",
  onDrawing: `how much each patch attends to the chosen word; dark is little weight. Press another word of the caption
    to see it.`,
  lines: `from each query on the left to the keys on the right: the stronger the line, the more weight.
    Press a token on the left to see its lines.`,
  alignment: `target tokens are rows, source tokens columns. A diagonal means the same word order; a crossing means that the
    order changed.`,

  stream: `A layer does not replace a token's vector, it **adds** to it: x ← x + attention(x), then x ← x +
    feed-forward(x). This running sum is the **residual stream**. Attention moves information between
    tokens; the **feed-forward** network then works on each token alone: a linear layer to a larger width, a non-linear
    function, and a linear layer back. A **norm** before or after each part keeps the vectors' lengths stable.`,
  shares: `every part and token: the norm of what is added, divided by that of the stream after it. The strongest colour is
    that much or more`,
  sizes: `The bars show, for the chosen token, the Euclidean norm of what each part adds, beside that of the stream
    after it (in a post-norm model, after the norm). The cosine is between the stream before and after: 1 is the same
    direction.`,
  lensTitle: "Logit lens: the output after each layer",
  lens: `The **logit lens** applies the final norm and the output matrix to the stream after each layer, as if it were
    the last. The last layer is on top. Watch at which layer the answer appears, and what was there before.`,
  attribution: `Because the stream is a sum, the logit is one too. These are the direct contributions of the parts
    (what a part does through later layers counts for those).`,
  integrated: `There is no residual stream here. All embeddings are scaled from zero to their own values, and a token's
    part is its embedding times the mean of its gradient on the way; the parts sum to the logit.`,
  ranking: `Ablate one head (set its output to zero), run the model again, and see how far the answer's logit falls:
    above zero, the head supports the answer; below, it works against it. The gradient is a first-order estimate of the
    same.`,

  output: {
    next: `The dot product of the last vector with each token's row of the output matrix is that token's **logit**.
      Softmax turns the logits into **probabilities**. Then one token is chosen: the best (greedy search), or one
      sampled. The sliders change the distribution: **temperature** below 1 sharpens it, above 1 flattens it; **top-k**
      keeps the k best; **top-p** keeps the fewest best that together have probability p. What is left is normalised to
      one again.`,
    fill: `At the masked position each token of the vocabulary gets a logit, and softmax turns the logits into
      probabilities.`,
    classes: `One pooled vector represents the whole input. A last matrix gives each class a logit, softmax turns the
      logits into probabilities, and the best one is the answer.`,
    labels: `One pooled vector represents the whole input. A last matrix gives each label a logit, and the logistic function,
      which is the softmax of the logit and 0, turns each into a probability of its own. The labels above the model's
      threshold are the answer. Press a label to see its logit.`,
    number: `One pooled vector represents the whole input. Its dot product with one last vector, plus a bias, is the answer.`,
    tags: `Each token's last vector gives a logit for each tag, and softmax turns them into probabilities. Press a token
      to see its logits.`,
    span: `Each token gets two logits: does the answer start here, does it end here? The answer is the span with the
      largest sum of the two; the first token, which is not in the text, means “no answer”.`,
    objects: `Each query's last vector gives a box and a logit for each class. The logistic function turns a logit into a
      score; where “no object” is a class of its own, softmax does. The objects whose score reaches the model's threshold are
      the answer. Press one to see its logits.`,
    picture: `Each patch's last vector gives the velocity of its pixels: the direction from noise to picture. A small step
      along it is taken, and the model runs again, from noise at time 0 to the picture at time 1.`,
    vector: `This model turns the text into one vector, the **sentence embedding**; texts with similar meaning have
      embeddings with a high cosine similarity.`,
  },
  estimate: (kept) => `Only the ${kept} best logits are on this page; away from temperature 1 the probability of the
    others is an estimate that treats them as equal.`,

  generation: `The chosen token is appended to the text, and the model runs again on the longer text (autoregressive
    generation). Step with the buttons or the arrow keys.`,
  stepWeights: `Colour: the attention weights of the last layer at this step, the mean over its heads.`,
  end: "Made by Headway. This file is complete: it loads nothing and sends nothing.",
};
