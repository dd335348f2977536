// Asks the node for its facts and puts them in place.

import { showCharts } from "./charts.js";
import { $, counted, get, Lost, make, moment, nothing, number, percent, put, short, turns, visible } from "./dom.js";
import { askGroups } from "./groups.js";

const EVERY_MS = 2000;
const SHOWN_BANNED = 10, SHOWN_OTHERS = 40; // of the peers that are not connected
const DOING = { generate: "generating its completions", share: "sharing its completions", verify: "verifying external groups", train: "learning", evaluate: "evaluating on held-out prompts" };

function bar(share) {
  const drawn = make("span", share ? "bar" : "");
  if (share) drawn.style.width = `${(8 * share).toFixed(2)}rem`;
  return drawn;
}

// The columns of the table of peers: a heading, what stands below it for one peer, and a class. A column that a row lacks
// is empty there: little of it is true of this node itself.
const COLUMNS = [
  ["peer", (each) => (each.peer ? named(each) : "this node"), ""],
  ["connected", (each) => (each.connected ? "● connected" : ""), ""],
  ["state", (each) => each.state && make("span", `state ${each.state}`, each.state), ""],
  ["tier", (each) => each.tier, ""],
  ["decided by", (each) => each.state && each.decided_by, "labelled"],
  ["why", (each) => each.why, "why"],
  ["since", (each) => each.since && moment(each.since), "labelled"],
  ["until", (each) => each.until && moment(each.until), "labelled"],
  ["share of trained tokens", (each) => make("span", "", bar(each.share), percent(each.share)), "share"],
  ["trust", (each) => each.trust?.toFixed(2), "number"],
  ["groups trained on", (each) => each.trained_groups?.toLocaleString("en"), "number"],
  ["groups ready", (each) => each.waiting?.toLocaleString("en"), "number"],
];

const TASK_COLUMNS = [
  ["task", (each) => each.task, ""],
  ["pass rate", (each) => percent(each.pass_rate), "number"],
  ["informative groups", (each) => percent(each.informative), "number"],
  ["groups since the last one", (each) => number(each.quiet_groups), "number"],
];

function named(each) {
  const button = make("button", "link", short(each.peer));
  button.title = each.peer;
  button.dataset.peer = each.peer;
  button.setAttribute("aria-label", `Explain the state of ${short(each.peer)}`);
  button.addEventListener("click", () => aboutPeer(each.peer));
  return button;
}

// Minutes and seconds, or hours and minutes.
function countdown(seconds) {
  const rest = Math.max(0, Math.round(seconds)), minutes = Math.floor(rest / 60);
  const two = (value) => String(value).padStart(2, "0");
  return minutes >= 60 ? `${Math.floor(minutes / 60)} h ${two(minutes % 60)} min` : `${minutes}:${two(rest % 60)}`;
}

// What the node gains from others and gives them, as far as it can know.
function showExchange({ exchange: { from_others: share, teachers, fetchers, fetched } }) {
  const named = teachers.map(([peer, part]) => `${short(peer)} ${percent(part)}`).join(", ");
  const gained = share === null ? "" : `Of the positive advantage that the loss has counted, ${percent(share)} came from peers${named ? `: ${named}` : ""}. `;
  $("exchange").textContent = `${gained}Rollouts of this node that peers fetched by request: ${number(fetched)}, by ${number(fetchers)} peer${fetchers === 1 ? "" : "s"}. Gossip does not tell who reads.`;
}

const pressed = turns();

async function aboutPeer(peer) {
  const isNewest = pressed();
  const about = await get("api/peers/" + encodeURIComponent(peer)).catch((error) => ({ text: `${peer}\n${error.message}` }));
  if (!isNewest()) return;
  const [id, ...lines] = about.text.split("\n");
  put("about-peer", make("p", "id", id), ...lines.map((line) => make("p", line.startsWith("    ") ? "note" : "", line)));
  $("about-peer").hidden = false;
}

const cell = ([heading, of, kind], each) => {
  const made = make("td", kind, of(each) ?? "");
  made.dataset.heading = heading;
  return made;
};

const row = (columns, each) => make("tr", "", ...columns.map((column) => cell(column, each)));

// All peers that are connected, some of those that are banned, and some of the others; the peers trained on most come
// first, as the node sends them. Banned keys, which cost nothing, take no places of peers that the node learns from.
function shownOf(state) {
  const connected = new Set(state.session.connected || []);
  let banned = 0, others = 0;
  const isShown = (each) => each.connected || (each.state === "banned" ? banned++ < SHOWN_BANNED : others++ < SHOWN_OTHERS);
  return state.peers.map((each) => ({ ...each, connected: connected.has(each.peer) })).filter(isShown);
}

function rowsOf(state, peers) {
  const total = state.own_tokens + state.other_tokens;
  const share = (tokens) => (total ? tokens / total : 0);
  return [{ share: share(state.own_tokens) }, ...peers.map((each) => ({ ...each, share: share(each.trained_tokens) }))];
}

function showPeers(state) {
  const strangers = state.strangers_share;
  $("strangers-share").textContent = strangers === null ? "" : `Strangers may fill ${Math.round(100 * strangers)} % of the external groups.`;
  const focused = document.activeElement?.dataset?.peer;
  const shown = shownOf(state);
  const rows = rowsOf(state, shown).map((each) => row(COLUMNS, each));
  const known = Math.max(state.peers.length, Object.values(state.states).reduce((sum, each) => sum + each, 0));
  $("peers-count").textContent = shown.length < known ? `${number(shown.length)} of ${number(known)} peers: those connected, and some of the others. sapo-node peers lists all.` : "";
  if (!shown.length) {
    const none = make("td", "empty", "No peer is known yet.");
    none.colSpan = COLUMNS.length;
    rows.push(make("tr", "", none));
  }
  putTable("peers", COLUMNS, rows);
  if (focused) for (const button of $("peers").querySelectorAll("button")) if (button.dataset.peer === focused) button.focus();
}

function showTasks({ tasks }) {
  putTable("tasks", TASK_COLUMNS, tasks.map((each) => row(TASK_COLUMNS, each)));
  put("task-advice", ...tasks.filter((each) => each.advice).map((each) => make("li", "attention", each.advice)));
  $("tasks").closest("section").hidden = !tasks.length;
}

function putTable(id, columns, rows) {
  const headings = columns.map(([heading, , kind]) => {
    const made = make("th", kind, heading);
    made.scope = "col";
    return made;
  });
  put(id, make("thead", "", make("tr", "", ...headings)), make("tbody", "", ...rows));
  keepInReach($(id).parentElement);
}

// A part of the page that can be scrolled sideways can be reached with the keyboard.
function keepInReach(box) {
  if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
  else box.removeAttribute("tabindex");
}

function showRefused({ refused, kinds }) {
  put("kinds", ...Object.entries(kinds).flatMap(([kind, means]) => [make("dt", kind, kind), make("dd", "", means)]));
  if (!refused.length) return put("refused", nothing("Nothing so far."));
  put("refused", ...refused.map((each) => make("div", "reason", make("b", each.kind === "refused" ? "refused" : "", `${each.kind}, ${each.why}: ${counted(each.count, each.unit)}`), ...(each.means ? [make("p", "", `${each.means} ${each.change}`)] : []))));
}

function showHealth(state) {
  const entries = { ...state.health };
  if (state.session.addresses) entries.addresses = make("span", "", ...state.session.addresses.map(address));
  if (state.banned_by_evidence.length) entries["banned for equivocation"] = state.banned_by_evidence.map(short).join(", ") + " (sapo-node peers PEER --evidence)";
  put("health", ...Object.entries(entries).flatMap(([name, text]) => [make("dt", "", name), make("dd", "", text)]));
  const notices = state.session.notices || []; // those that need a person come first
  put("notices", ...(notices.length ? notices.map((each) => make("li", each.level, `${moment(each.at)}: `, ...withPeers(each.text))) : [make("li", "note", "None yet.")]));
  putDated("taken-back", state.taken_back);
  putDated("health-alarms", state.health_alarms);
}

// An address has a line break before the peer id at most, so that both can be copied whole.
const address = (text) => make("span", "address id", ...text.split(/(?=\/p2p\/)/).flatMap((part, at) => (at ? [make("wbr"), part] : [part])));

// A text with each peer id in it shortened, as everywhere. Pressed, it shows the whole id.
const withPeers = (text) => text.split(/(12D3KooW[1-9A-HJ-NP-Za-km-z]{44})/).map((part, at) => (at % 2 ? named({ peer: part }) : part));

// A list that is empty is hidden with its heading.
function putDated(id, entries) {
  put(id, ...entries.map((each) => make("li", "", `${moment(each.at)}: `, ...withPeers(each.text))));
  $(id).parentElement.hidden = !entries.length;
}

function partHeard(shards) {
  if (!shards || shards.followed.length === shards.all) return [];
  return [["shards followed", `${shards.followed.length} of ${shards.all}`]];
}

function showTiles(state) {
  const last = state.rounds.at(-1), evaluation = state.evaluations.at(-1);
  const reward = last ? state.rounds.reduce((sum, each) => sum + each.reward, 0) / state.rounds.length : null;
  const tiles = [
    [`reward, last ${counted(state.rounds.length, "round")}`, reward === null ? "–" : reward.toFixed(3)],
    ["held-out pass@1", evaluation ? evaluation.pass_at_1.toFixed(3) : "–"],
    ["rounds", last ? number(last.step) : "0"],
    ["peers connected", (state.session.connected || []).length],
    ...partHeard(state.session.shards),
    ["rollouts accepted", number(state.counts.accepted || 0)],
    ["groups verified", number(state.counts["verified groups"] || 0)],
    ["of positive advantage from peers", percent(state.exchange.from_others)],
    ["peers that fetched from it", number(state.exchange.fetchers)],
  ];
  put("tiles", ...tiles.map(([name, value]) => make("div", "tile", make("b", "", value), make("span", "", name))));
}

function showHead(state) {
  showCondition(state.condition);
  $("swarm").textContent = `in ${state.session.swarm || "no swarm"}`;
  $("peer-id").textContent = state.session.peer_id || "";
  const starting = Object.entries(state.starting);
  const doing = starting.length ? "starting" : DOING[state.phase], waits = state.session.waits || [];
  const since = doing ? [`for ${Math.max(0, Math.round(state.now - state.phase_since))} s`] : [];
  const waiting = waits.map((each) => `waits ${countdown(each.until - state.now)} for ${each.what}`);
  say(doing || (waits.length ? "" : state.rests), [...since, ...waiting].join("; "));
  $("starting").hidden = !starting.length;
  put("starting", ...starting.map(([part, isReady]) => make("li", isReady ? "right" : "note", isReady ? `✓ ${part} is ready` : `… waits for: ${part}`)));
}

// How the node is is read out when it changes.
function showCondition({ level, text, advice }) {
  const [said, todo] = $("condition").children;
  const line = visible(level === "attention" ? `attention: ${text}` : text);
  $("condition").className = level;
  if (said.textContent !== line) said.textContent = line;
  if (todo.textContent !== advice) todo.textContent = advice;
}

function say(doing, since) {
  $("doing").textContent = doing;
  $("since").textContent = since;
}

// The parts of the page that show the facts, in the order in which they stand.
const CARDS = [showHead, showTiles, showCharts, showTasks, showHealth, showPeers, showExchange, showRefused];

let seen = null;

async function ask() {
  try {
    const state = await get("api/state");
    for (const card of CARDS) card(state);
    await askGroups();
    $("lost").hidden = true;
    seen = new Date();
  } catch (error) {
    if (!(error instanceof Lost)) console.error(error);
    $("lost").hidden = false;
    say(seen ? `last seen at ${seen.toLocaleTimeString()}` : "not seen yet", "");
  }
}

async function live() {
  await ask();
  setTimeout(live, document.hidden ? 10 * EVERY_MS : EVERY_MS);
}

document.addEventListener("visibilitychange", () => document.hidden || ask());
live();
