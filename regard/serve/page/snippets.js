/* The curl and the Python of a query. */

import { formParts, hasKey } from "/page/api.js";
import { box, element } from "/page/library.js";

const url = (model) => `${location.origin}/v1/run/${encodeURIComponent(model)}`;
const shellQuote = (text) => `'${text.replaceAll("'", "'\\''")}'`;

export function curl(model, { fields, file }) {
  const lines = [`curl ${fields.stream ? "-N " : ""}${url(model)}`];
  if (hasKey()) lines.push('-H "Authorization: Bearer $REGARD_API_KEY"');
  if (file) {
    lines.push(`-F ${shellQuote(`file=@${file.name}`)}`);
    lines.push(...formParts(fields).map(([name, value]) => `--form-string ${shellQuote(`${name}=${value}`)}`));
  } else {
    lines.push("-H 'Content-Type: application/json'", `-d ${shellQuote(JSON.stringify(fields))}`);
  }
  return lines.join(" \\\n  ");
}

/** A JSON value as Python. */
function literal(value, indent = "") {
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value)) return `[${value.map((item) => literal(item, indent)).join(", ")}]`;
  if (typeof value !== "object") return JSON.stringify(value);
  const inner = `${indent}    `;
  const entry = ([name, item]) => `${inner}${JSON.stringify(name)}: ${literal(item, inner)},\n`;
  const items = Object.entries(value).map(entry);
  return `{\n${items.join("")}${indent}}`;
}

export function python(model, { fields: { stream, ...fields }, file }) {
  const lines = [hasKey() && "import os\n", "import requests\n\n"].filter(Boolean);
  const args = [];
  if (file) {
    const parts = formParts(fields);
    lines.push(`file = open(${JSON.stringify(file.name)}, "rb")\n`);
    args.push('files={"file": file}');
    if (parts.length) {
      const pairs = parts.map(([name, value]) => `    (${JSON.stringify(name)}, ${JSON.stringify(value)}),\n`);
      lines.push(`fields = [\n${pairs.join("")}]\n`);
      args.push("data=fields");
    }
  } else {
    lines.push(`query = ${literal(fields)}\n`);
    args.push("json=query");
  }
  if (hasKey()) args.push('headers={"Authorization": f"Bearer {os.environ[\'REGARD_API_KEY\']}"}');
  lines.push(`answer = requests.post(${JSON.stringify(url(model))}, ${args.join(", ")})\n`);
  lines.push("answer.raise_for_status()\n", "print(answer.json())");
  return lines.join("");
}

/** Copy a text. Without https a browser has no clipboard but that of a selection. */
async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = element("textarea", { class: "visually-hidden" });
  area.value = text;
  document.body.append(area);
  area.select();
  const isCopied = document.execCommand("copy");
  area.remove();
  if (!isCopied) throw new Error("refused");
}

/** A button that copies a text, and says so. */
export function copyButton(label, text) {
  const button = element("button", { type: "button", class: "quiet", "data-action": "copy" }, label);
  button.addEventListener("click", async () => {
    try {
      await copy(text());
      button.textContent = "Copied";
    } catch {
      button.textContent = "The browser refuses to copy";
    }
    setTimeout(() => (button.textContent = label), 1500);
  });
  return button;
}

/** The code of a query. */
export function codeOf(model, query) {
  const block = (name, text) =>
    element(
      "figure",
      { class: "code" },
      element("figcaption", {}, name, copyButton("Copy", () => text)),
      element("pre", { tabindex: 0, "aria-label": name, "data-code": name }, element("code", {}, text)),
    );
  return box("codes", block("curl", curl(model, query)), block("Python", python(model, query)));
}
