// Requests to this server. An error carries the server's message and the field that it names.

export class ApiError extends Error {
  constructor(message, { status = 0, param = null, code = null } = {}) {
    super(message);
    Object.assign(this, { status, param, code });
  }
}

async function failure(response) {
  try {
    const { error } = await response.json();
    return new ApiError(error.message, { status: response.status, param: error.param, code: error.code });
  } catch {
    return new ApiError(`the server answered ${response.status}`, { status: response.status });
  }
}

/** The response; throws ApiError. `json` or `body` is what is sent. */
export async function send(method, path, { json, body, signal } = {}) {
  const headers = json === undefined ? {} : { "Content-Type": "application/json" };
  let response;
  try {
    response = await fetch(path, { method, headers, body: json === undefined ? body : JSON.stringify(json), signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("the server cannot be reached; is it still running?");
  }
  if (!response.ok) throw await failure(response);
  return response;
}

export const getJson = async (path, options) => (await send("GET", path, options)).json();
export const postJson = async (path, json, options) => (await send("POST", path, { json, ...options })).json();
export const segment = (name) => name.split("/").map(encodeURIComponent).join("/");

/** The events of a streamed answer, until [DONE]. */
export async function* stream(path, json, { signal } = {}) {
  const response = await send("POST", path, { json, signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    held += value;
    const parts = held.split("\n\n");
    held = parts.pop();
    for (const part of parts) {
      const data = part.replace(/^data: /, "");
      if (data === "[DONE]") return;
      const event = JSON.parse(data);
      if (event.error) throw new ApiError(event.error.message, { param: event.error.param });
      yield event;
    }
  }
}

/** The address of the page that explains an answer. */
export const explainOf = (response) => response.headers.get("X-Explain");
