// The groups of a node with their completions, and the messages that it refused.

import { $, get, make, moment, nothing, number, put, short, turns } from "./dom.js";

const ENVELOPE = 16; // characters of an id, enough for sapo-node why
const FEW = 8, MORE = 50;
let shown = FEW; // groups

// What filters masked is struck out.
function textOf(completion) {
  const characters = Array.from(completion.text), parts = [];
  const between = (begin, after) => characters.slice(begin, after).join("");
  let end = 0;
  for (const [begin, after] of completion.spans || []) {
    parts.push(between(end, begin), make("del", "", between(begin, after)));
    end = after;
  }
  return make("pre", "", ...parts, between(end));
}

// A tick where the completion is correct, a cross where it earns nothing, and its level where it earns a part.
function answer(completion, levels) {
  const isPart = completion.level > 0 && !completion.correct, part = `${completion.level}/${levels}`;
  const mark = make("span", completion.correct ? "right" : "wrong", completion.correct ? "✓" : isPart ? part : "✗");
  mark.setAttribute("role", "img");
  mark.setAttribute("aria-label", completion.correct ? "correct" : isPart ? `incorrect, level ${part}` : "incorrect");
  const masked = [completion.filter && `rejected: ${completion.filter}`, completion.silent?.length && "masked in part: n-gram filter"].filter(Boolean);
  return make("div", "answer", mark, textOf(completion), ...masked.map((text) => make("span", "note", text)));
}

function group(each, open) {
  const facts = each.facts, completions = facts.completions || [];
  const correct = completions.length ? `${completions.filter((each) => each.correct).length} of ${completions.length} correct` : "";
  const state = each.state === "left out" ? each.kind : each.state;
  const summary = make("summary", "", make("span", `became ${state.split(" ")[0]}`, state === "own" ? "local" : state), make("span", facts.dataset ? "" : "note", facts.dataset || "texts not kept"), make("span", "", correct), make("span", "note", each.peer ? `by ${short(each.peer)}` : "by this node"), make("span", "note", each.step ? `step ${each.step}` : each.why));
  const details = make("details", "", summary);
  details.dataset.number = each.number;
  details.open = open;
  if (each.why) details.append(make("p", "note", `${each.why}. ${each.means} ${each.change}`));
  if (each.state === "trained") details.append(make("p", "note", `Weight ${facts.weight}; ${facts.tokens} tokens of it were trained on${facts.masked ? `, and filters masked ${facts.masked} tokens of its correct completions` : ""}.`));
  if (facts.prompt) details.append(make("pre", "", facts.prompt));
  for (const completion of completions) details.append(answer(completion, facts.levels));
  if (each.envelope_id) details.append(make("p", "id", `envelope ${each.envelope_id.slice(0, ENVELOPE)}, group ${each.k}`));
  return details;
}

function showGroups({ groups, counts }) {
  const state = chosen();
  const total = state ? counts[state] || 0 : Object.values(counts).reduce((sum, each) => sum + each, 0);
  $("groups-count").textContent = total ? `The newest ${number(groups.length)} of ${number(total)} that the node remembers.` : "";
  $("more").hidden = groups.length < shown || shown >= total;
  if ($("groups").contains(document.activeElement)) return; // somebody reads here with the keyboard
  const open = new Set([...document.querySelectorAll("#groups details[open]")].map((each) => each.dataset.number));
  put("groups", ...(groups.length ? groups.map((each) => group(each, open.has(String(each.number)))) : [nothing("None yet.")]));
}

function showRefusals(refusals) {
  if (!refusals.length) return put("refusals", nothing("None yet."));
  put("refusals", ...refusals.slice(0, 15).map((each) => make("div", "reason", make("b", "", each.why), make("p", "", `from ${short(each.sender)}${each.issuer ? `, in the name of ${short(each.issuer)}` : ""}, ${moment(each.at)}${each.envelope_id ? `, envelope ${each.envelope_id.slice(0, ENVELOPE)}` : ""}`))));
}

const chosen = () => document.querySelector("input[name=state]:checked").value;

const asked = turns();

export async function askGroups() {
  const isNewest = asked();
  const feed = await get(`api/groups?state=${encodeURIComponent(chosen())}&last=${shown}`);
  if (!isNewest()) return;
  showGroups(feed);
  showRefusals(feed.refusals);
}

function show(most) {
  shown = most;
  askGroups().catch((error) => ($("groups-count").textContent = error.message));
}

for (const input of document.querySelectorAll("input[name=state]")) input.addEventListener("change", () => show(FEW));
$("more").addEventListener("click", () => show(shown + MORE));
