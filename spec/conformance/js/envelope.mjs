// Section "Envelope": ENV-1 to ENV-8, SIG-1 to SIG-4.

import sodium from 'libsodium-wrappers';
import { decode, encode, isBytes, require, sha256 } from './encoding.mjs';

const MAX_ENVELOPE_BYTES = 2000;
const HEAD = Buffer.from('d2845826a20132045820', 'hex');
const PROTECTED = [4, 42];
const SIGNATURE_BYTES = 64;

/** The domain of rollouts. */
export const ROLLOUT_DOMAIN = 'sapo/rollout/2';

await sodium.ready;

/** Refuse, by layer `signature`, all signatures that break SIG-1 to SIG-4. libsodium accepts exactly the others. */
export function verifySignature(publicKey, message, signature) {
  require(publicKey.length === 32 && signature.length === SIGNATURE_BYTES, 'signature', 'a key or signature of wrong length');
  require(sodium.crypto_sign_verify_detached(signature, message, publicKey), 'signature', 'the signature is invalid');
}

/** ENV-1 to ENV-6: the parts of an envelope. Nothing is verified. */
export function readEnvelope(bytes) {
  require(bytes.length <= MAX_ENVELOPE_BYTES, 'size', 'an envelope of more than 2,000 bytes');
  const payloadAt = PROTECTED[1] + 1;
  const payloadEnd = bytes.length - SIGNATURE_BYTES - 2;
  require(payloadEnd > payloadAt, 'envelope', 'too short');
  require(bytes.subarray(0, HEAD.length).equals(HEAD), 'envelope', 'not the fixed start');
  require(bytes[PROTECTED[1]] === 0xa0, 'envelope', 'the unprotected header is not empty');
  require(bytes[payloadEnd] === 0x58 && bytes[payloadEnd + 1] === SIGNATURE_BYTES, 'envelope', 'not a signature field');
  const payload = decode(bytes.subarray(payloadAt, payloadEnd), 'envelope');
  require(isBytes(payload), 'envelope', 'the payload is not a byte string');
  return {
    bytes,
    protected: bytes.subarray(...PROTECTED),
    issuer: bytes.subarray(HEAD.length, PROTECTED[1]),
    payload,
    signature: bytes.subarray(payloadEnd + 2),
  };
}

/** ENV-7: the bytes that the signature covers, for the domain and the network id that the receiver expects. */
export function signedStructure(envelope, domain, networkId) {
  return encode(['Signature1', envelope.protected, encode([domain, networkId]), envelope.payload]);
}

/** ENV-8: the id of an envelope. */
export function envelopeId(envelope, domain, networkId) {
  return sha256(signedStructure(envelope, domain, networkId));
}

/** ENV-7. */
export function verifyEnvelope(envelope, domain, networkId) {
  verifySignature(envelope.issuer, signedStructure(envelope, domain, networkId), envelope.signature);
}

/** The envelope of `payload`, signed by the key pair of `seed` (32 bytes). */
export function signEnvelope(seed, payload, domain, networkId) {
  const { publicKey, privateKey } = sodium.crypto_sign_seed_keypair(seed);
  const beginning = Buffer.concat([HEAD, publicKey]);
  const structure = signedStructure({ protected: beginning.subarray(PROTECTED[0]), payload }, domain, networkId);
  const signature = sodium.crypto_sign_detached(structure, privateKey);
  return Buffer.concat([beginning, Buffer.from('a0', 'hex'), encode(payload), encode(signature)]);
}
