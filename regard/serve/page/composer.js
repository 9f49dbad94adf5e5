/* The form of a query: the fields that the input of a model needs, a file by drop, click or paste, and options. */

import { disclosure } from "/page/disclosure.js";
import { box, element } from "/page/library.js";

/* How many answers are shown of tasks that rank; a server answers with the best one by default. */
const SHOWN = { classify: 8, match: 8, embed: 8, decide: 8, answer: 3 };
const IS_APPLE = /Mac|iPhone|iPad/.test(navigator.platform);
let labels = 0;

/** A text area that grows with its text. */
function textArea(field, rows) {
  const id = `field-${labels++}`;
  const area = element("textarea", { id, rows, name: field.name, spellcheck: "false", "data-field": field.name });
  const grow = () => {
    area.style.height = "auto";
    area.style.height = `${Math.min(area.scrollHeight + 2, 0.5 * innerHeight)}px`;
  };
  area.addEventListener("input", grow);
  const hint = field.kind === "texts" && element("span", { class: "hint" }, "one per line");
  const label = element("label", { for: id }, field.label, hint);
  const setText = (text) => {
    area.value = text;
    requestAnimationFrame(grow);
  };
  return { place: box("field", label, area), area, setText };
}

function textField(field, isOnly) {
  const rows = { question: 1, document: 3 }[field.name] ?? (isOnly ? 3 : 2);
  const { place, area, setText } = textArea(field, rows);
  return { ...field, place, focus: () => area.focus(), value: () => area.value, set: setText };
}

function textsField(field) {
  const { place, area, setText } = textArea(field, 3);
  const value = () => area.value.split("\n").map((line) => line.trim()).filter(Boolean);
  return { ...field, place, focus: () => area.focus(), value, set: (texts) => setText([texts].flat().join("\n")) };
}

/** A file as the user sees it: a picture, a recording, or its name. */
function preview(file) {
  const kilobytes = Math.max(1, Math.round(file.size / 1e3));
  const size = kilobytes < 1e3 ? `${kilobytes} kB` : `${(kilobytes / 1e3).toFixed(1)} MB`;
  const source = URL.createObjectURL(file);
  const name = element("span", { class: "file-name" }, file.name, element("small", {}, size));
  if (file.type.startsWith("image/")) {
    const image = element("img", { src: source, alt: file.name, onload: () => URL.revokeObjectURL(source) });
    return box("preview", image, name);
  }
  if (file.type.startsWith("audio/")) return box("preview", name, element("audio", { src: source, controls: true }));
  return box("preview", name);
}

function fileField(field, report) {
  const id = `field-${labels++}`;
  const accept = field.formats.join(",");
  const input = element("input", { type: "file", id, class: "visually-hidden", accept, "data-field": "file" });
  const shown = box("file-shown");
  const formats = field.formats.join(", ");
  const hint = element("small", {}, `${formats}; you can also paste it`);
  const invitation = [element("b", {}, "Drop a file here"), " or choose one", hint];
  const zone = element("label", { class: "drop", for: id }, shown);
  const inline = field.inline && textArea({ name: "inline", label: "or type it as JSON" }, 1);
  let file = null;

  function set(next) {
    const suffix = next && next.name.slice(next.name.lastIndexOf(".")).toLowerCase();
    if (next && !field.formats.includes(suffix)) return report(`This model reads ${formats}, not “${next.name}”.`);
    file = next ?? null;
    report("");
    shown.replaceChildren(...(file ? [preview(file), element("small", {}, "Choose another one")] : invitation));
    zone.classList.toggle("filled", file !== null);
  }
  input.addEventListener("change", () => set(input.files[0]));
  set(null);
  const label = element("span", { class: "label-text" }, field.label);
  const place = box("field", label, input, zone, inline && inline.place);
  const text = () => (inline ? inline.area.value.trim() : "");
  return { ...field, place, focus: () => input.focus(), file: () => file, text, set };
}

/** The control of an option. Empty means the default of the server. */
function optionControl(task, { name, type, default: general, help }) {
  const standard = (name === "num_return" && SHOWN[task]) || general;
  const id = `option-${name}`;
  const label = element("label", { for: id, title: help }, name.replaceAll("_", " "));
  const common = { id, name, "data-option": name, title: help, "aria-description": help };
  if (type === "boolean") {
    const tick = element("input", { ...common, type: "checkbox", checked: standard === true });
    return { name, place: box("option", label, tick), value: () => (tick.checked === standard ? null : tick.checked) };
  }
  const step = type === "integer" ? "1" : "any";
  const placeholder = standard === null || standard === undefined ? "automatic" : String(standard) || "none";
  const kind = type === "string" ? { type: "text" } : { type: "number", step };
  const field = element("input", { ...common, ...kind, placeholder, autocomplete: "off" });
  const value = () => (field.value === "" ? null : type === "string" ? field.value : Number(field.value));
  return { name, place: box("option", label, field), value };
}

/** The form for a model. `query()` is what it asks, or null if a field is empty; `setInput` fills it. */
export function composer(form, model, { onRun, onStop, report }) {
  const texts = model.fields.filter((field) => field.kind === "text");
  const makeField = (field) => {
    if (field.kind === "file") return fileField(field, report);
    return field.kind === "texts" ? textsField(field) : textField(field, texts.length === 1);
  };
  const fields = model.fields.map(makeField);
  const upload = fields.find((field) => field.kind === "file");
  const options = model.options.map((option) => optionControl(model.task, option));
  const hint = element("kbd", {}, IS_APPLE ? "⌘ ↵" : "Ctrl ↵");
  const button = (action, kind, ...content) =>
    element("button", { type: action === "run" ? "submit" : "button", class: kind, "data-action": action }, content);
  const runButton = button("run", "primary", "Run", hint);
  const stopButton = button("stop", "primary stop", "Stop");
  stopButton.hidden = true;
  stopButton.addEventListener("click", onStop);
  const hasExample = Object.keys(model.example ?? {}).length > 0;
  const example = hasExample && button("example", "quiet", "Try an example");
  const panel = box("option-grid", options.map((option) => option.place));
  const optionsButton = options.length > 0 && disclosure("Options", panel);
  form.replaceChildren(
    box("fields", fields.map((field) => field.place)),
    box("toolbar", example, optionsButton, element("span", { class: "gap" }), stopButton, runButton),
    panel,
  );
  form.onsubmit = (event) => {
    event.preventDefault();
    onRun();
  };

  function setInput(values, file) {
    for (const field of fields) {
      if (field.kind === "file") field.set(file);
      else field.set(values[field.name] ?? "");
    }
  }
  if (example) {
    example.addEventListener("click", () => {
      for (const field of fields) if (model.example[field.name]) field.set(model.example[field.name]);
      (upload && !upload.file() ? upload : fields.at(-1)).focus();
    });
  }

  function query() {
    const file = upload?.file() ?? null;
    const values = {};
    for (const field of fields.filter((candidate) => candidate.kind !== "file")) {
      const value = field.value();
      if (value.length === 0 && field.required) return missing(field);
      if (value.length) values[field.name] = value;
    }
    const inline = upload && !file ? upload.text() : "";
    if (upload && !file && !inline) return missing(upload);
    const names = Object.keys(values);
    const input = inline || (names.length === 1 && names[0] === "text" ? values.text : values);
    const chosen = Object.fromEntries(options.map((o) => [o.name, o.value()]).filter(([, value]) => value !== null));
    if (SHOWN[model.task] && !("num_return" in chosen)) chosen.num_return = SHOWN[model.task];
    const request = {};
    if (typeof input === "string" || Object.keys(input).length) request.input = input;
    if (Object.keys(chosen).length) request.options = chosen;
    if (model.streams) request.stream = true;
    return { fields: request, file, values };
  }
  function missing(field) {
    report(field.kind === "file" ? "Choose a file first." : `${field.label} is empty.`);
    field.focus();
    return null;
  }

  function setRunning(running) {
    runButton.hidden = running;
    stopButton.hidden = !running;
    form.classList.toggle("running", running);
  }
  return { query, setInput, setRunning, focus: () => fields[0].focus(), takeFile: upload ? upload.set : null };
}
