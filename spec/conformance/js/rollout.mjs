// Section "Rollout": MSG-1, MSG-2, HDR-1 to HDR-4, BODY-1 to BODY-7.

import { decode, isBytes, isExtension, isInteger, isMapOf, isText, require, sha256 } from './encoding.mjs';

const MAX_GROUPS = 16;
const MAX_MODEL_BYTES = 64;

/** MSG-1, MSG-2: the envelope and the bodies of a message, as bytes. */
export function readMessage(manifest, bytes) {
  require(bytes.length <= manifest.max_message_bytes, 'size', 'a message of more than max_message_bytes');
  const parts = decode(bytes, 'frame');
  require(Array.isArray(parts) && parts.length === 2, 'frame', 'not an array of two');
  const [envelope, bodies] = parts;
  require(isBytes(envelope), 'frame', 'the envelope is not a byte string');
  require(Array.isArray(bodies) && bodies.length <= MAX_GROUPS, 'frame', 'bodies are not an array of at most 16');
  require(bodies.every((body) => isBytes(body)), 'frame', 'a body is not a byte string');
  return { envelope, bodies };
}

/** HDR-1 to HDR-4: epoch, counter and groups of a payload. */
export function readHeader(manifest, payload) {
  const map = decode(payload, 'header');
  require(isMapOf(map, ['counter', 'epoch', 'groups'], ['x']) && isExtension(map.get('x')), 'header', 'unknown or missing keys, or an invalid x');
  const [epoch, counter, groups] = ['epoch', 'counter', 'groups'].map((key) => map.get(key));
  require(isInteger(epoch), 'header', 'epoch');
  require(isInteger(counter) && counter < manifest.max_rounds, 'header', 'counter');
  require(Array.isArray(groups) && groups.length >= 1 && groups.length <= MAX_GROUPS, 'header', 'groups');
  return { epoch, counter, groups: groups.map((group) => readGroup(manifest, group)) };
}

/** BODY-1: refuse bodies that do not match the header. */
export function requireBodies(header, bodies) {
  require(bodies.length === header.groups.length, 'body', 'not one body for each group');
  bodies.forEach((body, k) => {
    require(body.length === 0 || sha256(body).equals(header.groups[k].body), 'body', `body ${k} does not match its hash`);
  });
}

/** BODY-2 to BODY-7: the completions of a body, as objects of turns and finish. */
export function readBody(manifest, bytes) {
  require(bytes.length <= manifest.max_message_bytes, 'body', 'a body of more than max_message_bytes');
  const map = decode(bytes, 'body');
  require(isMapOf(map, ['completions'], ['model', 'x']) && isExtension(map.get('x')), 'body', 'unknown or missing keys, or an invalid x');
  require(!map.has('model') || isText(map.get('model'), MAX_MODEL_BYTES), 'body', 'model');
  const completions = map.get('completions');
  require(Array.isArray(completions) && completions.length === manifest.completions, 'body', 'completions');
  const most = Math.max(...manifest.tasks.map((task) => task.turns));
  return completions.map((completion) => {
    require(isMapOf(completion, ['finish', 'turns']), 'body', 'a completion has other keys');
    const turns = completion.get('turns');
    require(Array.isArray(turns) && turns.length >= 1 && turns.length <= most, 'body', 'turns');
    require(turns.every((text) => typeof text === 'string'), 'body', 'a turn is not text');
    require(isText(turns.join(''), manifest.max_completion_bytes), 'body', 'turns');
    require(['stop', 'length'].includes(completion.get('finish')), 'body', 'finish');
    return Object.fromEntries(completion);
  });
}

function readGroup(manifest, group) {
  require(isMapOf(group, ['body', 'claims', 'digest']), 'header', 'a group has unknown or missing keys');
  const { body, claims, digest } = Object.fromEntries(group);
  require(isBytes(body, 32) && isBytes(digest, 32), 'header', 'body or digest are not 32 bytes');
  require(isBytes(claims, manifest.completions), 'header', 'claims are not one byte for each completion');
  return { body, claims, digest };
}
