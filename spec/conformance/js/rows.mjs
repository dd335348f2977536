// Section "Verification", tasks of a file: ROW-1 to ROW-7. This implementation does not score `math`.

import { isUtf8 } from 'node:buffer';
import { encode, require, sha256 } from './encoding.mjs';
import { BLANKS, countCharacters, equalTexts, requireCorrect, SIGNED_WHOLE } from './tasks.mjs';

const LETTERS = 'ABCDEFGHIJ';
const MAX_TEXT = 16384;
const MAX_ANSWER = 1024;
const MAX_RUN = 100;
const FIRST_HELD_OUT = 2 ** 31;
const FIRST_EXAMPLE = 3 * 2 ** 30;
const LAST_SEED = 2 ** 32 - 1;

// ROW-2. In a text a character is escaped, or one that may stand for itself.
const TEXT = '"(?:[^"\\\\\\u0000-\\u001f\\u007f-\\u009f]|\\\\["\\\\nt])+"';
const ROW = new RegExp(`^\\{"answer":(${TEXT}),(?:"choices":\\[(${TEXT}(?:,${TEXT})*)\\],)?"prompt":(${TEXT})\\}$`);
const TEXTS = new RegExp(TEXT, 'g');
const ESCAPED = { '\\"': '"', '\\\\': '\\', '\\n': '\n', '\\t': '\t' };

// ROW-6 and ROW-7.
const NUMBER = new RegExp(`^\\$?${SIGNED_WHOLE}?(?:\\.([0-9]*)|/([0-9]+))?$`);
const LETTER = /^\(?([A-Za-z])[).:]?$/;
const LABEL = /^\(?([A-Za-z])[).:] /;

const COMPARE = { exact: equalTexts, number: equalNumbers, choice: equalChoices };

/** The item of the task at `index` of a manifest, whose file has these bytes: prompt (`question`), answer and digest. */
export function makeRowItem(manifest, index, file, seed) {
  const { dataset, config, source: map } = manifest.tasks[index];
  const source = Object.fromEntries(map);
  require(config.size === 0, 'task', 'a configuration beside a file');
  require(manifest.tasks.filter((task) => task.dataset === dataset).length === 1, 'task', 'two tasks of one name');
  require(sha256(file).toString('hex') === source.file, 'task', 'another file');
  const rows = readRows(file, source);
  require(seed <= LAST_SEED, 'task', 'no item of this seed');
  const kind = splitRows(rows)[seed < FIRST_HELD_OUT ? 0 : seed < FIRST_EXAMPLE ? 1 : 2];
  const n = firstNumber(['sapo/row/2', source.file, seed]);
  const [question, answer] = toItem(rows[kind[Number(n % BigInt(kind.length))]], seed);
  return { question, answer, digest: sha256(encode([question, answer])) };
}

/** Refuse, by layer `answer`, an incorrect completion of an item. `choices` stand in the order of the item. */
export function requireRowAnswer(answers, reference, choices, completion) {
  require(Object.hasOwn(COMPARE, answers), 'task', `this implementation does not score ${answers}`);
  const texts = answers === 'choice' ? choices : [reference];
  const longest = texts.reduce((one, other) => (countCharacters(other) > countCharacters(one) ? other : one));
  requireCorrect(longest, completion, (answer) => COMPARE[answers](answer, reference, choices));
}

function readRows(file, { rows: count, answers }) {
  require(isUtf8(file), 'task', 'the file is not UTF-8');
  const lines = file.toString().split('\n');
  require(lines.pop() === '', 'task', 'the last row has no line feed');
  require(lines.length === count, 'task', 'another number of rows');
  return lines.map((line) => readRow(line, answers === 'choice'));
}

function readRow(line, hasChoices) {
  const parts = ROW.exec(line);
  require(parts !== null && (parts[2] !== undefined) === hasChoices, 'task', 'a line is no row of this file');
  const [answer, prompt] = [unquote(parts[1]), unquote(parts[3])];
  const choices = hasChoices ? parts[2].match(TEXTS).map(unquote) : [];
  const texts = [prompt, ...choices];
  require([answer, ...texts].every((text) => !BLANKS.includes(text[0]) && !BLANKS.includes(text.at(-1))), 'task', 'a blank at an end');
  require(texts.reduce((sum, text) => sum + countCharacters(text), 0) <= MAX_TEXT, 'task', 'a long prompt');
  require(countCharacters(answer) <= MAX_ANSWER, 'task', 'a long answer');
  if (hasChoices) requireChoices(choices, answer);
  return { prompt, answer, choices };
}

function requireChoices(choices, answer) {
  require(choices.length >= 2 && choices.length <= LETTERS.length, 'task', 'too few or too many choices');
  require(new Set(choices.map(toLowerCase)).size === choices.length, 'task', 'two equal choices');
  require(LETTERS.slice(0, choices.length).split('').includes(answer), 'task', 'the answer is no letter of a choice');
}

function unquote(text) {
  return text.slice(1, -1).replace(/\\./g, (escape) => ESCAPED[escape]);
}

// ROW-3: the numbers of the assigned rows, the held-out rows and the examples.
function splitRows(rows) {
  const marks = rows.map(({ prompt }) => firstNumber(['sapo/split/2', prompt]));
  const kinds = marks.map((m) => (m % 64n === 0n ? 2 : m % 16n === 0n ? 1 : 0));
  for (const kind of [1, 2]) {
    if (kinds.includes(kind)) continue;
    const assigned = marks.filter((_, i) => kinds[i] === 0);
    const smallest = assigned.reduce((one, other) => (other < one ? other : one), assigned[0]);
    const i = marks.findIndex((m, at) => kinds[at] === 0 && m === smallest);
    if (i >= 0) kinds[i] = kind;
  }
  require([0, 1, 2].every((kind) => kinds.includes(kind)), 'task', 'no row of a kind');
  return [0, 1, 2].map((kind) => [...kinds.keys()].filter((i) => kinds[i] === kind));
}

// ROW-5
function toItem({ prompt, answer, choices }, seed) {
  if (choices.length === 0) return [prompt, answer];
  const drawn = Math.min(seed, FIRST_HELD_OUT);
  const hashes = new Map(choices.map((choice) => [choice, sha256(encode(['sapo/row/2', prompt, drawn, choice]))]));
  const order = choices.toSorted((one, other) => Buffer.compare(hashes.get(one), hashes.get(other)));
  const correct = choices[LETTERS.indexOf(answer)];
  return [prompt + order.map((choice, i) => `\n${LETTERS[i]}. ${choice}`).join(''), LETTERS[order.indexOf(correct)]];
}

function firstNumber(parts) {
  return sha256(encode(parts)).readBigUInt64BE(0);
}

function equalNumbers(answer, reference) {
  const [one, other] = [readFraction(answer), readFraction(reference)];
  return one !== null && other !== null && one[0] * other[1] === other[0] * one[1];
}

// Numerator and denominator; null for what is no number.
function readFraction(text) {
  const parts = NUMBER.exec(text);
  if (!parts) return null;
  const [, sign, whole = '', decimals = '', below] = parts;
  const digits = whole.replace(/[^0-9]/g, '');
  if ([digits, decimals, below ?? ''].some((run) => run.length > MAX_RUN)) return null;
  if (digits + decimals === '' || (below !== undefined && BigInt(below) === 0n)) return null;
  const value = BigInt(digits + decimals);
  return [sign === '' || sign === '+' ? value : -value, below === undefined ? 10n ** BigInt(decimals.length) : BigInt(below)];
}

function equalChoices(answer, reference, choices) {
  const letters = LETTERS.slice(0, choices.length);
  const letter = LETTER.exec(answer)?.[1].toUpperCase();
  if (letter !== undefined && letters.includes(letter)) return letter === reference;
  const label = LABEL.exec(answer);
  const texts = label?.[1].toUpperCase() === reference ? [answer, answer.slice(label[0].length)] : [answer];
  return texts.map(toLowerCase).includes(toLowerCase(choices[LETTERS.indexOf(reference)]));
}

// `toLowerCase` of JavaScript changes letters of all scripts.
function toLowerCase(text) {
  return text.replace(/[A-Z]/g, (letter) => letter.toLowerCase());
}
