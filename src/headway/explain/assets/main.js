// The steps in order. A step without data in the story is left out.

document.body.classList.toggle("long", Object.values(story.sequences).some((each) => each.tokens.length > MANY_TOKENS));

(story.example ?? []).forEach((section, i) => step(`example-${i}`, section.title, "", buildExample(section), "✎"));
if (sounding()) step("tokens", "Sound and text become tokens", "spectrogram → vectors, text → ids", buildTokens);
else if (story.output?.kind === "objects") step("tokens", "A picture becomes vectors", "picture → vectors", buildTokens);
else if (pictured() && story.sequences.source)
  step("tokens", "Caption and picture become tokens", "words and patches", buildTokens);
else if (pictured()) step("tokens", "An image becomes tokens", "image → patches", buildTokens);
else step("tokens", "Text becomes tokens", "text → tokens → ids", buildTokens);
if (story.embedding.length) step("embedding", "Tokens become vectors", "embedding + position", buildEmbedding);
if (story.attention.length) {
  const dots = story.attention.some((attention) => !["additive", "multiplicative"].includes(attention.kind));
  const byHand = () =>
    step("byhand", "Attention for one token", `${dots ? "query · key" : "score"} → softmax → sum of values`, buildByHand);
  const looked = story.output?.kind === "objects"; // where each object attends to in the picture comes first
  if (!looked) byHand();
  if (manyHeads()) step("heads", "All attention heads", "one pattern each", buildHeads);
  else step("heads", "The attention weights", "queries × keys", buildHeads);
  if (looked) byHand();
}
if (story.attribution?.method === "integrated")
  step("stream", "The tokens behind the answer", "what each token adds", buildStream);
else if (story.stream.length || story.lens || story.heads || story.attribution)
  step("stream", "The residual stream", "what each layer adds", buildStream);
if (story.output?.kind === "picture") step("output", "The picture", "velocity → steps → picture", buildOutput);
else if (story.output?.vector) step("output", "The sentence embedding", "one vector for the text", buildOutput);
else if (story.output) step("output", "From logits to the answer", "logits → probabilities → answer", buildOutput);
if (story.generation?.steps.length) step("generation", "Generation", "one token at a time", buildGeneration);

buildTop(document.getElementById("top"));
buildPicks(document.getElementById("picks"));
firstChoice();
watchSteps();
later(drawTheRest);
document.getElementById("end").append(el("p", { text: WORDS.end }));

let width = window.innerWidth;
let waiting = 0;
window.addEventListener("resize", () => {
  if (window.innerWidth === width) return;
  width = window.innerWidth;
  clearTimeout(waiting);
  waiting = setTimeout(drawAgain, 150);
});
