// The npm package `openai` against a server: node node.cjs URL, with NODE_PATH naming the folder of the packages.
const assert = require("node:assert");
const OpenAI = require("openai").default;

const [url] = process.argv.slice(2);
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });
const given = { model: "writer", messages: [{ role: "user", content: "hello" }], max_tokens: 5, temperature: 0 };

async function main() {
  const whole = await client.chat.completions.create(given);
  const text = whole.choices[0].message.content;
  assert(text && whole.usage.completion_tokens === 5);

  let streamed = "";
  for await (const part of await client.chat.completions.create({ ...given, stream: true })) {
    streamed += part.choices[0]?.delta?.content ?? "";
  }
  assert.strictEqual(streamed, text);

  const form = { type: "json_schema", json_schema: { name: "answer", strict: true, schema: {
    type: "object", properties: { yes: { type: "boolean" } }, required: ["yes"], additionalProperties: false } } };
  const parsed = await client.chat.completions.parse({ ...given, max_tokens: 100, response_format: form });
  assert.strictEqual(typeof JSON.parse(parsed.choices[0].message.content).yes, "boolean");

  const response = await client.responses.create({ model: "writer", input: "hello", max_output_tokens: 5, temperature: 0 });
  let parts = "";
  const events = await client.responses.create(
    { model: "writer", input: "hello", max_output_tokens: 5, temperature: 0, stream: true });
  for await (const event of events) if (event.type === "response.output_text.delta") parts += event.delta;
  assert(response.output_text && parts === response.output_text);

  const vectors = await client.embeddings.create({ model: "vectors", input: ["hello", "May"] });
  const floats = await client.embeddings.create({ model: "vectors", input: ["hello", "May"], encoding_format: "float" });
  assert(vectors.data.length === 2 && vectors.data[0].embedding.length === 32);
  vectors.data[0].embedding.forEach((value, at) => assert(Math.abs(value - floats.data[0].embedding[at]) < 1e-6));

  const ids = [];
  for await (const model of client.models.list()) ids.push(model.id);
  assert(ids.includes("writer"));
  await assert.rejects(client.chat.completions.create({ ...given, temperature: 9 }),
    (error) => error instanceof OpenAI.BadRequestError && error.param === "temperature");
  await assert.rejects(client.chat.completions.create({ ...given, model: "none" }), OpenAI.NotFoundError);

  const stopped = await client.chat.completions.create({ ...given, max_tokens: 90, stream: true });
  for await (const part of stopped) if (part.choices[0]?.delta?.content) break; // the package closes the connection
}

main().catch((error) => { console.error(error); process.exit(1); });
