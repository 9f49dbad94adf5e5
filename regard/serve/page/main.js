/* The page: choose a model, ask, watch the answer, ask again. */

import { hasKey, listModels, run, setKey } from "/page/api.js";
import { describeAnswer, plainAnswer, renderAnswer, renderStream } from "/page/answers.js";
import { composer } from "/page/composer.js";
import { disclosure } from "/page/disclosure.js";
import { box, element, repaintAll } from "/page/library.js";
import { openLook, prepareLook } from "/page/look.js";
import { codeOf, copyButton } from "/page/snippets.js";

const MAX_HISTORY = 50;
const RECENT = 5; // entries of the history that are shown at first
const place = (id) => document.getElementById(id);
const state = { models: [], form: null, stop: null, history: [], shown: null, unaligned: new Set() };

const currentModel = () => state.models.find(({ id }) => id === place("model").value);

/* ------------------------------------------------------------------------------------------ models and key */

async function loadModels() {
  report("");
  try {
    state.models = await listModels();
  } catch (error) {
    return askForKey(error) || report(error.message);
  }
  place("key").hidden = true;
  place("work").hidden = false;
  place("model").replaceChildren(...modelOptions(state.models));
  const linked = decodeURIComponent(location.hash.slice(1));
  place("model").value = state.models.some(({ id }) => id === linked) ? linked : state.models[0].id;
  showModel();
}

/** The models, grouped by their tasks if there are several. */
function modelOptions(models) {
  const option = ({ id }) => element("option", { value: id }, id);
  const tasks = [...new Set(models.map(({ task }) => task))];
  if (tasks.length === 1) return models.map(option);
  const members = (task) => models.filter((model) => model.task === task);
  return tasks.map((task) => element("optgroup", { label: task }, members(task).map(option)));
}

/** Show the field of the key if a request failed for want of one. */
function askForKey(error) {
  if (error.status !== 401) return false;
  place("key").hidden = false;
  if (hasKey()) place("key-note").textContent = error.message;
  place("key-field").focus();
  return true;
}

function showModel() {
  const model = currentModel();
  history.replaceState(null, "", `#${encodeURIComponent(model.id)}`);
  place("about-model").textContent = `${model.task}: ${model.description}`;
  stop();
  state.form = composer(place("composer"), model, { onRun: ask, onStop: stop, report });
  state.shown = null;
  place("answer").replaceChildren();
  showHistory();
  report("");
}

function report(message) {
  place("notice").textContent = message;
  place("notice").hidden = !message;
}

/* ------------------------------------------------------------------------------------------ one question */

function stop() {
  state.stop?.abort();
}

async function ask() {
  if (state.stop) return;
  const model = currentModel();
  const query = state.form.query();
  if (!query) return;
  report("");
  state.stop = new AbortController();
  const form = state.form;
  form.setRunning(true);
  place("answer").setAttribute("aria-busy", "true");
  const start = performance.now();
  const stream = renderStream(model, query);
  try {
    show(model.streams ? stream.places : [box("waiting", model.loaded ? "Running …" : "Loading the model …")]);
    const answer = await runAligned(model, query, (token) => stream.append(token.text));
    model.loaded = true;
    remember({ model, query, answer, seconds: (performance.now() - start) / 1000 });
  } catch (error) {
    stream.caret.remove();
    if (form !== state.form) return; // another model was chosen
    if (error.name === "AbortError") show([...(model.streams ? stream.places : []), box("meta", "Stopped")]);
    else fail(error);
  } finally {
    state.stop = null;
    form.setRunning(false);
    place("answer").setAttribute("aria-busy", "false");
  }
}

/** Ask for the alignment as well, if the model may have one. */
async function runAligned(model, query, onToken) {
  const listeners = { signal: state.stop.signal, onToken };
  if (!model.aligns || state.unaligned.has(model.id)) return run(model.id, query, listeners);
  query.fields.alignment = true;
  try {
    return await run(model.id, query, listeners);
  } catch (error) {
    if (error.param !== "alignment") throw error;
    state.unaligned.add(model.id);
    delete query.fields.alignment;
    return run(model.id, query, listeners);
  }
}

function fail(error) {
  place("answer").replaceChildren();
  if (!askForKey(error)) report(error.message);
}

/* ------------------------------------------------------------------------------------------ answers */

function show(places) {
  place("answer").replaceChildren(...places);
}

function remember(entry) {
  state.history = [entry, ...state.history].slice(0, MAX_HISTORY);
  showEntry(entry);
}

function showEntry(entry) {
  const { model, query, answer, seconds } = entry;
  state.shown = entry;
  const content = renderAnswer(query, answer);
  const copy = copyButton("Copy", () => plainAnswer(answer));
  const meta = element("span", { class: "meta" }, describeAnswer(model, answer, seconds));
  const code = codeOf(model.id, query);
  const actions = box("actions", model.looks && lookButton(entry), copy, disclosure("Code", code), meta);
  place("answer").replaceChildren(...content, actions, code);
  showHistory();
}

function lookButton({ model, query, answer }) {
  const button = element("button", { type: "button", "data-action": "look" }, "Look inside");
  button.addEventListener("click", async () => {
    button.disabled = true;
    report("");
    try {
      await openLook(model, query, answer);
    } catch (error) {
      if (!askForKey(error)) report(error.message);
    }
    button.disabled = false;
  });
  return button;
}

function showHistory() {
  const entries = state.history.filter((entry) => entry !== state.shown);
  place("history").hidden = entries.length === 0;
  place("history").querySelector("ol").replaceChildren(...entries.slice(0, RECENT).map(historyItem));
  const rest = element("ol", {}, entries.slice(RECENT).map(historyItem));
  const more = entries.length > RECENT ? [disclosure("More", rest), rest] : [];
  place("more-history").replaceChildren(...more);
}

function historyItem(entry) {
  const { model, query, answer } = entry;
  const input = query.file?.name ?? Object.values(query.values)[0] ?? query.fields.input;
  const button = element(
    "button",
    { type: "button" },
    element("span", { class: "past-model" }, model.id),
    element("span", { class: "past-input" }, String(input)),
    element("span", { class: "past-output" }, plainAnswer(answer).slice(0, 200) || "no answer"),
  );
  button.addEventListener("click", () => {
    if (currentModel() !== model) {
      place("model").value = model.id;
      showModel();
    }
    state.form.setInput(query.values, query.file);
    showEntry(entry);
    place("answer").scrollIntoView({ block: "nearest" });
  });
  return element("li", {}, button);
}

/* ------------------------------------------------------------------------------------------ files, keys, start */

function takeFiles(event, files) {
  const take = state.form?.takeFile;
  if (!take || !files?.length) return;
  event.preventDefault();
  take(files[0]);
}

function start() {
  prepareLook();
  place("model").addEventListener("change", showModel);
  place("key").addEventListener("submit", (event) => {
    event.preventDefault();
    setKey(place("key-field").value.trim());
    place("key-field").value = "";
    loadModels();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      ask();
    }
    if (event.key === "Escape" && state.stop) stop();
  });
  document.addEventListener("dragover", (event) => {
    event.preventDefault();
    document.body.classList.add("dragging");
  });
  const endDrag = () => document.body.classList.remove("dragging");
  document.addEventListener("dragleave", endDrag);
  document.addEventListener("drop", endDrag);
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    takeFiles(event, event.dataTransfer.files);
  });
  document.addEventListener("paste", (event) => takeFiles(event, event.clipboardData.files));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => requestAnimationFrame(repaintAll));
  loadModels();
}

start();
