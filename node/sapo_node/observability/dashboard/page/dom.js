// Makes elements. Whatever a peer wrote is only ever text, and each character of it is seen: nothing here makes markup of a string.

export const $ = (id) => document.getElementById(id);
export const short = (peer) => "…" + peer.slice(-8);
export const percent = (part) => (part === null || part === undefined ? "–" : (100 * part).toFixed(1) + " %");
export const number = (value) => value.toLocaleString("en");
export const counted = (value, noun) => `${number(value)} ${noun}${value === 1 ? "" : "s"}`;

// The hour of today, and the day as well of any other day.
export function moment(seconds) {
  const at = new Date(1000 * seconds), isToday = at.toDateString() === new Date().toDateString();
  const hour = at.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
  return isToday ? hour : `${at.toLocaleDateString("en-GB", { weekday: "short", day: "numeric", month: "short" })} ${hour}`;
}

// A character that could turn a line around, or hide in it, is shown as its escape, as `printable.py` does for a terminal.
const UNSEEN = /[\p{C}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]/gu;
const escaped = (character) => `\\u{${character.codePointAt(0).toString(16)}}`;
export const visible = (text) => text.replace(UNSEEN, (each) => (each === "\n" || each === "\t" ? each : escaped(each)));

export function make(tag, className, ...children) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  node.append(...children.map((child) => (child instanceof Node ? child : visible(String(child)))));
  return node;
}

export function put(id, ...children) {
  $(id).replaceChildren(...children);
}

export function nothing(text) {
  return make("p", "empty", text);
}

// The node gave no answer at all.
export class Lost extends Error {}

// What the node answers. An error has the words of its refusal.
export async function get(path) {
  const response = await fetch(path).catch(() => Promise.reject(new Lost("The node does not answer.")));
  if (response.ok) return response.json();
  const text = await response.text(), isJson = response.headers.get("content-type") === "application/json";
  throw new Error(isJson ? JSON.parse(text).text : text);
}

// For requests of which only the newest may show its answer: call `turn()` before one, and what it returns after it.
export function turns() {
  let newest = 0;
  return () => {
    const mine = ++newest;
    return () => mine === newest;
  };
}
