/**
 * Sigmoid tables of all 65,536 16-bit inputs, recognised by file name; their index of hashes; and float32 sigmoids of the
 * CPU back end. Tables compare entry by entry; NaN entries compare as NaN, because no law fixes their payload.
 */
import { createHash } from 'node:crypto';
import { basename } from 'node:path';
import { sigmoidTableBf16, sigmoidTableF16 } from '../../numerics/gate-tables.js';
import { cpuSigmoid, cpuSigmoidTable } from '../../numerics/mlx/cpu-sigmoid.js';
import { FLOAT_TYPES } from '../../numerics/mlx/float-type.js';
import type { Checker } from './checker.js';
import type { Fields } from './fields.js';
import { fieldFormat, opFormat, type LineJudge } from './format.js';

const F32 = FLOAT_TYPES.f32;
const ENTRIES = 0x10000;

const METAL_TABLES: Readonly<Record<string, () => Uint16Array>> = {
  'metal-sigmoid-bf16-eager': () => sigmoidTableBf16('standalone'),
  'metal-sigmoid-bf16-fused': () => sigmoidTableBf16('fused'),
  'metal-sigmoid-f16-model': sigmoidTableF16,
};

/** CPU tables: type, form (all forms agree) and the factor that the sigmoid is multiplied by. */
const CPU_TABLE = /^mlx-sigmoid-cpu-(bf16|f16)-(?:eager|(?:eager-mul|compiled-plain|compiled-roundtrip)-x([\d.]+))$/;

interface SigmoidTable {
  readonly type: 'bf16' | 'f16';
  readonly entries: Uint16Array;
}

/** The table that a file of this name must hold, or undefined for names that mean nothing here. */
export function sigmoidTableNamed(path: string): SigmoidTable | undefined {
  const name = basename(path).replace(/\.u16(?:\.gz)?$/, '');
  const metal = METAL_TABLES[name];
  if (metal !== undefined) return { type: name.includes('-bf16-') ? 'bf16' : 'f16', entries: metal() };
  const cpu = CPU_TABLE.exec(name);
  if (cpu === null) return undefined;
  const type = cpu[1] as 'bf16' | 'f16';
  return { type, entries: cpuSigmoidTable(FLOAT_TYPES[type], Number(cpu[2] ?? 1)) };
}

const isNaNBits = (bits: number, type: 'bf16' | 'f16'): boolean =>
  (bits & 0x7fff) > (type === 'bf16' ? 0x7f80 : 0x7c00);
const isFiniteBits = (bits: number, type: 'bf16' | 'f16'): boolean =>
  (bits & 0x7fff) < (type === 'bf16' ? 0x7f80 : 0x7c00);

/** One check an entry. */
export function judgeSigmoidTable(bytes: Buffer, table: SigmoidTable, check: Checker): void {
  if (bytes.length !== 2 * ENTRIES) {
    check.that(false, () => `${bytes.length} bytes, expected ${2 * ENTRIES}`);
    return;
  }
  for (let bits = 0; bits < ENTRIES; bits++) {
    const want = bytes.readUInt16LE(2 * bits);
    const got = table.entries[bits]!;
    const same = got === want || (isNaNBits(got, table.type) && isNaNBits(want, table.type));
    check.that(same, () => `input ${bits.toString(16)}: got ${got.toString(16)}, expected ${want.toString(16)}`);
  }
}

function sha256(words: Uint16Array): string {
  const bytes = Buffer.alloc(2 * words.length);
  words.forEach((word, i) => bytes.writeUInt16LE(word, 2 * i));
  return createHash('sha256').update(bytes).digest('hex');
}

function judgeIndex(line: Fields, check: Checker): void {
  const table = sigmoidTableNamed(line.text('file'));
  if (table === undefined) return line.refuse('file', 'the name of a known sigmoid table');
  const finite = table.entries.filter((_, bits) => isFiniteBits(bits, table.type));
  check.equal('sha256', sha256(table.entries), line.text('sha256'));
  check.equal('sha256 of finite inputs', sha256(finite), line.text('sha256_finite_only'));
}

export const sigmoidIndexFormat = fieldFormat(
  'mlx/sigmoid-index',
  ['file', 'sha256', 'sha256_finite_only'],
  () => judgeIndex,
);

const judgeF32: LineJudge = (line, check) => {
  const got = F32.toBits(cpuSigmoid(F32.fromBits(Number.parseInt(line.text('in'), 16)), F32));
  for (const form of ['eager', 'compiled']) check.equal(form, got, Number.parseInt(line.text(form), 16));
};

export const sigmoidF32Format = opFormat('mlx/sigmoid-f32', ['sigmoid_f32_cpu'], () => judgeF32);
