// Section "Pulling": PULL-1 to PULL-10.

import { decode, encode, isBytes, isInteger, isMapOf, isText, require } from './encoding.mjs';
import { ROLLOUT_DOMAIN, envelopeId, readEnvelope } from './envelope.mjs';
import { readMessage } from './rollout.mjs';

const MAX_REQUEST_BYTES = 4096;
const MAX_WANTED = 64;
const MAX_HOPS = 4;
const MAX_PX_PEERS = 16;
const MAX_PX_BYTES = 4096;
const MAX_ADDRESS_BYTES = 128;
const MAX_LISTED = 1024;
const MAX_LISTING_BYTES = 40_000;
const MAX_DELIVERY_BYTES = 1_048_576;
const ALL_SHARDS = 2 ** 32 - 1;
const NOTHING = { epoch: null, after: null, shards: null, want: null, hops: null, peers: null };

/** The libp2p protocol id of request/response streams of a swarm. */
export function pullProtocol(manifest) {
  return `/sapo/2/${manifest.networkId.toString('hex')}/pull`;
}

/** PULL-1 to PULL-3, PULL-7, PULL-9, PULL-10: the request of a peer. Keys that it does not have are null. */
export function readRequest(bytes) {
  require(bytes.length <= MAX_REQUEST_BYTES, 'pull', 'a request of more than 4,096 bytes');
  const map = decode(bytes, 'pull');
  if (isMapOf(map, ['want'], ['hops'])) {
    const want = readPairs(map.get('want'), MAX_WANTED);
    require(want.length > 0, 'pull', 'no message is requested');
    if (!map.has('hops')) return { ...NOTHING, want };
    const hops = map.get('hops');
    require(isInteger(hops) && hops >= 1 && hops <= MAX_HOPS && want.length === 1, 'pull', 'hops');
    return { ...NOTHING, want, hops };
  }
  const shards = map instanceof Map ? map.get('shards') : undefined;
  if (isMapOf(map, ['peers', 'shards'])) {
    const peers = map.get('peers');
    require(isInteger(peers) && peers >= 1 && peers <= MAX_PX_PEERS, 'pull', 'peers');
    requireShards(shards);
    return { ...NOTHING, peers, shards };
  }
  require(isMapOf(map, ['after', 'epoch', 'shards']), 'pull', 'unknown or missing keys');
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
  require(held.length === 0 || Buffer.compare(request.after, held[0][0]) < 0, 'pull', 'an id that is not greater than the requested one');
  return held;
}

/** PULL-5, PULL-6: the messages of a delivery that answers `request`, with the ids of their envelopes. */
export function readDelivery(manifest, request, bytes) {
  require(bytes.length <= MAX_DELIVERY_BYTES, 'pull', 'a delivery of more than 1,048,576 bytes');
  const messages = decode(bytes, 'pull');
  require(Array.isArray(messages) && messages.length <= MAX_WANTED, 'pull', 'not an array of at most 64');
  require(messages.every((message) => isBytes(message)), 'pull', 'a message is not a byte string');
  let next = 0;
  return messages.map((message) => {
    const { envelope, bodies } = readMessage(manifest, message);
    const id = envelopeId(readEnvelope(envelope), ROLLOUT_DOMAIN, manifest.networkId);
    const place = request.want.findIndex(([wanted], at) => at >= next && wanted.equals(id));
    require(place >= 0, 'pull', 'an envelope that was not requested, or not in this order');
    next = place + 1;
    const requested = request.want[place][1];
    require(bodies.every((body, k) => body.length === 0 || ((requested >> k) & 1) === 1), 'pull', 'a body that was not requested');
    return { id, message };
  });
}

/** PULL-8: the pairs of key and address that answer `request`. */
export function readIntroductions(request, bytes) {
  require(bytes.length <= MAX_PX_BYTES, 'pull', 'introductions of more than 4,096 bytes');
  const pairs = decode(bytes, 'pull');
  require(Array.isArray(pairs) && pairs.length <= request.peers, 'pull', 'not an array, or more pairs than requested');
  pairs.forEach((pair, at) => {
    require(Array.isArray(pair) && pair.length === 2, 'pull', 'not a pair');
    const [key, address] = pair;
    require(isBytes(key, 32) && isText(address, MAX_ADDRESS_BYTES) && address !== '', 'pull', 'not a key and an address');
    require(at === 0 || Buffer.compare(pairs[at - 1][0], key) < 0, 'pull', 'keys do not ascend');
  });
  return pairs;
}

/** The bytes of a request for the list of an epoch, of every shard, from the first id. */
export function listRequest(epoch) {
  return encode(new Map([['after', Buffer.alloc(0)], ['epoch', epoch], ['shards', ALL_SHARDS]]));
}

/** The bytes of a request for messages, given pairs of an envelope id and bodies. */
export function getRequest(want) {
  return encode(new Map([['want', want]]));
}

function requireShards(shards) {
  require(isInteger(shards) && shards >= 1 && shards <= ALL_SHARDS, 'pull', 'shards');
}

function readPairs(value, most) {
  require(Array.isArray(value) && value.length <= most, 'pull', `not an array of at most ${most}`);
  value.forEach((pair, at) => {
    require(Array.isArray(pair) && pair.length === 2, 'pull', 'not a pair');
    const [id, bodies] = pair;
    require(isBytes(id, 32) && isInteger(bodies) && bodies < 2 ** 16, 'pull', 'not an id and bodies');
    require(at === 0 || Buffer.compare(value[at - 1][0], id) < 0, 'pull', 'ids do not ascend');
  });
  return value;
}
