// The order of the story. A step whose part of the story is missing is left out.

(story.example ?? []).forEach((section, i) => step(`example-${i}`, section.title, "", buildExample(section), "✎"));
if (pictured()) step("tokens", "A picture becomes tokens", "picture → patches", buildTokens);
else step("tokens", "Text becomes tokens", "text → tokens → ids", buildTokens);
if (story.embedding.length) step("embedding", "Tokens become vectors", "embedding + position", buildEmbedding);
if (story.attention.length) {
  const dots = story.attention.some((attention) => attention.kind !== "additive");
  step("byhand", "One token looks around", `${dots ? "query · key" : "score"} → softmax → sum of values`, buildByHand);
  if (manyHeads()) step("heads", "All heads at once", "each looks for something else", buildHeads);
  else step("heads", "Who looks at whom", "all weights as one picture", buildHeads);
}
if (story.stream.length || story.lens || story.heads || story.attribution)
  step("stream", "Every layer adds a little", "residual, norm, feed-forward", buildStream);
if (story.output?.vector) step("output", "One vector for the text", "the answer is a direction", buildOutput);
else if (story.output) step("output", "From scores to a choice", "scores → probabilities → answer", buildOutput);
if (story.generation?.steps.length) step("generation", "What happens next", "one token at a time", buildGeneration);

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
