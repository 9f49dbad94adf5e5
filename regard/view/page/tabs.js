/* The page itself: its tabs, light and dark, and the beginning. */

const KINDS = { attention, steps, stream, positions, beam, picture, similarity, training, heads };

const tabs = data.tabs.map((tab, i) => {
  const kind = { type: "button", role: "tab", id: `tab-${i}`, "aria-controls": `panel-${i}`, "data-kind": tab.kind };
  return element("button", { ...kind, onclick: () => openTab(i) }, tab.title);
});
const panels = data.tabs.map((tab, i) => {
  const kind = { role: "tabpanel", id: `panel-${i}`, "aria-labelledby": `tab-${i}`, "data-kind": tab.kind };
  const says = tab.says && element("p", { class: "lead" }, tab.says);
  return element("section", { ...kind, tabindex: 0, hidden: true }, says);
});

/** A tab is built when it is opened first. What that gives back is done each time that it is opened. */
async function openTab(at) {
  tabs.forEach((tab, i) => {
    tab.setAttribute("aria-selected", i === at);
    tab.setAttribute("tabindex", i === at ? 0 : -1);
    panels[i].hidden = i !== at;
  });
  tabs[at].scrollIntoView({ block: "nearest", inline: "nearest" });
  const [tab, panel] = [data.tabs[at], panels[at]];
  try {
    tab.built ??= (KINDS[tab.kind] ?? unknown)(tab, panel);
    (await tab.built)?.();
    panel.dataset.ready = "true";
  } catch (error) {
    panel.append(element("p", { class: "found", role: "alert" }, `This could not be drawn: ${error.message}`));
    throw error;
  }
}

async function unknown(tab, place) {
  place.append(note(`This page knows no tab of the kind ${quoted(tab.kind)}.`));
}

function moveAmongTabs(event) {
  const at = tabs.indexOf(document.activeElement);
  const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: tabs.length - 1 }[event.key];
  if (at < 0 || to === undefined) return;
  event.preventDefault();
  const next = (to + tabs.length) % tabs.length;
  tabs[next].focus();
  openTab(next);
}

function wear(theme) {
  document.documentElement.dataset.theme = theme;
  document.getElementById("theme").setAttribute("aria-pressed", theme === "dark");
  repaintAll();
}

function begin() {
  const place = (id) => document.getElementById(id);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const worn = () => document.documentElement.dataset.theme;
  place("theme").addEventListener("click", () => wear(worn() === "dark" ? "light" : "dark"));
  dark.addEventListener("change", () => wear(dark.matches ? "dark" : "light"));
  wear(dark.matches ? "dark" : "light");
  const about = ([what, value]) => element("div", {}, element("dt", {}, what), element("dd", {}, value));
  place("about").append(...data.about.filter(([, value]) => value !== data.title).map(about));
  place("made").textContent = `Made by ${data.made}. Nothing on this page comes from the network or goes there.`;
  place("tabs").append(...tabs);
  place("tabs").addEventListener("keydown", moveAmongTabs);
  place("panels").replaceChildren(...panels);
  const asked = data.tabs.findIndex((tab) => `#${tab.kind}` === location.hash);
  if (tabs.length) openTab(Math.max(0, asked));
}

begin();
