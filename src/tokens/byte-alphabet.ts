/**
 * The byte alphabet of byte-level BPE (GPT-2, `bytes_to_unicode`): every byte has one printable character, so that a
 * vocabulary can be written as JSON strings.
 *
 * Invariants: a bijection between 0..255 and 256 characters; bytes whose Latin-1 character is printable stand for
 * themselves, the other 68 take U+0100 onwards in ascending order.
 */

const printable = (byte: number): boolean =>
  (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || (byte >= 0xae && byte <= 0xff);

/** The character of each byte, indexed by the byte. */
export const BYTE_CHARACTERS: readonly string[] = (() => {
  let shifted = 0x100;
  return Array.from({ length: 256 }, (_, byte) => String.fromCharCode(printable(byte) ? byte : shifted++));
})();

/** Byte of a code unit; -1 where the unit is outside the alphabet. All characters lie below U+0144. */
const byteOfUnit: Int16Array = (() => {
  const table = new Int16Array(0x144).fill(-1);
  BYTE_CHARACTERS.forEach((character, byte) => (table[character.charCodeAt(0)] = byte));
  return table;
})();

/** The bytes that a vocabulary string stands for, or undefined when it has a character outside the alphabet. */
export function alphabetToBytes(token: string): Uint8Array | undefined {
  const bytes = new Uint8Array(token.length);
  for (let i = 0; i < token.length; i++) {
    const byte = byteOfUnit[token.charCodeAt(i)] ?? -1;
    if (byte < 0) return undefined;
    bytes[i] = byte;
  }
  return bytes;
}

/** The vocabulary string of some bytes; inverse of {@link alphabetToBytes}. */
export function bytesToAlphabet(bytes: Iterable<number>): string {
  let token = '';
  for (const byte of bytes) token += BYTE_CHARACTERS[byte & 0xff] ?? '';
  return token;
}
