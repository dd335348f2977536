// The implementation under test: reads one request per line and writes one response per line (../README.md).

import { Refusal, decode } from './encoding.mjs';
import { envelopeId, readEnvelope, verifyEnvelope, verifySignature } from './envelope.mjs';
import { Receiver, acceptEvidence, openMessage, verifyGroups } from './gossip.mjs';
import { assign, readManifest, readTopic, requireOpen, requireShard, topics } from './manifest.mjs';
import { readDelivery, readIntroductions, readListing, readRequest } from './pull.mjs';
import { readBody, readHeader } from './rollout.mjs';
import { makeRowItem, requireRowAnswer } from './rows.mjs';
import { makeItem, requireAnswer } from './tasks.mjs';

const KINDS = {
  encoding({ bytes }) {
    decode(fromHex(bytes));
  },

  signature({ public_key, message, signature }) {
    verifySignature(fromHex(public_key), fromHex(message), fromHex(signature));
  },

  envelope({ network_id, domain, bytes }) {
    const networkId = fromHex(network_id);
    const envelope = readEnvelope(fromHex(bytes));
    verifyEnvelope(envelope, domain, networkId);
    return { issuer: envelope.issuer, envelope_id: envelopeId(envelope, domain, networkId), payload: envelope.payload };
  },

  header({ manifest, bytes }) {
    const { epoch, counter, groups } = readHeader(toManifest(manifest), fromHex(bytes));
    return { epoch, counter, groups: groups.length };
  },

  body({ manifest, bytes }) {
    const completions = readBody(toManifest(manifest), fromHex(bytes));
    return { turns: completions.map(({ turns }) => turns), finishes: completions.map(({ finish }) => finish) };
  },

  message({ manifest, now_ms, earlier, bytes }) {
    const receiver = new Receiver(toManifest(manifest));
    earlier.forEach((message) => receiver.accept(fromHex(message), now_ms));
    const { issuer, header, id } = receiver.accept(fromHex(bytes), now_ms);
    return { issuer, epoch: header.epoch, counter: header.counter, envelope_id: id };
  },

  evidence({ manifest, bytes }) {
    return acceptEvidence(toManifest(manifest), fromHex(bytes));
  },

  request({ bytes }) {
    return readRequest(fromHex(bytes));
  },

  listing({ request, bytes }) {
    return { held: readListing(readRequest(fromHex(request)), fromHex(bytes)) };
  },

  delivery({ manifest, request, bytes }) {
    const delivered = readDelivery(toManifest(manifest), readRequest(fromHex(request)), fromHex(bytes));
    return { ids: delivered.map(({ id }) => id) };
  },

  introductions({ request, bytes }) {
    return { introduced: readIntroductions(readRequest(fromHex(request)), fromHex(bytes)) };
  },

  manifest({ bytes }) {
    const manifest = toManifest(bytes);
    const { rollouts, evidence } = topics(manifest);
    return { network_id: manifest.networkId, rollouts: rollouts[0], evidence };
  },

  window({ manifest, now_ms, epoch }) {
    requireOpen(toManifest(manifest), now_ms, epoch);
  },

  topic({ manifest, topic }) {
    return { carries: readTopic(toManifest(manifest), topic).carries };
  },

  shard({ manifest, topic, issuer, epoch }) {
    const swarm = toManifest(manifest);
    const { shard } = readTopic(swarm, topic);
    requireShard(swarm, shard, fromHex(issuer), epoch);
    return { shard };
  },

  assignment({ manifest, issuer, epoch, counter, k }) {
    return assign(toManifest(manifest), fromHex(issuer), epoch, counter, k);
  },

  item({ dataset, config, seed }) {
    return makeItem(dataset, decode(fromHex(config), 'task'), seed);
  },

  answer({ dataset, config, seed, completion }) {
    requireAnswer(dataset, makeItem(dataset, decode(fromHex(config), 'task'), seed).answer, completion);
  },

  row({ manifest, file, seed }) {
    return makeRowItem(toManifest(manifest), 0, fromHex(file), seed);
  },

  comparison({ answers, reference, choices, completion }) {
    requireRowAnswer(answers, reference, choices, completion);
  },

  rollout({ manifest, bytes }) {
    const swarm = toManifest(manifest);
    return { levels: verifyGroups(swarm, openMessage(swarm, fromHex(bytes))) };
  },
};

function fromHex(text) {
  return Buffer.from(text, 'hex');
}

function toManifest(text) {
  return readManifest(fromHex(text));
}

function respond({ kind, input }) {
  if (!Object.hasOwn(KINDS, kind)) return { verdict: 'unknown kind' };
  try {
    return { verdict: 'accept', output: KINDS[kind](input) };
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    return { verdict: error.layer, note: error.message };
  }
}

function toJson(value) {
  // `this[key]` is the value before Buffer's own toJSON changes it.
  return JSON.stringify(value, function (key, plain) {
    const original = this[key];
    if (Buffer.isBuffer(original)) return original.toString('hex');
    return typeof original === 'bigint' ? original.toString() : plain;
  });
}

// Lines are split here, by bytes, because `readline` also splits at U+2028, which JSON may hold.
let rest = Buffer.alloc(0);
for await (const chunk of process.stdin) {
  rest = Buffer.concat([rest, chunk]);
  for (let end = rest.indexOf('\n'); end >= 0; end = rest.indexOf('\n')) {
    process.stdout.write(`${toJson(respond(JSON.parse(rest.subarray(0, end))))}\n`);
    rest = rest.subarray(end + 1);
  }
}
