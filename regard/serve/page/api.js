/* Requests to the server: JSON or a form, plain or streamed. Keeps the API key of this tab. */

const KEY = "regard-api-key";

export class ApiFailure extends Error {
  constructor(status, { message, param, code } = {}) {
    super(message ?? `The server answered with status ${status}.`);
    Object.assign(this, { status, param, code });
  }
}

export function setKey(key) {
  sessionStorage.setItem(KEY, key);
}

export function hasKey() {
  return sessionStorage.getItem(KEY) !== null;
}

async function send(path, options = {}) {
  const headers = { ...options.headers };
  if (hasKey()) headers.Authorization = `Bearer ${sessionStorage.getItem(KEY)}`;
  let response;
  try {
    response = await fetch(path, { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiFailure(0, { message: "The server does not answer. Is it still running?" });
  }
  if (response.ok) return response;
  const body = await response.json().catch(() => ({}));
  throw new ApiFailure(response.status, typeof body.error === "string" ? { message: body.error } : body.error);
}

export async function listModels() {
  const { data } = await (await send("/v1/models")).json();
  return data;
}

/** The request of `fetch` for a query {fields, file}: a form if there is a file, else JSON. */
function body({ fields, file }) {
  if (!file) return { headers: { "Content-Type": "application/json" }, body: JSON.stringify(fields) };
  const form = new FormData();
  form.append("file", file, file.name);
  for (const [name, value] of formParts(fields)) form.append(name, value);
  return { body: form };
}

/** The fields of a query as parts of a form. */
export function formParts({ input, options, ...flags }) {
  const inputs = typeof input === "string" ? [["input", input]] : Object.entries(input ?? {});
  const parts = inputs.flatMap(([name, value]) => [value].flat().map((text) => [name, text]));
  if (Object.keys(options ?? {}).length) parts.push(["options", JSON.stringify(options)]);
  return [...parts, ...Object.entries(flags).map(([name, value]) => [name, String(value)])];
}

const address = (verb, model) => `/v1/${verb}/${encodeURIComponent(model)}`;

/** Run a query; `onToken` is called with every token of a stream. Returns the answer. */
export async function run(model, query, { signal, onToken }) {
  const response = await send(address("run", model), { method: "POST", signal, ...body(query) });
  if (!query.fields.stream) return response.json();
  for await (const event of serverEvents(response.body)) {
    if (event === "[DONE]") break;
    const { done, error, ...token } = JSON.parse(event);
    if (error) throw new ApiFailure(response.status, error);
    if (done) return done;
    onToken(token);
  }
  throw new ApiFailure(0, { message: "The stream ended before the answer was complete." });
}

/** The data of server-sent events. */
async function* serverEvents(stream) {
  let buffer = "";
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const events = (buffer + value).split("\n\n");
    buffer = events.pop();
    for (const event of events) {
      const lines = event.split("\n").filter((line) => line.startsWith("data: "));
      if (lines.length) yield lines.map((line) => line.slice(6)).join("\n");
    }
  }
}

/** The address of the look page of a query. */
export async function look(model, { fields, file }) {
  const query = { fields: { ...fields, link: true }, file };
  return (await (await send(address("look", model), { method: "POST", ...body(query) })).json()).url;
}
