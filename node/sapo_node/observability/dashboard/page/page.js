"use strict";
// Asks the node for its facts and puts them in place. Whatever a peer wrote is only ever text: nothing here makes markup
// of a string.

const EVERY_MS = 2000;
const PHASES = { generate: "#4c9f70", share: "#8e6bbf", verify: "#d9902f", train: "#3f7fc1" };
const LINES = ["#3f7fc1", "#d9902f", "#4c9f70", "#b5487f", "#8e6bbf", "#5b8f99", "#c0563f", "#7a8b2f", "#9a6a4f", "#5a6fb0", "#2f9d9d", "#a0579a"];
const DOING = { generate: "generating its completions", share: "sharing its completions", verify: "verifying external groups", train: "learning", evaluate: "evaluating on held-out prompts" };
const SVG = "http://www.w3.org/2000/svg";

const $ = (id) => document.getElementById(id);
const short = (peer) => "…" + peer.slice(-8);
const percent = (part) => (part === null || part === undefined ? "–" : (100 * part).toFixed(1) + " %");
const number = (value) => value.toLocaleString("en");

function make(tag, className, ...children) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  node.append(...children.map((child) => (child instanceof Node ? child : String(child))));
  return node;
}

function draw(tag, attributes, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

function put(id, ...children) {
  $(id).replaceChildren(...children);
}

// Charts: x in rounds, y from 0 to `top`, with a line at every `step`.
const W = 480, H = 190, LEFT = 34, BOTTOM = 20, TOP = 8;

// The smallest of 1, 2, 5, 10, 20, 50, ... (or a tenth, a hundredth of them) that divides the axis into at most five parts.
function tickStep(top) {
  const power = 10 ** Math.floor(Math.log10(top / 5));
  return [1, 2, 5, 10].map((each) => each * power).find((each) => top / each <= 5.000001);
}

function frame(label, first, last, top, step) {
  const svg = draw("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": label });
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  for (let part = 0; part * step <= top * 1.000001; part++) {
    const y = TOP + (H - TOP - BOTTOM) * (1 - (part * step) / top);
    svg.append(draw("line", { x1: LEFT, x2: W, y1: y, y2: y, stroke: "var(--line)" }));
    svg.append(draw("text", { x: LEFT - 4, y: y + 4, "text-anchor": "end" }, (part * step).toFixed(digits)));
  }
  svg.append(draw("text", { x: LEFT, y: H - 4 }, `round ${first}`));
  svg.append(draw("text", { x: W - 2, y: H - 4, "text-anchor": "end" }, String(last)));
  const x = (step) => LEFT + (last === first ? 0.5 : (step - first) / (last - first)) * (W - LEFT - 4);
  const y = (value) => TOP + (H - TOP - BOTTOM) * (1 - Math.min(1, value / top));
  return { svg, x, y };
}

function line(points, colour, width) {
  return draw("polyline", { points: points.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" "), fill: "none", stroke: colour, "stroke-width": width });
}

function legend(entries) {
  const list = make("p", "legend");
  for (const [name, colour] of entries) {
    const mark = make("i");
    mark.style.background = colour;
    list.append(make("span", "", mark, name));
  }
  return list;
}

function nothing(text) {
  return make("p", "empty", text);
}

// "round 7" or "rounds 9 to 16".
const span = (each) => (each.first === each.last ? `round ${each.first}` : `rounds ${each.first} to ${each.last}`);

function showCurve(points, evaluations) {
  if (!points.length && !evaluations.length) return put("curve", nothing("No round has been played yet."));
  const ends = [...points.flatMap((each) => [each.first, each.last]), ...evaluations.map((each) => each.step)];
  const first = Math.min(...ends), last = Math.max(...ends);
  const { svg, x, y } = frame(`Mean reward of rounds ${first} to ${last}`, first, last, 1, 0.2);
  const middle = (each) => x((each.first + each.last) / 2);
  for (const each of points) {
    const dot = draw("circle", { cx: middle(each), cy: y(each.reward), r: 2, fill: "var(--faint)", opacity: 0.55 });
    dot.append(draw("title", {}, `${span(each)}: ${each.reward.toFixed(3)}`));
    svg.append(dot);
  }
  let mean = null;
  const smooth = points.map((each) => [middle(each), y((mean = mean === null ? each.reward : mean + 0.15 * (each.reward - mean)))]);
  svg.append(line(smooth, "var(--one)", 2.5));
  for (const each of evaluations) {
    const bar = draw("line", { x1: x(each.step), x2: x(each.step), y1: y(each.low), y2: y(each.high), stroke: "var(--warn)", "stroke-width": 1.5, opacity: 0.6 });
    const point = draw("circle", { cx: x(each.step), cy: y(each.pass_at_1), r: 4, fill: "var(--warn)" });
    const when = each.step ? `after round ${each.step}` : "before training";
    point.append(draw("title", {}, `held-out, ${when}: ${each.pass_at_1.toFixed(3)} (${each.low.toFixed(3)} to ${each.high.toFixed(3)})`));
    svg.append(bar, point);
  }
  const size = points.length ? points[0].rounds : 1;
  const dots = size === 1 ? "local completions, smoothed" : `local completions, smoothed; a dot is ${size} rounds`;
  put("curve", svg, legend([[dots, "var(--one)"], ["held-out prompts, with 95 % intervals", "var(--warn)"]]));
}

function showPhases(points) {
  if (!points.length) return put("phases", nothing("No round has been played yet."));
  const sum = (each) => Object.values(each.seconds).reduce((a, b) => a + b, 0);
  const most = Math.max(...points.map(sum), 0.1), step = tickStep(most);
  const top = step * Math.ceil(most / step);
  const first = points[0].first, last = points[points.length - 1].last;
  const { svg, y } = frame("Seconds of a round by phase", first, last, top, step);
  const width = (W - LEFT - 4) / points.length;
  points.forEach((each, place) => {
    let below = 0;
    for (const [phase, colour] of Object.entries(PHASES)) {
      const seconds = each.seconds[phase] || 0;
      const bar = draw("rect", { x: LEFT + place * width, y: y(below + seconds), width: width > 4 ? width - 1 : width, height: Math.max(0, y(below) - y(below + seconds)), fill: colour });
      bar.append(draw("title", {}, `${span(each)}: ${phase} ${seconds.toFixed(1)} s`));
      svg.append(bar);
      below += seconds;
    }
  });
  put("phases", svg, legend(Object.entries(PHASES)));
}

function showTrust(trust) {
  if (!trust.length) return put("trust", nothing("Drawn from the next round on."));
  const peers = [...new Set(trust.flatMap((each) => Object.keys(each.peers)))].slice(0, LINES.length);
  if (!peers.length) return put("trust", nothing("No peers heard of yet."));
  const first = trust[0].step, last = trust[trust.length - 1].step;
  const { svg, x, y } = frame("Trust of peers over rounds", first, last, 1, 0.2);
  peers.forEach((peer, place) => {
    const points = trust.filter((each) => peer in each.peers).map((each) => [x(each.step), y(each.peers[peer])]);
    if (points.length === 1) svg.append(draw("circle", { cx: points[0][0], cy: points[0][1], r: 3, fill: LINES[place] }));
    else svg.append(line(points, LINES[place], 2));
  });
  put("trust", svg, legend(peers.map((peer, place) => [short(peer), LINES[place]])));
}

// The hour of today, and the day as well of any other day.
function moment(seconds) {
  if (!seconds) return "–";
  const at = new Date(1000 * seconds), isToday = at.toDateString() === new Date().toDateString();
  const hour = at.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
  return isToday ? hour : `${at.toLocaleDateString("en-GB", { weekday: "short", day: "numeric", month: "short" })} ${hour}`;
}

// Minutes and seconds, or hours and minutes.
function countdown(seconds) {
  const rest = Math.max(0, Math.round(seconds)), minutes = Math.floor(rest / 60);
  const two = (value) => String(value).padStart(2, "0");
  return minutes >= 60 ? `${Math.floor(minutes / 60)} h ${two(minutes % 60)} min` : `${minutes}:${two(rest % 60)}`;
}

const SOURCES = ["command", "config", "evidence"];
const decidedBy = (each) => (SOURCES.includes(each.decided_by) ? each.decided_by : `list ${short(each.decided_by)}`);

// What the node gains from others and gives them, as far as it can know.
function showExchange({ from_others: share, teachers, fetchers, fetched }) {
  const named = teachers.map(([peer, part]) => `${short(peer)} ${percent(part)}`).join(", ");
  const gained = share === null ? "" : `Of the positive advantage that the loss has counted, ${percent(share)} came from others${named ? `: ${named}` : ""}. This does not say what the node would have learnt alone. `;
  $("exchange").textContent = `${gained}Rollouts of this node that peers fetched by request: ${number(fetched)}, by ${number(fetchers)} peers. Gossip does not tell who reads.`;
}

async function aboutPeer(peer) {
  const answer = await fetch("api/peers/" + encodeURIComponent(peer));
  $("about-peer").textContent = (await answer.json()).text;
  $("about-peer").hidden = false;
}

function showPeers(state) {
  const connected = new Set(state.session.connected || []);
  const total = state.own_tokens + state.other_tokens;
  const strangers = state.strangers_share;
  $("strangers-share").textContent = strangers === null ? "" : `Strangers may fill ${Math.round(100 * strangers)} % of the external groups.`;
  const body = document.querySelector("#peers tbody");
  const focused = document.activeElement && document.activeElement.dataset ? document.activeElement.dataset.peer : undefined;
  const rows = state.peers.slice(0, 50).map((each) => {
    const button = make("button", "", short(each.peer) + (connected.has(each.peer) ? " ●" : ""));
    button.title = each.peer;
    button.dataset.peer = each.peer;
    button.addEventListener("click", () => aboutPeer(each.peer));
    const share = total ? each.trained_tokens / total : 0;
    const bar = make("span", share ? "bar" : "");
    if (share) bar.style.width = `${(8 * share).toFixed(2)}rem`;
    return make("tr", "", make("td", "", button), make("td", "", each.tier), make("td", each.state, each.state), make("td", "", decidedBy(each)), make("td", "why", each.why), make("td", "", moment(each.since)), make("td", "", moment(each.until)), ...[each.trust.toFixed(2), each.verified, each.waiting, each.trained_groups].map((value) => make("td", "number", value)), make("td", "", bar, percent(share)));
  });
  if (!rows.length) {
    const cell = make("td", "empty", "No peers heard of yet: this node is alone until it finds some.");
    cell.colSpan = 12;
    rows.push(make("tr", "", cell));
  }
  body.replaceChildren(...rows);
  if (focused) for (const button of body.querySelectorAll("button")) if (button.dataset.peer === focused) button.focus();
}

// A zero-advantage group breaks no rule.
const titled = (each) => (each.kind === "not needed" ? `not needed, zero advantage (${each.why})` : each.why);

function showRefused(refused) {
  if (!refused.length) return put("refused", nothing("Nothing so far."));
  put("refused", ...refused.map((each) => make("div", "reason", make("b", each.kind === "refused" ? "refused" : "", `${titled(each)}: ${number(each.count)}`), ...(each.means ? [make("p", "", `${each.means} ${each.change}`)] : []))));
}

function answer(completion) {
  const text = make("pre", "");
  // What a filter masked is struck out, piece by piece.
  let rest = completion.text;
  for (const piece of completion.silent || []) {
    const at = rest.indexOf(piece);
    if (at < 0 || !piece) continue;
    text.append(rest.slice(0, at), make("span", "silent", piece));
    rest = rest.slice(at + piece.length);
  }
  text.append(rest);
  const mark = make("span", completion.reward ? "right" : "wrong", completion.reward ? "✓" : "✗");
  mark.setAttribute("aria-label", completion.reward ? "correct" : "incorrect");
  return make("div", "answer", mark, text, ...(completion.filter ? [make("span", "note", `masked${completion.partly ? " in part" : ""}: ${completion.filter}`)] : []));
}

function group(each, open) {
  const facts = each.facts, rewards = (facts.completions || []).map((completion) => completion.reward);
  const right = rewards.length ? `${rewards.filter(Boolean).length} of ${rewards.length} correct` : "";
  const fate = each.fate === "left out" ? each.kind : each.fate;
  const summary = make("summary", "", make("span", `fate ${fate.split(" ")[0]}`, fate === "own" ? "local" : fate), make("span", facts.dataset ? "" : "note", facts.dataset || "texts not kept"), make("span", "", right), make("span", "note", each.peer ? `by ${short(each.peer)}` : "by this node"), make("span", "note", each.step ? `step ${each.step}` : each.why));
  const details = make("details", "", summary);
  details.dataset.number = each.number;
  details.open = open;
  if (each.why) details.append(make("p", "note", `${each.why}. ${each.means} ${each.change}`));
  if (each.fate === "trained") details.append(make("p", "note", `Weight ${facts.weight}; ${facts.tokens} tokens of it were trained on.`));
  if (facts.question) details.append(make("pre", "", facts.question));
  for (const completion of facts.completions || []) details.append(answer(completion));
  if (each.envelope_id) details.append(make("p", "id", `envelope ${each.envelope_id}, group ${each.k}`));
  return details;
}

function showGroups(groups) {
  const open = new Set([...document.querySelectorAll("#groups details[open]")].map((each) => each.dataset.number));
  if ($("groups").contains(document.activeElement)) return; // somebody reads here with the keyboard
  const shown = groups.slice(0, 40);
  put("groups", ...(shown.length ? shown.map((each) => group(each, open.has(String(each.number)))) : [nothing("None yet.")]));
}

function showRefusals(refusals) {
  if (!refusals.length) return put("refusals", nothing("None yet."));
  put("refusals", ...refusals.slice(0, 15).map((each) => make("div", "reason", make("b", "", each.why), make("p", "", `from ${short(each.sender)}${each.issuer ? `, in the name of ${short(each.issuer)}` : ""}, ${moment(each.at)}${each.envelope_id ? `, envelope ${each.envelope_id.slice(0, 16)}` : ""}`))));
}

function showHealth(state) {
  const entries = { ...state.health, addresses: (state.session.addresses || []).join(", ") };
  if (state.banned_by_evidence.length) entries["banned for equivocation"] = state.banned_by_evidence.map(short).join(", ") + " (sapo-node peers PEER --evidence)";
  put("health", ...Object.entries(entries).flatMap(([name, text]) => [make("dt", "", name), make("dd", "", text)]));
  put("notices", ...(state.session.notices || []).slice().reverse().map((text) => make("li", "", text)));
  putDated("taken-back", state.taken_back);
  putDated("health-alarms", state.health_alarms);
}

function putDated(id, entries) {
  const lines = entries.map((each) => make("li", "", `${moment(each.at)}: ${each.text}`));
  put(id, ...(lines.length ? lines : [make("li", "note", "None yet.")]));
}

function partHeard(shards) {
  if (!shards || shards.followed.length === shards.all) return [];
  return [["shards followed", `${shards.followed.length} of ${shards.all}`]];
}

function showTiles(state) {
  const last = state.rounds[state.rounds.length - 1];
  const evaluation = state.evaluations[state.evaluations.length - 1];
  const recent = state.rounds;
  const reward = recent.length ? recent.reduce((sum, each) => sum + each.reward, 0) / recent.length : null;
  const tiles = [
    ["reward, last 20 rounds", reward === null ? "–" : reward.toFixed(3)],
    ["held-out pass@1", evaluation ? evaluation.pass_at_1.toFixed(3) : "–"],
    ["rounds", last ? number(last.step) : "0"],
    ["peers connected", (state.session.connected || []).length],
    ...partHeard(state.session.shards),
    ["envelopes accepted", number(state.counts.accepted || 0)],
    ["groups verified", number(state.counts["verified groups"] || 0)],
    ["of positive advantage from others", percent(state.exchange.from_others)],
    ["peers that fetched from it", number(state.exchange.fetchers)],
  ];
  put("tiles", ...tiles.map(([name, value]) => make("div", "tile", make("b", "", value), make("span", "", name))));
}

function show(state) {
  $("swarm").textContent = `in ${state.session.swarm || "no swarm"}`;
  $("peer-id").textContent = state.session.peer_id || "";
  const seconds = Math.max(0, Math.round(state.now - state.phase_since));
  const waits = (state.session.waits || []).map((each) => `waits ${countdown(each.until - state.now)} for ${each.what}`);
  const doing = state.phase ? [`${DOING[state.phase]}, for ${seconds} s`] : [];
  $("doing").textContent = [...doing, ...waits].join("; ") || "between rounds";
  showTiles(state);
  showCurve(state.points, state.evaluations);
  showPhases(state.points);
  showPeers(state);
  showExchange(state.exchange);
  showTrust(state.trust);
  showRefused(state.refused);
  showHealth(state);
}

let seen = null;

async function ask() {
  const fate = document.querySelector("input[name=fate]:checked").value;
  try {
    const [state, feed] = await Promise.all(["api/state", "api/groups?fate=" + encodeURIComponent(fate)].map((path) => fetch(path).then((response) => (response.ok ? response.json() : Promise.reject(response.status)))));
    show(state);
    showGroups(feed.groups);
    showRefusals(feed.refusals);
    $("lost").hidden = true;
    seen = new Date();
  } catch {
    $("lost").hidden = false;
    $("doing").textContent = seen ? `last seen at ${seen.toLocaleTimeString()}` : "not seen yet";
  }
}

async function live() {
  await ask();
  setTimeout(live, document.hidden ? 10 * EVERY_MS : EVERY_MS);
}

for (const input of document.querySelectorAll("input[name=fate]")) input.addEventListener("change", ask);
document.addEventListener("visibilitychange", () => document.hidden || ask());
live();
