// Chapter "Pulling": PULL-1 to PULL-9.

import { decode, encode, isBytes, isInteger, isMapOf, isText, require } from './encoding.mjs';
import { ROLLOUT_DOMAIN, envelopeId, readEnvelope } from './envelope.mjs';
import { readMessage } from './rollout.mjs';

const MAX_REQUEST_BYTES = 4096;
const MAX_WANTED = 64;
const MAX_INTRODUCED = 16;
const MAX_INTRODUCTIONS_BYTES = 4096;
const MAX_ADDRESS_BYTES = 128;
const MAX_LISTED = 1024;
const MAX_LISTING_BYTES = 40_000;
const MAX_DELIVERY_BYTES = 1_048_576;
const ALL_SHARDS = 2 ** 32 - 1;
const NOTHING = { epoch: null, after: null, shards: null, want: null, peers: null };

/** The protocol of the streams of a swarm. */
export function pullProtocol(manifest) {
  return `/sapo/1/${manifest.networkId.toString('hex')}/pull`;
}

/** PULL-1 to PULL-3, PULL-7, PULL-9: what a peer asks for. What the request does not hold is null. */
export function readRequest(bytes) {
  require(bytes.length <= MAX_REQUEST_BYTES, 'pull', 'a request of more than 4,096 bytes');
  const map = decode(bytes, 'pull');
  if (isMapOf(map, ['want'])) {
    const want = readPairs(map.get('want'), MAX_WANTED);
    require(want.length > 0, 'pull', 'nothing is wanted');
    return { ...NOTHING, want };
  }
  const shards = map instanceof Map ? map.get('shards') : undefined;
  if (isMapOf(map, ['peers', 'shards'])) {
    const peers = map.get('peers');
    require(isInteger(peers) && peers >= 1 && peers <= MAX_INTRODUCED, 'pull', 'peers');
    requireShards(shards);
    return { ...NOTHING, peers, shards };
  }
  require(isMapOf(map, ['after', 'epoch', 'shards']), 'pull', 'other keys');
  const [after, epoch] = [map.get('after'), map.get('epoch')];
  requireShards(shards);
  require(isInteger(epoch), 'pull', 'epoch');
  require(isBytes(after, 0) || isBytes(after, 32), 'pull', 'after');
  return { ...NOTHING, epoch, after, shards };
}

/** PULL-4: the pairs of a listing that answers `request`. */
export function readListing(request, bytes) {
  require(bytes.length <= MAX_LISTING_BYTES, 'pull', 'a listing of more than 40,000 bytes');
  const held = readPairs(decode(bytes, 'pull'), MAX_LISTED);
  require(held.length === 0 || Buffer.compare(request.after, held[0][0]) < 0, 'pull', 'an id that is not behind');
  return held;
}

/** PULL-5, PULL-6: the messages of a delivery that answers `request`, with the ids of their envelopes. */
export function readDelivery(manifest, request, bytes) {
  require(bytes.length <= MAX_DELIVERY_BYTES, 'pull', 'a delivery of more than 1,048,576 bytes');
  const messages = decode(bytes, 'pull');
  require(Array.isArray(messages) && messages.length <= MAX_WANTED, 'pull', 'no array of up to 64');
  require(messages.every((message) => isBytes(message)), 'pull', 'a message is no byte string');
  let next = 0;
  return messages.map((message) => {
    const { envelope, bodies } = readMessage(manifest, message);
    const id = envelopeId(readEnvelope(envelope), ROLLOUT_DOMAIN, manifest.networkId);
    const place = request.want.findIndex(([wanted], at) => at >= next && wanted.equals(id));
    require(place >= 0, 'pull', 'an envelope that was not asked for, or not in this order');
    next = place + 1;
    const asked = request.want[place][1];
    require(bodies.every((body, k) => body.length === 0 || ((asked >> k) & 1) === 1), 'pull', 'a body that was not asked for');
    return { id, message };
  });
}

/** PULL-8: the pairs of key and address that answer `request`. */
export function readIntroductions(request, bytes) {
  require(bytes.length <= MAX_INTRODUCTIONS_BYTES, 'pull', 'introductions of more than 4,096 bytes');
  const pairs = decode(bytes, 'pull');
  require(Array.isArray(pairs) && pairs.length <= request.peers, 'pull', 'no array, or more than were asked for');
  pairs.forEach((pair, at) => {
    require(Array.isArray(pair) && pair.length === 2, 'pull', 'no pair');
    const [key, address] = pair;
    require(isBytes(key, 32) && isText(address, MAX_ADDRESS_BYTES) && address !== '', 'pull', 'no key and address');
    require(at === 0 || Buffer.compare(pairs[at - 1][0], key) < 0, 'pull', 'keys do not ascend');
  });
  return pairs;
}

/** The bytes of a request for what a peer holds of an epoch and of every shard, from the beginning. */
export function listRequest(epoch) {
  return encode(new Map([['after', Buffer.alloc(0)], ['epoch', epoch], ['shards', ALL_SHARDS]]));
}

/** The bytes of a request for messages, by pairs of an envelope id and bodies. */
export function getRequest(want) {
  return encode(new Map([['want', want]]));
}

function requireShards(shards) {
  require(isInteger(shards) && shards >= 1 && shards <= ALL_SHARDS, 'pull', 'shards');
}

function readPairs(value, most) {
  require(Array.isArray(value) && value.length <= most, 'pull', `no array of up to ${most}`);
  value.forEach((pair, at) => {
    require(Array.isArray(pair) && pair.length === 2, 'pull', 'no pair');
    const [id, bodies] = pair;
    require(isBytes(id, 32) && isInteger(bodies) && bodies < 2 ** 16, 'pull', 'no id and bodies');
    require(at === 0 || Buffer.compare(value[at - 1][0], id) < 0, 'pull', 'ids do not ascend');
  });
  return value;
}
