// What the page says: for a student to read, for an expert to agree with. A teacher may change any of it.

const WORDS = {
  real: `Every number here is one that the model computed for this input.`,
  worked: `Every number here is worked out by the formula that the models use.`,
  hint: `Point at any picture, or tab to it and use the arrow keys, to read its numbers.`,
  follow: `Press a token, a head or a row to follow it.`,

  tokens: `A model reads no letters. A tokenizer cuts the text into pieces that it knows, the **tokens**, and each has
    a number, its **id**: its row in the model's vocabulary. From here on the model sees only these ids. \`␣\` is a
    space that is part of a token, \`⏎\` a line end; a dashed frame is a mark that is not in the text, such as one for
    its beginning or its end.`,
  ids: `This model has no tokenizer: it is given **ids** straight away, numbers that each stand for one token.`,
  press: "Press one to follow it.",
  special: "a mark, not a piece of the text",

  patches: `A model of this kind reads a picture as a text: it is cut into **patches**, and each patch is a token. The
    numbers of its pixels, multiplied by one matrix, are its vector.`,

  embedding: `Each id picks one row of the **embedding table**: a list of numbers that training has found for that
    token. Tokens that are used alike have rows alike. Orange is above zero, blue below, faint near zero.`,
  patchEmbedding: `The numbers of each patch's pixels, multiplied by one learned matrix, are its vector; the mark in front
    has a learned vector of its own. Orange is above zero, blue below, faint near zero.`,
  order: `Attention by itself, without a mask, knows no order: shuffle the tokens, and each would still find the same.`,
  positions: {
    sinusoidal: `So to every row a fixed pattern of sines and cosines is **added**. Each pair of columns is a wave:
      the first turn quickly from one position to the next, the last hardly at all, like the hands of a clock. No two
      positions have the same pattern, and a step of the same length is the same rotation wherever it starts.`,
    learned: `So to every row a second row is **added**, one for its position. These were learned like the embeddings:
      position 3 has the same row in every text.`,
    rotary: `This model adds nothing here. Instead every attention layer **turns** its queries and keys, two numbers
      at a time, by an angle that grows with the position (rotary positions).`,
    relative: `This model adds nothing here. Instead attention adds to each score a learned number that depends on
      **how far apart** the two tokens are.`,
    alibi: `This model adds nothing here. Instead attention takes from each score an amount that grows with the
      **distance** between the two tokens, at another rate in each head (ALiBi).`,
    none: `This model adds nothing for the position: what it knows of order comes from reading in order, or from a
      mask that lets a token see only what came before it.`,
  },
  summed: `Their sum, number by number, goes into the first layer.`,
  also: {
    segment: `To this a row for the **segment** is added, which says whether a token is of the first text or the second.
      The sum goes into the first layer.`,
    norm: `A **norm** then brings every token's vector to about the same size, and that goes into the first layer.`,
    "segment+norm": `To this a row for the **segment** is added, which says whether a token is of the first text or the
      second; then a **norm** brings every token's vector to about the same size. That goes into the first layer.`,
  },
  summedAndMore: `What goes into the first layer is this with whatever else the model does here: a segment's row, a
    scale, a norm.`,
  untouched: `So the embeddings go into the first layer as they are.`,
  pattern: `the same for every text, further than this one goes. Each row is a place, each column a wave`,
  waves: `some columns of it, from the first place to the last; the dots are the tokens of this text:`,
  likeness: `the cosine between each two rows, where 1 is the same direction. Neighbours that are alike mean that the
    model has learned what “near” is.`,
  clocks: `The first clocks are fast, the last slow. The dot product of two turned pairs depends only on the angle
    between the hands, and so only on how far apart the tokens are: move both along the text, and nothing changes.`,

  byhand: `Attention lets a token gather what it needs from other tokens. From each token's vector a head makes three
    short ones: a **query**, what am I looking for? a **key**, how do I describe myself? and a **value**, what do I
    pass on? Everything below is worked out by this page from those three, and compared with what was
    recorded.`,
  additive: `This is the older, additive attention (Bahdanau 2014). Before it writes a token, the decoder compares its
    own state s with the encoder's state h at every token that was read. A score is not a dot product here but the
    output of a small network that is shown the two. **Softmax** makes the scores weights, which sum to one, and the
    states, weighed by them and added up, are what the decoder reads: the context.`,
  additiveFormula: "weights = softmax(vᵀ tanh(W s + U h)),  context = weights · h",
  notKept: `The queries, keys and values of this layer were not kept, to keep the page small; its weights were. Choose
    another layer above, or make the page again with this layer kept (\`--layers\`).`,
  product: `Multiply them number by number. Where both have the same sign the term is above zero, a match; where they
    differ it is below, a mismatch. Its size says how much both care.`,
  divide: (size, root) => `The same for every token. Each score is divided by √dₖ = √${size} = ${root}: a sum of many
    terms grows with their number, and the softmax of large numbers would give everything to one token and leave
    nothing to learn from.`,
  multiply: (scale) => `The same for every token. Each score is multiplied by ${scale}, to keep the softmax from
    giving everything to one token.`,
  bias: `Then the **bias** is added: a number for how far apart the two tokens are.`,
  causal: `The **mask** sets the scores of later tokens to −∞, before the softmax: they get exactly no weight, and the
    rest still sum to one.`,
  masked: `The **mask** sets the scores of tokens that may not be seen to −∞: they get exactly no weight.`,
  softmax: `**Softmax** raises e to each score and divides by the sum of them all. No weight is below zero, and together
    they are exactly one: shares of this token's attention. Press a row to see its dot product above.`,
  weighted: `Now the values. Each is multiplied by its weight, and they are added up: the token receives mostly the
    values of the tokens that it looks at most. That sum, z, is what this head has found out for it. The z of all
    heads are put side by side and mixed by one more matrix, Wᴼ.`,
  parts: "each value times its weight, the largest weights first",
  summedUp: "their sum, column by column",
  differ: (worst) => `This page's arithmetic and the recorded numbers differ by at most ${worst}.`,

  heads: `Every layer has several heads, and each may look for something else: the word before, a matching bracket,
    the subject of a verb, or only the first token, where many heads rest when they have found nothing. Each small
    picture is one head: rows look at columns, and a stronger colour is more weight. Press one to see it large.`,
  oneHead: `There is one head here. Each row of the picture is a token that looks, each column one that it may look at,
    and a stronger colour is more weight.`,
  rows: "each row is a token that looks, and sums to one",
  onImage: "what the chosen token looks at; dark is little weight",
  lines: `from each token on the left to the tokens it looks at on the right: the stronger the line, the more weight.
    Press a token on the left to see its lines.`,
  alignment: `written tokens are rows, read ones columns. A diagonal means word for word; a crossing means that the
    order changed.`,

  stream: `A layer does not replace a token's vector, it **adds** to it: x ← x + attention(x), then x ← x +
    feed-forward(x). This running sum is the **residual stream**. Attention brings in what other tokens know; the
    **feed-forward** network then works on each token alone: it widens the vector, bends it with a non-linear function
    and narrows it again. A **norm** keeps the sizes in hand, before each part or after it.`,
  shares: `every part and token: how long what is added is, beside the stream after it. The strongest colour is that much
    or more`,
  sizes: `The bars show, for the chosen token, the length (the Euclidean norm) of what each part adds, beside that of
    the stream after it (after the norm too, in a model whose norm comes last). The cosine says how far the part turned the token's vector: 1 is not at all.`,
  lensTitle: "What it would say if it stopped here",
  lens: `The **logit lens**: read the stream after each layer as if it were the last, with the model's own last norm and
    output matrix. The last layer is on top. Watch where the answer appears, and what stood there before.`,
  attribution: `Because the stream is a sum, the score is one too. This is the share of each part (direct logit
    attribution; what a part does through later layers counts for those).`,
  ranking: `Silence one head, run the model again, and see how far the answer's score falls: above zero, the head
    spoke for the answer; below, against it. The gradient is a quick estimate of the same.`,

  output: {
    next: `The last vector is compared with every token that the model can say: one dot product each, a **score**
      (logit). Softmax makes the scores **probabilities**. Then one token is chosen: the best (greedy), or one drawn
      by lot. The sliders change the lot: **temperature** below 1 sharpens it, above 1 flattens it; **top-k** keeps
      the k best; **top-p** keeps the fewest best that together have probability p. What is left is made to sum to one
      again.`,
    fill: `At the masked place the vector is compared with every token of the vocabulary: one score each, and softmax
      makes them probabilities.`,
    classes: `One vector stands for the whole input. A last matrix gives each class a score, softmax makes the scores
      probabilities, and the best one is the answer.`,
    tags: `Each token's last vector gets a score for each tag, and softmax makes them probabilities. Press a token to
      see its scores.`,
    span: `Each token gets two scores: does the answer begin here, does it end here? The answer is the stretch whose
      two scores have the largest sum; the first token, which is not in the text, stands for “no answer”.`,
    vector: `This model chooses nothing. It turns the text into one vector; texts that mean the same have vectors that
      point the same way.`,
  },
  estimate: (kept) => `Only the ${kept} best scores are on this page; away from temperature 1 the share of the others
    is an estimate that takes them as alike.`,

  generation: `The chosen token is put at the end of the text, and everything above happens again for the longer text.
    That is all that writing is. Step with the buttons or the arrow keys.`,
  looked: `Colour: how much the last layer looked at each token for this step, the mean over its heads.`,
  end: "Made by Headway. This file is complete: it loads nothing and sends nothing.",
};
