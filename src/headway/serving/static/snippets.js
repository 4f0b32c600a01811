// A request as a command line and as Python, with nothing but the standard library.

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

export function curl(call, { key = false } = {}) {
  const parts = [`curl -s ${quoted(location.origin + call.path)}`];
  if (key) parts.push('-H "Authorization: Bearer $HEADWAY_KEY"');
  if (call.file) parts.push(`--data-binary @${call.file}`);
  else parts.push(`-H 'Content-Type: application/json'`, `-d ${quoted(JSON.stringify(call.json))}`);
  if (call.saves) parts.push(`-o ${call.saves}`);
  return parts.join(" \\\n  ");
}

export function python(call, { key = false } = {}) {
  const headers = [...(call.file ? [] : ['"Content-Type": "application/json"']), ...(key ? ['"Authorization": "Bearer " + os.environ["HEADWAY_KEY"]'] : [])];
  const lines = [`import json`, ...(key ? [`import os`] : []), `import urllib.request`, ``];
  if (call.file) lines.push(`data = open(${literal(call.file)}, "rb").read()`);
  else lines.push(`data = json.dumps(${literal(call.json)}).encode()`);
  lines.push(`request = urllib.request.Request(${literal(location.origin + call.path)}, data, {${headers.join(", ")}})`);
  lines.push(`with urllib.request.urlopen(request) as response:`);
  lines.push(call.saves ? `    open(${literal(call.saves)}, "wb").write(response.read())` : `    print(json.load(response))`);
  return lines.join("\n") + "\n";
}

/** A JSON value as Python writes it. */
export function literal(value) {
  if (value === null || value === undefined) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value)) return `[${value.map(literal).join(", ")}]`;
  if (typeof value === "object") {
    return `{${Object.entries(value).map(([name, each]) => `${literal(name)}: ${literal(each)}`).join(", ")}}`;
  }
  return JSON.stringify(value);
}
