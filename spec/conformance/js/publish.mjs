// The rounds that a peer publishes: computed completions of its assigned tasks, half of them incorrect on purpose.

import { encode, sha256 } from './encoding.mjs';
import { ROLLOUT_DOMAIN, signEnvelope } from './envelope.mjs';
import { assign } from './manifest.mjs';
import { levelOf, makeTaskItem } from './tasks.mjs';

const GROUPS = 4;

/**
 * The message of one round of the issuer with the key pair of `seed` (32 bytes).
 *
 * It depends on the arguments alone, so a peer that restarts with the same key publishes the same content (DUTY-1),
 * although it stores nothing.
 */
export function makeRound(manifest, seed, issuer, epoch, counter) {
  const made = Array.from({ length: GROUPS }, (_, k) => makeGroup(manifest, issuer, epoch, counter, k));
  const header = toMap({ epoch, counter, groups: made.map(({ group }) => group) });
  const envelope = signEnvelope(seed, encode(header), ROLLOUT_DOMAIN, manifest.networkId);
  return encode([envelope, made.map(({ body }) => body)]);
}

function makeGroup(manifest, issuer, epoch, counter, k) {
  const { task: index, seed } = assign(manifest, issuer, epoch, counter, k);
  const task = manifest.tasks[index];
  const { answer, digest } = makeTaskItem(task, seed);
  // A 1 before an answer makes it incorrect: a larger number or another word.
  const texts = Array.from({ length: manifest.completions }, (_, i) => `<answer>${i % 2 === 0 ? answer : `1${answer}`}</answer>`);
  const body = encode(toMap({ completions: texts.map((text) => toMap({ turns: [text], finish: 'stop' })), model: 'computed' }));
  const claims = Buffer.from(texts.map((text) => levelOf(task, answer, [text])));
  return { body, group: toMap({ body: sha256(body), claims, digest }) };
}

function toMap(object) {
  return new Map(Object.entries(object));
}
