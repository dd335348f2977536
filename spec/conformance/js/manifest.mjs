// Section "Manifest, time and assignment": MAN-1 to MAN-7, TIME-1, TIME-2, TASK-1, and the topics TOP-1 to TOP-3.

import { decode, encode, isExtension, isInteger, isMapOf, isText, require, sha256 } from './encoding.mjs';

const MAX_MANIFEST_BYTES = 65536;
const EARLY_MS = 30_000;
const BOUNDS = {
  version: [2, 2],
  genesis: [0, 2 ** 40],
  epoch_seconds: [5, 86400],
  max_rounds: [1, 100000],
  completions: [2, 16],
  max_completion_bytes: [16, 65536],
  max_message_bytes: [2000, 1000000],
  inline_bytes: [0, 1000000],
  shards: [1, 32],
};
const TASK_BOUNDS = { weight: [1, 2 ** 32], scorer: [1, 65536], levels: [1, 255], turns: [1, 16] };
const SOURCE_BOUNDS = { rows: [32, 2 ** 24] };
const ANSWERS = ['exact', 'number', 'choice', 'math'];

/** MAN-1 to MAN-7: the manifest as an object with the keys of the text, and its `networkId`. */
export function readManifest(bytes) {
  require(bytes.length <= MAX_MANIFEST_BYTES, 'manifest', 'more than 65,536 bytes');
  const map = decode(bytes, 'manifest');
  const keys = [...Object.keys(BOUNDS), 'name', 'reasoning_gym', 'predecessor', 'tasks'];
  require(isMapOf(map, keys, ['x']) && isExtension(map.get('x')), 'manifest', 'unknown or missing keys, or an invalid x');
  requireBounds(map, BOUNDS);
  require(isMatch(map.get('name'), /^[a-z0-9][a-z0-9-]{0,31}$/), 'manifest', 'name');
  require(isText(map.get('reasoning_gym'), 32), 'manifest', 'reasoning_gym');
  require(isMatch(map.get('predecessor'), /^([0-9a-f]{64})?$/), 'manifest', 'predecessor');
  const tasks = map.get('tasks');
  require(Array.isArray(tasks) && tasks.length >= 1 && tasks.length <= 64, 'manifest', 'tasks');
  return { ...Object.fromEntries(map), tasks: tasks.map(readTask), networkId: sha256(bytes) };
}

/** The names of the topics of a swarm: of the rollouts of each shard, and of evidence. */
export function topics(manifest) {
  const swarm = `/sapo/2/${manifest.networkId.toString('hex')}`;
  const rollouts = Array.from({ length: manifest.shards }, (_, shard) => `${swarm}/rollouts/${shard}`);
  return { rollouts, evidence: `${swarm}/evidence` };
}

/** TOP-1, TOP-2: what the topic of this name carries, and its shard (null for evidence). */
export function readTopic(manifest, name) {
  const { rollouts, evidence } = topics(manifest);
  const shard = rollouts.indexOf(name);
  require(shard >= 0 || name === evidence, 'topic', 'not a topic of this swarm');
  return shard >= 0 ? { carries: 'rollouts', shard } : { carries: 'evidence', shard: null };
}

/** TOP-3: the shard of an issuer in an epoch. */
export function shardOf(manifest, issuer, epoch) {
  const d = sha256(encode(['sapo/shard/2', manifest.networkId, issuer, epoch]));
  return Number(d.readBigUInt64BE(0) % BigInt(manifest.shards));
}

/** TOP-3: refuse, by layer `topic`, a rollout on a topic other than that of its issuer's shard. */
export function requireShard(manifest, shard, issuer, epoch) {
  require(shard === shardOf(manifest, issuer, epoch), 'topic', `shard ${shard} is not the shard of its issuer in epoch ${epoch}`);
}

/** TIME-1: the epoch at a Unix time in milliseconds. */
export function epochAt(manifest, nowMs) {
  return Math.floor((nowMs - manifest.genesis * 1000) / (manifest.epoch_seconds * 1000));
}

/** TIME-2: refuse, by layer `window`, an epoch that is not open. */
export function requireOpen(manifest, nowMs, epoch) {
  const running = epochAt(manifest, nowMs);
  const latest = epochAt(manifest, nowMs + EARLY_MS) > running ? running + 1 : running;
  require(epoch >= running - 1 && epoch <= latest, 'window', `epoch ${epoch} is not open in epoch ${running}`);
}

/** TASK-1: index of the task in the catalogue, and seed of its item. */
export function assign(manifest, issuer, epoch, counter, k) {
  const d = sha256(encode(['sapo/task/2', manifest.networkId, issuer, epoch, counter, k]));
  const sum = manifest.tasks.reduce((total, task) => total + task.weight, 0);
  let t = Number(d.readBigUInt64BE(0) % BigInt(sum));
  const task = manifest.tasks.findIndex(({ weight }) => (t -= weight) < 0);
  return { task, seed: d.readUInt32BE(8) % 2 ** 31 };
}

function readTask(map) {
  const keys = ['config', 'dataset', ...Object.keys(TASK_BOUNDS)];
  require(isMapOf(map, keys, ['source']), 'manifest', 'a task has unknown or missing keys');
  requireBounds(map, TASK_BOUNDS);
  require(isText(map.get('dataset'), 64) && map.get('dataset') !== '', 'manifest', 'dataset');
  require(map.get('config') instanceof Map, 'manifest', 'config');
  if (map.has('source')) requireSource(map.get('source'));
  return Object.fromEntries(map);
}

function requireSource(map) {
  require(isMapOf(map, ['file', 'rows', 'answers', 'origin']), 'manifest', 'a source has unknown or missing keys');
  requireBounds(map, SOURCE_BOUNDS);
  require(isMatch(map.get('file'), /^[0-9a-f]{64}$/), 'manifest', 'file');
  require(ANSWERS.includes(map.get('answers')), 'manifest', 'answers');
  require(isText(map.get('origin'), 512), 'manifest', 'origin');
}

function requireBounds(map, bounds) {
  for (const [key, [least, most]] of Object.entries(bounds)) {
    const value = map.get(key);
    require(isInteger(value) && value >= least && value <= most, 'manifest', key);
  }
}

function isMatch(value, pattern) {
  return typeof value === 'string' && pattern.test(value);
}
