// Sections "Topics and validation", "Evidence" and "Verification": the steps of a receiver.

import { decode, isBytes, require, sha256 } from './encoding.mjs';
import { ROLLOUT_DOMAIN, envelopeId, readEnvelope, verifyEnvelope } from './envelope.mjs';
import { assign, requireOpen, requireShard } from './manifest.mjs';
import { readBody, readHeader, readMessage, requireBodies } from './rollout.mjs';
import { levelOf, makeTaskItem } from './tasks.mjs';

const MAX_EVIDENCE_BYTES = 4096;
const IGNORED = ['window', 'replay', 'equivocation'];

/** The gossip verdict for a refusal by this layer. */
export function gossipVerdict(layer) {
  return IGNORED.includes(layer) ? 'ignore' : 'reject';
}

/** The id of a gossip message. */
export function gossipId(topic, data) {
  return sha256(Buffer.concat([Buffer.from(`${topic}\0`), data]));
}

/** The state of a receiver: the rollouts that it accepted. */
export class Receiver {
  #rounds = new Map(); // issuer, epoch and counter: the id of the envelope accepted for it
  #bodies = new Map(); // id of an envelope: positions of the bodies accepted for it

  constructor(manifest) {
    this.manifest = manifest;
  }

  /**
   * Steps 2 to 5, 7 to 11, 13 and 15 for a rollout message that arrives at `nowMs` (Unix time in milliseconds) on the
   * topic of `shard`; `shard` is null for a message that was requested.
   */
  accept(bytes, nowMs, shard = null) {
    const { networkId } = this.manifest;
    const message = readMessage(this.manifest, bytes);
    const envelope = readEnvelope(message.envelope);
    const id = envelopeId(envelope, ROLLOUT_DOMAIN, networkId);
    const key = id.toString('hex');
    const known = this.#bodies.get(key);
    const brought = message.bodies.flatMap((body, k) => (body.length > 0 ? [k] : []));
    require(known === undefined || brought.some((k) => !known.has(k)), 'replay', 'no new body');
    const header = verifyRollout(this.manifest, envelope);
    if (shard !== null) requireShard(this.manifest, shard, envelope.issuer, header.epoch);
    requireOpen(this.manifest, nowMs, header.epoch);
    requireBodies(header, message.bodies);
    const round = `${envelope.issuer.toString('hex')} ${header.epoch} ${header.counter}`;
    require((this.#rounds.get(round) ?? key) === key, 'equivocation', 'another content for this round');
    this.#rounds.set(round, key);
    this.#bodies.set(key, new Set([...(known ?? []), ...brought]));
    return { issuer: envelope.issuer, id, header, bodies: message.bodies };
  }
}

/** Steps 2 to 4, 7, 8 and 11 for a rollout message: those that do not depend on the state of the receiver. */
export function openMessage(manifest, bytes) {
  const message = readMessage(manifest, bytes);
  const envelope = readEnvelope(message.envelope);
  const header = verifyRollout(manifest, envelope);
  requireBodies(header, message.bodies);
  return { issuer: envelope.issuer, header, bodies: message.bodies };
}

/** Steps 2 to 5 and 8 to 11 for an evidence message: EVD-1 to EVD-4. */
export function acceptEvidence(manifest, bytes) {
  require(bytes.length <= MAX_EVIDENCE_BYTES, 'size', 'more than 4,096 bytes');
  const parts = decode(bytes, 'frame');
  require(Array.isArray(parts) && parts.length === 2 && parts.every((part) => isBytes(part)), 'frame', 'not two envelopes');
  const envelopes = parts.map(readEnvelope);
  const [first, second] = envelopes;
  require(first.issuer.equals(second.issuer), 'evidence', 'two issuers');
  const ids = envelopes.map((envelope) => envelopeId(envelope, ROLLOUT_DOMAIN, manifest.networkId));
  require(Buffer.compare(...ids) < 0, 'evidence', 'ids do not ascend');
  envelopes.forEach((envelope) => verifyEnvelope(envelope, ROLLOUT_DOMAIN, manifest.networkId));
  const [one, other] = envelopes.map(({ payload }) => readHeader(manifest, payload));
  require(one.epoch === other.epoch && one.counter === other.counter, 'evidence', 'two rounds');
  return { issuer: first.issuer, epoch: one.epoch, counter: one.counter };
}

/** Verification, steps 1 to 4: the levels of each group, or null if its body was left out. */
export function verifyGroups(manifest, { issuer, header, bodies }) {
  return header.groups.map((group, k) => {
    if (bodies[k].length === 0) return null;
    const completions = readBody(manifest, bodies[k]);
    const { task: index, seed } = assign(manifest, issuer, header.epoch, header.counter, k);
    const task = manifest.tasks[index];
    const item = makeTaskItem(task, seed);
    require(item.digest.equals(group.digest), 'digest', `group ${k} has another prompt or answer`);
    const levels = completions.map(({ turns }) => levelOf(task, item.answer, turns));
    require(levels.every((level, i) => level === group.claims[i]), 'claims', `group ${k} claims false levels`);
    return levels;
  });
}

function verifyRollout(manifest, envelope) {
  verifyEnvelope(envelope, ROLLOUT_DOMAIN, manifest.networkId);
  return readHeader(manifest, envelope.payload);
}
