/**
 * Damaged programs and call blocks: the addon refuses them or takes them as they are, and never crashes. Whatever the
 * plan checker of the engine refuses, the addon refuses as well; it may refuse more (memory that is not there, limits of its
 * kernels). Damaged programs are loaded only; damaged call blocks are run, because what survives the check must be harmless.
 */
import assert from 'node:assert/strict';
import { after, describe, test } from 'node:test';
import type { Backend, MemoryBlock, PlanProgram } from '../../src/engine/backends/backend.js';
import { openCpuBackend } from '../../src/engine/backends/cpu/index.js';
import { callBlockBytes, callSizes, fillCallBlock, type CallSequence } from '../../src/engine/plan/call-block.js';
import { checkProgram } from '../../src/engine/plan/check.js';
import { CALL_HEADER, CALL_HEADER_WORDS, OPS, type OpName } from '../../src/engine/plan/ops.js';
import { WeightTable } from '../../src/engine/plan/weight-table.js';
import { PlumblineError } from '../../src/errors.js';
import { cpuAbsence } from '../support/cpu-backends.js';
import { seededRandom } from '../support/op-case-writer.js';
import { buildPlan, runOpCase, type OpCase } from '../support/op-case.js';
import { opCases } from '../support/op-cases.js';

const EXTREMES = [0, 1, -1, 2, 3, 7, 16, 255, 65_536, 0x7fffffff, -0x80000000, 0x3fffffff, 0x7fc00000, 0x7f800000];

type Random = () => number;
const below = (random: Random, bound: number): number => Math.floor(random() * bound);

/** A word near, far from, or unrelated to what stood there. */
function otherWord(random: Random, word: number, all: Int32Array): number {
  switch (below(random, 5)) {
    case 0:
      return EXTREMES[below(random, EXTREMES.length)]!;
    case 1:
      return (word ^ (1 << below(random, 32))) | 0;
    case 2:
      return (word + below(random, 9) - 4) | 0;
    case 3:
      return all[below(random, all.length)]!;
    default:
      return below(random, 2 ** 32) | 0;
  }
}

function damaged(random: Random, { code, weightAddresses, weightDtypes }: PlanProgram): PlanProgram {
  const words = random() < 0.05 ? code.slice(0, below(random, code.length)) : code.slice();
  for (let n = below(random, 3); n >= 0 && words.length > 0; n--) {
    const at = below(random, words.length);
    words[at] = otherWord(random, words[at]!, words);
  }
  const addresses = weightAddresses.slice();
  const dtypes = weightDtypes.slice();
  if (addresses.length > 0 && random() < 0.1) {
    const at = below(random, addresses.length);
    addresses[at] = [0, -1, 0.5, Number.NaN, 2 ** 60, addresses[at]! + 4096, Infinity][below(random, 7)]!;
    dtypes[at] = below(random, 5) - 1;
  }
  return { code: words, weightAddresses: addresses, weightDtypes: dtypes };
}

function accepts(load: () => unknown): boolean {
  try {
    load();
    return true;
  } catch (error) {
    assert.ok(error instanceof PlumblineError && error.code === 'plan_invalid', String(error));
    assert.ok(error.message.length > 10, error.message);
    return false;
  }
}

interface Loaded {
  readonly program: PlanProgram;
  readonly place: (bytes: Uint8Array, purpose: string) => MemoryBlock;
  readonly free: () => void;
}

function built(backend: Backend, given: OpCase): Loaded {
  const blocks: MemoryBlock[] = [];
  const place = (bytes: Uint8Array, purpose: string): MemoryBlock => {
    const block = backend.allocate(bytes.length, purpose);
    block.bytes.set(bytes);
    blocks.push(block);
    return block;
  };
  const table = new WeightTable();
  const { program } = buildPlan(given, backend, table, place);
  return { program, place, free: () => [...blocks, table].forEach((owner) => owner.free()) };
}

const casesOf = (op: OpName): OpCase[] =>
  opCases([op]).filter(
    ({ law, name }) => law.name === 'bf16-mtplx' && name.includes('shape 1') && !name.endsWith('ed'),
  );

describe('cpu fuzz', { skip: cpuAbsence() }, () => {
  const backend = openCpuBackend({ threads: 1 });
  after(() => backend.close());

  for (const op of Object.keys(OPS) as OpName[]) {
    test(`damaged programs of ${op} are refused or valid`, () => {
      let refused = 0;
      let accepted = 0;
      for (const given of casesOf(op)) {
        const { program, free } = built(backend, given);
        const random = seededRandom(`damage ${given.name}`);
        for (let i = 0; i < 1500; i++) {
          const candidate = damaged(random, program);
          const taken = accepts(() => {
            backend.load(candidate).free();
          });
          if (taken) {
            accepted++;
            assert.ok(accepts(() => checkProgram(candidate)), `only the addon takes ${candidate.code.join()}`); // prettier-ignore
          } else refused++;
        }
        free();
      }
      assert.ok(refused > 100 && accepted > 10, `${refused} refused, ${accepted} accepted`);
    });
  }

  for (const op of ['attention', 'windowAttention', 'latentAttention'] as const) {
    test(`selections of ${op} that nobody has made are harmless`, async () => {
      const random = seededRandom(`foreign selections of ${op}`);
      for (const given of casesOf(op).filter(({ ops: [first] }) => first!.fields.select !== -1)) {
        for (let i = 0; i < 200; i++) {
          const buffers = given.buffers.map((buffer) => {
            if (buffer.name !== 'select') return buffer;
            const contents = Int32Array.from(buffer.contents!, (word) =>
              random() < 0.5 ? EXTREMES[below(random, EXTREMES.length)]! : below(random, 9) - 1 + (word & 1),
            );
            return { ...buffer, contents };
          });
          await runOpCase(backend, { ...given, buffers });
        }
      }
    });
  }

  for (const op of ['embed', 'conv', 'attentionPrep', 'attention', 'gather', 'pool', 'windowAttention'] as const) {
    test(`damaged call blocks of ${op} are refused or harmless`, async () => {
      const given = casesOf(op)[0]!;
      const { program, place, free } = built(backend, given);
      const plan = backend.load(program);
      const workspace = place(new Uint8Array(4 * checkProgram(program).header.workspaceWords), 'workspace');
      const sequences = given.sequences.map(({ tokens, startPosition, outRows, slab, pages }): CallSequence => {
        const bytes = new Uint8Array(slab.buffer);
        return {
          tokens,
          startPosition,
          outRows,
          fixedIn: place(bytes, 'input slab').address,
          fixedOut: place(bytes, 'output slab').address,
          pages: pages.map((page) => place(page, 'page').address),
        };
      });
      const call = place(new Uint8Array(callBlockBytes(callSizes(sequences))), 'call');
      const ints = new Int32Array(call.bytes.buffer, call.bytes.byteOffset, call.bytes.length / 4);
      const random = seededRandom(`damage the call of ${op}`);
      let refused = 0;
      let ran = 0;
      for (let i = 0; i < 3000; i++) {
        fillCallBlock(call, sequences);
        for (let n = below(random, 3); n >= 0; n--) {
          const at = below(random, random() < 0.5 ? CALL_HEADER_WORDS : ints.length);
          if (at !== CALL_HEADER.indexOf('cancel')) ints[at] = otherWord(random, ints[at]!, ints);
        }
        try {
          assert.equal(await backend.execute({ plan, workspace, call }), 'done');
          ran++;
        } catch (error) {
          assert.ok(error instanceof PlumblineError && error.code === 'backend_failed', String(error));
          assert.match(error.message, /^call block: /);
          refused++;
        }
      }
      assert.ok(refused > 300 && ran > 100, `${refused} refused, ${ran} ran`);
      plan.free();
      free();
      assert.equal(backend.memory().allocated, 0);
    });
  }
});
