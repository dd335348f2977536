// Section "Verification", tasks and answers: ITEM-1 to ITEM-3, TASK-2, ANS-1 to ANS-4.

import { encode, isInteger, isMapOf, require, sha256 } from './encoding.mjs';

const LETTERS = 'abcdefghijklmnopqrstuvwxyz';
export const BLANKS = ' \t\n\r';
const TAG = /(<\/?answer[ \t\r\n]*>)/i;
const MAX_ANSWER = 4096;
const FORBIDDEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u00a0\u061c\u1680\u2000-\u200a\u200e\u200f\u2028-\u202f\u205f\u2066-\u2069\u3000]/;
const SCORER = 2;

// ANS-4, in the order of its table: what a stage may begin with, the marks around it, and languages of a fence.
const MAX_WRAPPERS = 4;
const LABEL = '(?:the )?(?:final |correct )?answer';
const LEAD = new RegExp(`^(?:=|${LABEL} is(?=[ \\n:]):?|${LABEL}:|\\*\\*${LABEL}(?: is)?(?::\\*\\*|\\*\\*:))`, 'i');
const FENCE = '```';
const MARKS = [
  ...[FENCE, '`', '**', '__', '*', '_', '$$', '$'].map((mark) => [mark, mark]),
  ...[['\\(', '\\)'], ['\\[', '\\]']],
  ...['boxed', 'text', 'textbf', 'mathbf', 'mathrm'].map((command) => [`\\${command}{`, '}']),
  ...[['"', '"'], ["'", "'"], ['\u201c', '\u201d'], ['\u2018', '\u2019'], ['\u201e', '\u201c'], ['\u00ab', '\u00bb']],
];
const LANGUAGES = ['bash', 'json', 'latex', 'markdown', 'math', 'plaintext', 'python', 'text', 'txt'];

// ANS-2: a sign and a space, then digits, or groups of three behind one kind of separator.
export const SIGNED_WHOLE = '([+\\-\\u2212]?) ?([0-9]+|[1-9][0-9]{0,2}(?:(?:,[0-9]{3})+|(?: [0-9]{3})+|(?:\\{,\\}[0-9]{3})+))';
const INTEGER = new RegExp(`^${SIGNED_WHOLE}(?:\\.0*)?$`);
const MAX_DIGITS = 1000;

// For each dataset: the bounds of its configuration, how eight numbers make its item, and how answers are compared.
const DATASETS = {
  interop_sum: { config: { max: [1, 1_000_000] }, make: makeSum, equal: equalIntegers },
  interop_reverse: { config: { letters: [2, 7] }, make: makeReverse, equal: equalTexts },
  interop_largest: { config: { count: [2, 7], max: [1, 1_000_000] }, make: makeLargest, equal: equalIntegers },
};

/** The item of a dataset: prompt (`question`), answer and their digest. `config` is a decoded map. */
export function makeItem(dataset, config, seed) {
  const { config: bounds, make } = requireDataset(dataset);
  require(isMapOf(config, Object.keys(bounds)), 'task', 'the configuration has unknown or missing keys');
  for (const [key, [least, most]] of Object.entries(bounds)) {
    const value = config.get(key);
    require(isInteger(value) && value >= least && value <= most, 'task', key);
  }
  const h = sha256(encode(['sapo/item/1', dataset, seed]));
  const numbers = Array.from({ length: 8 }, (_, i) => h.readUInt32BE(4 * i));
  const [question, answer] = make(numbers, Object.fromEntries(config));
  return { question, answer, digest: sha256(encode([question, answer])) };
}

/** The item of a task of a manifest, for an implementation without files. Each dataset of the text has one turn. */
export function makeTaskItem({ dataset, config, scorer, turns, source }, seed) {
  require(scorer === SCORER && turns === 1 && source === undefined, 'task', 'an unknown scorer version, turns or a file');
  return makeItem(dataset, config, seed);
}

/** Refuse, by layer `answer`, an incorrect completion. */
export function requireAnswer(dataset, reference, completion) {
  const { equal } = requireDataset(dataset);
  requireCorrect(reference, completion, (answer) => equal(answer, reference));
}

/** The same with a function that compares one stage of an answer. Only the length of `reference` counts. */
export function requireCorrect(reference, completion, equal) {
  const answer = findAnswer(completion);
  require(answer !== undefined, 'answer', 'no answer');
  const limit = Math.min(4 * countCharacters(reference) + 64, MAX_ANSWER);
  require(answer !== '' && countCharacters(answer) <= limit, 'answer', 'the answer is empty or too long');
  require(!FORBIDDEN.test(answer), 'answer', 'the answer holds a forbidden character');
  require(stages(answer).some(equal), 'answer', 'the answer differs from the reference');
}

// Between the last opening tag that a closing tag follows and the first of these; undefined if there is none.
function findAnswer(completion) {
  const pieces = completion.split(TAG); // text, tag, text, tag ... text
  for (let i = pieces.length - 3; i > 0; i -= 2) {
    if (!pieces[i - 1].startsWith('</') && pieces[i + 1].startsWith('</')) return trimBlanks(pieces[i]);
  }
  return undefined;
}

// The answer, and what is left of it after each of its wrappers.
function stages(answer) {
  const found = [answer.replace(/\r\n?/g, '\n').replaceAll('\t', ' ')];
  while (found.length <= MAX_WRAPPERS) {
    const next = trimBlanks(withoutWrapper(found.at(-1)));
    if (next === '') break;
    found.push(next);
  }
  return found;
}

function withoutWrapper(text) {
  const lead = LEAD.exec(text);
  if (lead) return text.slice(lead[0].length);
  for (const [begin, end] of MARKS) {
    if (text.length > begin.length + end.length && text.startsWith(begin) && text.endsWith(end)) {
      const inner = text.slice(begin.length, -end.length);
      return begin === FENCE ? withoutLanguage(inner) : inner;
    }
  }
  return text.endsWith('.') && !text.endsWith('..') ? text.slice(0, -1) : '';
}

function withoutLanguage(text) {
  const end = text.indexOf('\n');
  const first = trimBlanks(text.slice(0, Math.max(end, 0)));
  return LANGUAGES.some((name) => new RegExp(`^${name}$`, 'i').test(first)) ? text.slice(end + 1) : text;
}

/** VER-2: the level of a completion, as its turns. An answer of these datasets is correct or earns nothing. */
export function levelOf({ dataset, levels, turns: most }, reference, turns) {
  if (turns.length > most) return 0;
  try {
    requireAnswer(dataset, reference, turns.join(''));
    return levels;
  } catch (error) {
    if (error.layer !== 'answer') throw error;
    return 0;
  }
}

function requireDataset(name) {
  require(Object.hasOwn(DATASETS, name), 'task', 'an unknown dataset');
  return DATASETS[name];
}

function makeSum(numbers, { max }) {
  const [a, b] = numbers.map((n) => n % (max + 1));
  return [`What is ${a} + ${b}?`, `${a + b}`];
}

function makeReverse(numbers, { letters }) {
  const word = numbers.slice(0, letters).map((n) => LETTERS[n % 26]);
  return [`Write ${word.join('')} backwards.`, word.toReversed().join('')];
}

function makeLargest(numbers, { count, max }) {
  const values = numbers.slice(0, count).map((n) => n % (max + 1));
  return [`Which is the largest of ${values.slice(0, -1).join(', ')} and ${values.at(-1)}?`, `${Math.max(...values)}`];
}

function equalIntegers(answer, reference) {
  const parts = INTEGER.exec(answer);
  if (!parts) return false;
  const digits = parts[2].replace(/[^0-9]/g, '');
  const value = BigInt(digits.slice(0, MAX_DIGITS + 1));
  return digits.length <= MAX_DIGITS && (parts[1] === '' || parts[1] === '+' ? value : -value) === BigInt(reference);
}

export function equalTexts(answer, reference) {
  return answer === reference;
}

// `trim` would remove more kinds of blanks, and a regular expression is slow on a long run of blanks.
function trimBlanks(text) {
  let [start, end] = [0, text.length];
  while (start < end && BLANKS.includes(text[start])) start += 1;
  while (end > start && BLANKS.includes(text[end - 1])) end -= 1;
  return text.slice(start, end);
}

// Counts code points; `length` counts UTF-16 units.
export function countCharacters(text) {
  return [...text].length;
}
