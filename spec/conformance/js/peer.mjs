// A js-libp2p peer of a swarm: validates each message, publishes rounds of its own, and prints a JSON line for each.

import './polyfill.mjs';
import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { noise } from '@chainsafe/libp2p-noise';
import { yamux } from '@chainsafe/libp2p-yamux';
import { generateKeyPairFromSeed } from '@libp2p/crypto/keys';
import { TopicValidatorResult, gossipsub } from '@libp2p/gossipsub';
import { identify } from '@libp2p/identify';
import { ping } from '@libp2p/ping';
import { tcp } from '@libp2p/tcp';
import { lpStream } from '@libp2p/utils';
import { multiaddr } from '@multiformats/multiaddr';
import { createLibp2p } from 'libp2p';
import { Refusal } from './encoding.mjs';
import { Receiver, acceptEvidence, gossipId, gossipVerdict, verifyGroups } from './gossip.mjs';
import { epochAt, readManifest, readTopic, shardOf, topics } from './manifest.mjs';
import { makeRound } from './publish.mjs';
import { getRequest, listRequest, pullProtocol, readDelivery, readListing, readRequest } from './pull.mjs';

const { values: options } = parseArgs({
  options: {
    manifest: { type: 'string' },
    dial: { type: 'string', multiple: true, default: [] },
    seed: { type: 'string', default: randomBytes(32).toString('hex') },
    rounds: { type: 'string', default: '0' },
    interval: { type: 'string', default: '1000' },
    pull: { type: 'boolean', default: false },
  },
});
if (options.manifest === undefined || options.dial.length === 0) {
  console.error('usage: node peer.mjs --manifest FILE --dial MULTIADDR... [--seed HEX] [--rounds N] [--interval MS] [--pull]');
  process.exit(2);
}

const manifest = readManifest(readFileSync(options.manifest));
const { rollouts, evidence } = topics(manifest);
const receiver = new Receiver(manifest);
const seed = Buffer.from(options.seed, 'hex');
const privateKey = await generateKeyPairFromSeed('Ed25519', seed);
const issuer = Buffer.from(privateKey.publicKey.raw);

const node = await createLibp2p({
  privateKey,
  transports: [tcp()],
  connectionEncrypters: [noise()],
  streamMuxers: [yamux()],
  services: {
    identify: identify(),
    ping: ping(),
    pubsub: gossipsub({
      globalSignaturePolicy: 'StrictSign',
      allowedTopics: [...rollouts, evidence],
      emitSelf: false,
      ignoreDuplicatePublishError: true,
      msgIdFn: ({ topic, data }) => gossipId(topic, data),
    }),
  },
});
const { pubsub } = node.services;

function report(event, fields) {
  console.log(JSON.stringify({ event, ...fields }, (_, value) => (typeof value === 'bigint' ? value.toString() : value)));
}

// gossipsub ignores a message when its validator throws, which would hide a defect.
function end(error) {
  console.error(error);
  process.exit(1);
}

/** A gossip validator that reports each verdict. `validate` returns the fields to report for an accepted message. */
function validator(event, validate) {
  return (sender, { data, topic }) => {
    try {
      report(event, { verdict: 'accept', ...validate(Buffer.from(data), topic) });
      return TopicValidatorResult.Accept;
    } catch (error) {
      if (!(error instanceof Refusal)) end(error);
      report(event, { verdict: error.layer, note: error.message });
      return gossipVerdict(error.layer) === 'ignore' ? TopicValidatorResult.Ignore : TopicValidatorResult.Reject;
    }
  };
}

/** Verification of an accepted message: its levels, or the layer that refuses. The peer forwards it either way. */
function verified(message) {
  try {
    return { verification: 'accept', levels: verifyGroups(manifest, message) };
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    return { verification: error.layer };
  }
}

/** Section "Pulling": sends one request to a peer and returns the response. */
async function requestFrom(peer, request) {
  const stream = await node.dialProtocol(peer, pullProtocol(manifest));
  const framed = lpStream(stream);
  await framed.write(request);
  const response = Buffer.from((await framed.read()).subarray());
  await stream.close();
  return response;
}

/** Request what a peer holds of the current epoch, up to one delivery, and validate it like any other message. */
async function pullFrom(peer) {
  const list = listRequest(epochAt(manifest, Date.now()));
  const held = readListing(readRequest(list), await requestFrom(peer, list));
  const get = getRequest(held.slice(0, 64));
  for (const { message } of held.length > 0 ? readDelivery(manifest, readRequest(get), await requestFrom(peer, get)) : []) {
    validateMessage(null, { data: message, topic: null });
  }
  report('pulled', { listed: held.length });
}

const validateMessage = validator('message', (data, topic) => {
  const shard = topic === null ? null : readTopic(manifest, topic).shard;
  const message = receiver.accept(data, Date.now(), shard);
  const { epoch, counter } = message.header;
  return { issuer: message.issuer.toString('hex'), epoch, counter, ...verified(message) };
});

rollouts.forEach((topic) => pubsub.topicValidators.set(topic, validateMessage));
pubsub.topicValidators.set(evidence, validator('evidence', (data) => {
  const { issuer: equivocator, ...round } = acceptEvidence(manifest, data);
  return { issuer: equivocator.toString('hex'), ...round };
}));
rollouts.forEach((topic) => pubsub.subscribe(topic));
pubsub.subscribe(evidence);

const [{ remotePeer }] = await Promise.all(options.dial.map((address) => node.dial(multiaddr(address))));
while (pubsub.getSubscribers(evidence).length < options.dial.length) await sleep(50);
report('connected', { peer: remotePeer.toString(), self: node.peerId.toString(), issuer: issuer.toString('hex') });
if (options.pull) await pullFrom(remotePeer);

let epoch = -1;
let counter = 0;
for (let round = 0; round < Number(options.rounds); round += 1) {
  const current = epochAt(manifest, Date.now());
  // DUTY-4: the epoch never runs backwards. Counters start at 0 in each.
  if (current > epoch) [epoch, counter] = [current, 0];
  const topic = rollouts[shardOf(manifest, issuer, epoch)];
  const { recipients } = await pubsub.publish(topic, makeRound(manifest, seed, issuer, epoch, counter));
  report('published', { epoch, counter, recipients: recipients.length });
  counter += 1;
  await sleep(Number(options.interval));
}
