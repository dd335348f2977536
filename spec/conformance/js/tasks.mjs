// Section "Verification", tasks and answers: ITEM-1 to ITEM-3, TASK-2, ANS-1 to ANS-3.

import { encode, isInteger, isMapOf, require, sha256 } from './encoding.mjs';

const LETTERS = 'abcdefghijklmnopqrstuvwxyz';
const BLANKS = ' \t\n\r';
const OPEN = '<answer>';
const CLOSE = '</answer>';
const MAX_ANSWER = 4096;
const FORBIDDEN = /[\u0000-\u0009\u000b-\u001f\u007f-\u00a0\u061c\u1680\u2000-\u200a\u200e\u200f\u2028-\u202f\u205f\u2066-\u2069\u3000]/;
const SCORER = 2;

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

/** The item of a task of a manifest. Each dataset of the text has one turn and no file. */
export function makeTaskItem({ dataset, config, scorer, turns, source }, seed) {
  require(scorer === SCORER && turns === 1 && source === undefined, 'task', 'an unknown scorer version, turns or a file');
  return makeItem(dataset, config, seed);
}

/** Refuse, by layer `answer`, an incorrect completion. */
export function requireAnswer(dataset, reference, completion) {
  const end = completion.lastIndexOf(CLOSE);
  const start = end < 0 ? -1 : completion.lastIndexOf(OPEN, end);
  require(start >= 0, 'answer', 'no answer');
  const answer = trimBlanks(completion.slice(start + OPEN.length, end));
  const limit = Math.min(4 * countCharacters(reference) + 64, MAX_ANSWER);
  require(answer !== '' && countCharacters(answer) <= limit, 'answer', 'the answer is empty or too long');
  require(!FORBIDDEN.test(answer), 'answer', 'the answer holds a forbidden character');
  require(requireDataset(dataset).equal(answer, reference), 'answer', 'the answer differs from the reference');
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
  return /^[+-]?[0-9]{1,1000}$/.test(answer) && BigInt(answer) === BigInt(reference);
}

function equalTexts(answer, reference) {
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
function countCharacters(text) {
  return [...text].length;
}
