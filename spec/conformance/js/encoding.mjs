// Section "Encoding": ENC-1 to ENC-10, and helpers that every other section uses.

import { isUtf8 } from 'node:buffer';
import { createHash } from 'node:crypto';
import * as cborg from 'cborg';

const MAX_DEPTH = 8;
const MAX_ITEMS = 4096;

/** A refusal by a layer of the specification. Any other exception is a defect of this implementation. */
export class Refusal extends Error {
  constructor(layer, note) {
    super(note);
    this.layer = layer;
  }
}

/** Throw a Refusal by `layer` unless `condition` holds. */
export function require(condition, layer, note) {
  if (!condition) throw new Refusal(layer, note);
}

/** SHA-256 of bytes, as a Buffer. */
export function sha256(bytes) {
  return createHash('sha256').update(bytes).digest();
}

/** E(value): the encoding of texts, byte strings, unsigned integers, booleans, and arrays and Maps of them. */
export function encode(value) {
  return Buffer.from(cborg.encode(value));
}

/**
 * The value of exactly one item. Throws a Refusal by `layer` for anything else.
 *
 * Integers become numbers, or BigInts from 2^53 up. Byte strings become Buffers, and maps Maps, so that keys such as
 * `__proto__` have no effect. The decoder of cborg is not used: it drops a U+FEFF at the beginning of a text.
 */
export function decode(bytes, layer = 'encoding') {
  const source = { bytes, at: 0, items: 0, layer };
  const value = readItem(source, 0);
  require(source.at === bytes.length, layer, 'bytes follow the item');
  return value;
}

/** Whether a decoded value is an integer; all that `decode` returns are unsigned. */
export function isInteger(value) {
  return typeof value === 'number' || typeof value === 'bigint';
}

/** Whether a decoded value is text of at most `limit` bytes in UTF-8. */
export function isText(value, limit) {
  return typeof value === 'string' && Buffer.byteLength(value) <= limit;
}

/** Whether a decoded value is a byte string, of `length` bytes where one is given. */
export function isBytes(value, length = value?.length) {
  return Buffer.isBuffer(value) && value.length === length;
}

/** Whether a decoded value is a map with all keys of `needed`, and beyond them only keys of `allowed`. */
export function isMapOf(value, needed, allowed = []) {
  return value instanceof Map && needed.every((key) => value.has(key))
    && [...value.keys()].every((key) => needed.includes(key) || allowed.includes(key));
}

/** EXT-1: whether a decoded value is absent, or a map of at most 256 encoded bytes. */
export function isExtension(value) {
  return value === undefined || (value instanceof Map && encode(value).length <= 256);
}

function readItem(source, depth) {
  const { bytes, layer } = source;
  source.items += 1;
  require(source.items <= MAX_ITEMS, layer, 'more than 4,096 items');
  require(source.at < bytes.length, layer, 'an item is missing');
  const major = bytes[source.at] >> 5;
  if (major === 7) return readSimple(source);
  require([0, 2, 3, 4, 5].includes(major), layer, `major type ${major}`);
  const argument = readArgument(source);
  if (major === 0) return argument;
  // ENC-10, before anything is built: a map of n pairs takes at least 2n bytes, a string or array of length n at least n.
  const remaining = bytes.length - source.at;
  require(argument <= (major === 5 ? remaining / 2 : remaining), layer, 'claims more than the bytes that remain');
  if (major === 2) return readBytes(source, argument);
  if (major === 3) return readText(source, argument);
  require(depth < MAX_DEPTH, layer, 'nested deeper than 8');
  return major === 4 ? readArray(source, argument, depth + 1) : readMap(source, argument, depth + 1);
}

function readSimple(source) {
  const head = source.bytes[source.at++];
  require(head === 0xf4 || head === 0xf5, source.layer, 'a simple value other than false and true, or a float');
  return head === 0xf5;
}

function readArgument(source) {
  const { bytes, layer } = source;
  const short = bytes[source.at++] & 0x1f;
  if (short < 24) return short;
  require(short < 28, layer, 'an indefinite length or a reserved form');
  const width = 1 << (short - 24);
  require(source.at + width <= bytes.length, layer, 'an integer is cut off');
  const long = width === 8 ? bytes.readBigUInt64BE(source.at) : bytes.readUIntBE(source.at, width);
  source.at += width;
  require(long >= [24, 2 ** 8, 2 ** 16, 2 ** 32][short - 24], layer, 'an integer is not in its shortest form');
  return long <= Number.MAX_SAFE_INTEGER ? Number(long) : long;
}

function readBytes(source, length) {
  source.at += length;
  return source.bytes.subarray(source.at - length, source.at);
}

function readText(source, length) {
  const bytes = readBytes(source, length);
  require(isUtf8(bytes), source.layer, 'text is not UTF-8');
  return bytes.toString();
}

function readArray(source, count, depth) {
  const values = [];
  while (values.length < count) values.push(readItem(source, depth));
  return values;
}

function readMap(source, count, depth) {
  const map = new Map();
  let last = Buffer.alloc(0);
  while (map.size < count) {
    const start = source.at;
    const key = readItem(source, depth);
    require(typeof key === 'string', source.layer, 'a map key is not text');
    const encoded = source.bytes.subarray(start, source.at);
    require(Buffer.compare(last, encoded) < 0, source.layer, 'map keys do not ascend');
    last = encoded;
    map.set(key, readItem(source, depth));
  }
  return map;
}
