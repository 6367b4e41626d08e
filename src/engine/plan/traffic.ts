/**
 * What a run of a plan must move and multiply, counted from its ops: the bytes of weights and state that it cannot do
 * without, and the multiply-adds. Divided by a machine's bandwidth and arithmetic they bound how fast the plan can be.
 *
 * Invariants: every op of the table has a rule; a byte is counted once however often a backend reads it, so the count is
 * never above what is really moved; activations are not counted, they stay in caches. One sequence a call.
 */
import type { OpFields, WeightDtype } from './ops.js';
import { WEIGHT_DTYPES } from './ops.js';
import type { PlanProgram } from '../backends/backend.js';
import { decodeProgram, type DecodedOp, type PlanHeader } from './decode.js';
import { mhcWidth } from './extents.js';

/** The call that is asked about: rows of one sequence from `position` on. */
export interface TrafficCall {
  readonly rows: number;
  readonly outRows: number;
  /** Position of the first row: tokens that the state holds already. */
  readonly position: number;
}

export interface PlanTraffic {
  /** Bytes of weights read. Of a mixture's experts as many as the rows can choose at most. */
  readonly weightBytes: number;
  /** Bytes of sequence state read: keys, values, recurrent states, tails. */
  readonly stateReadBytes: number;
  readonly stateWrittenBytes: number;
  /** Multiply-adds of matrices, attention and recurrences; elementwise work is not counted. */
  readonly multiplyAdds: number;
}

type Counts = { -readonly [K in keyof PlanTraffic]?: number };

export function planTraffic(program: PlanProgram, call: TrafficCall): PlanTraffic {
  const { header, ops } = decodeProgram(program.code);
  const counter = new TrafficCounter(header, program, call);
  const sum = { weightBytes: 0, stateReadBytes: 0, stateWrittenBytes: 0, multiplyAdds: 0 };
  for (const op of ops) {
    const { weightBytes = 0, stateReadBytes = 0, stateWrittenBytes = 0, multiplyAdds = 0 } = counter.count(op);
    sum.weightBytes += weightBytes;
    sum.stateReadBytes += stateReadBytes;
    sum.stateWrittenBytes += stateWrittenBytes;
    sum.multiplyAdds += multiplyAdds;
  }
  return sum;
}

const FLOAT = 4;
const BYTES: Readonly<Record<WeightDtype, number>> = { F32: 4, BF16: 2, F16: 2 };

class TrafficCounter {
  readonly #rows: number;
  readonly #outRows: number;
  readonly #position: number;
  /** Bytes of an element of a page. */
  readonly #element: number;
  readonly #dtypes: Int32Array;

  constructor({ kvType }: PlanHeader, { weightDtypes }: PlanProgram, { rows, outRows, position }: TrafficCall) {
    this.#rows = rows;
    this.#outRows = outRows;
    this.#position = position;
    this.#element = kvType === 1 ? 2 : 4;
    this.#dtypes = weightDtypes;
  }

  count(op: DecodedOp): Counts {
    const rows = this.#rows;
    switch (op.name) {
      case 'embed':
      case 'embedGreedy':
        return { weightBytes: rows * op.fields.width * this.#bytes(op.fields.weight) };
      case 'norm':
        return {
          weightBytes: this.#rowCount(op.fields.rows) === 0 || op.fields.gain < 0 ? 0 : op.fields.width * FLOAT,
        };
      case 'linear':
        return this.#linear(op);
      case 'conv': {
        const { channels, kernel, dilation } = op.fields;
        const tail = (kernel - 1) * dilation * channels * FLOAT;
        return {
          weightBytes: channels * kernel * FLOAT,
          stateReadBytes: tail,
          stateWrittenBytes: tail,
          multiplyAdds: rows * channels * kernel,
        };
      }
      case 'gatedDelta': {
        const { valueHeads, keyDim, valueDim } = op.fields;
        const state = valueHeads * keyDim * valueDim;
        // An element takes part in three products a token: with the key, the update, and with the query.
        return {
          weightBytes: 2 * valueHeads * FLOAT,
          stateReadBytes: state * FLOAT,
          stateWrittenBytes: state * FLOAT,
          multiplyAdds: rows * 3 * state,
        };
      }
      case 'kda': {
        const { heads, dim } = op.fields;
        const state = heads * dim * dim;
        return {
          weightBytes: (heads + heads * dim) * FLOAT,
          stateReadBytes: state * FLOAT,
          stateWrittenBytes: state * FLOAT,
          multiplyAdds: rows * 3 * state,
        };
      }
      case 'mhcWeights': {
        const scales = op.fields.iterations === 0 ? 1 : 3;
        return { weightBytes: this.#rowCount(op.fields.rows) === 0 ? 0 : (scales + mhcWidth(op.fields)) * FLOAT };
      }
      case 'groupedLinear': {
        const { groups, groupIn, groupOut, weight } = op.fields;
        const count = this.#rowCount(op.fields.rows);
        const matrix = groups * groupIn * groupOut;
        return count === 0 ? {} : { weightBytes: matrix * this.#bytes(weight), multiplyAdds: count * matrix };
      }
      case 'scoreRouter': {
        const { experts, topK, bias, table } = op.fields;
        if (table >= 0) return { weightBytes: rows * topK * FLOAT };
        return { weightBytes: bias >= 0 ? experts * FLOAT : 0 };
      }
      case 'layerNorm':
        return { weightBytes: this.#rowCount(op.fields.rows) === 0 ? 0 : 2 * op.fields.width * FLOAT };
      case 'gatedNorm':
        return { weightBytes: op.fields.dim * FLOAT };
      case 'attentionPrep': {
        const { kvHeads, dim, rotary } = op.fields;
        return {
          weightBytes: (2 * dim + rows * rotary) * FLOAT,
          stateWrittenBytes: rows * 2 * kvHeads * dim * this.#element,
        };
      }
      case 'indexPrep': {
        const { dim, rotary } = op.fields;
        return { weightBytes: (dim + rows * rotary) * FLOAT, stateWrittenBytes: rows * dim * this.#element };
      }
      case 'indexBlocks': {
        const { dim, block, rotary } = op.fields;
        const ended = this.#blocks(block, rows) - this.#blocks(block, 0);
        return {
          weightBytes: ended === 0 ? 0 : (dim + ended * rotary) * FLOAT,
          stateReadBytes: ended * block * dim * this.#element,
          stateWrittenBytes: ended * dim * this.#element,
        };
      }
      case 'indexSelect': {
        const { heads, dim, block, budgetBlocks } = op.fields;
        let most = 0;
        let scored = 0;
        for (let row = 1; row <= rows; row++) {
          const blocks = this.#blocks(block, row);
          if (blocks <= budgetBlocks) continue;
          most = blocks;
          scored += blocks;
        }
        return { stateReadBytes: most * dim * this.#element, multiplyAdds: scored * heads * dim };
      }
      case 'attention': {
        const { heads, kvHeads, dim } = op.fields;
        const { most, seen } = this.#tokens((row) => this.#visible(op.fields, row));
        return {
          stateReadBytes: most * 2 * kvHeads * dim * this.#element,
          multiplyAdds: seen * 2 * heads * dim,
        };
      }
      case 'ropeTail':
        return { weightBytes: (op.fields.rows === 1 ? this.#outRows : rows) * op.fields.rotary * FLOAT };
      case 'pool':
        return this.#pool(op.fields);
      case 'windowAttention':
        return this.#windowAttention(op.fields);
      case 'latentAttention': {
        const { heads, dim } = op.fields;
        const { most, seen } = this.#tokens((row) => this.#latents(op.fields, row));
        return { stateReadBytes: most * dim * this.#element, multiplyAdds: seen * 2 * heads * dim };
      }
      case 'latentStore':
        return { stateWrittenBytes: rows * op.fields.dim * this.#element };
      case 'moeUp': {
        const { gate, up, experts, topK, width, hidden } = op.fields;
        const matrix = Math.min(experts, rows * topK) * width * hidden;
        return {
          weightBytes: matrix * (this.#bytes(gate) + this.#bytes(up)),
          multiplyAdds: rows * topK * 2 * width * hidden,
        };
      }
      case 'moeDown': {
        const { down, experts, topK, width, hidden } = op.fields;
        return {
          weightBytes: Math.min(experts, rows * topK) * width * hidden * this.#bytes(down),
          multiplyAdds: rows * topK * width * hidden,
        };
      }
      case 'hcAct':
      case 'hcMix':
      case 'hcWrite':
      case 'router':
      case 'moeGroup':
      case 'moeCombine':
      case 'swiglu':
      case 'add':
      case 'pleGate':
      case 'pleAdd':
      case 'gather':
      case 'tap':
      case 'mhcSum':
      case 'mhcWrite':
        return {};
    }
  }

  #linear({ fields, segments }: Extract<DecodedOp, { name: 'linear' }>): Counts {
    const rows = this.#rowCount(fields.rows);
    if (rows === 0) return {};
    let weightBytes = 0;
    let outs = 0;
    for (const segment of segments) {
      weightBytes += segment.outs * fields.inWidth * this.#bytes(segment.weight);
      if (segment.bias >= 0) weightBytes += segment.outs * FLOAT;
      outs += segment.outs;
    }
    return { weightBytes, multiplyAdds: rows * outs * fields.inWidth };
  }

  /** What the field `rows` of an op stands for in this call. */
  #rowCount(field: number): number {
    return field === 1 ? this.#outRows : this.#rows * Math.max(1, field);
  }

  #pool({ channels, window, overlap, gain, rope, rotary }: OpFields<'pool'>): Counts {
    const width = (1 + overlap) * channels;
    const ring = (1 + overlap) * window * 2 * width * FLOAT;
    const ended = this.#blocks(window, this.#rows) - this.#blocks(window, 0);
    const weights = window * width + (gain >= 0 ? channels : 0) + (rope >= 0 ? ended * rotary : 0);
    return {
      weightBytes: ended === 0 ? 0 : weights * FLOAT,
      stateReadBytes: ring,
      stateWrittenBytes: ring + ended * channels * this.#element,
    };
  }

  #windowAttention({ heads, dim, window, block, budgetBlocks, select, sink }: OpFields<'windowAttention'>): Counts {
    const compressed = this.#tokens((row) => {
      if (block === 0) return 0;
      const blocks = this.#blocks(block, row);
      return select < 0 ? blocks : Math.min(blocks, budgetBlocks);
    });
    const near = this.#tokens((row) => Math.min(this.#position + row, window));
    return {
      weightBytes: sink >= 0 ? heads * FLOAT : 0,
      stateReadBytes: (Math.min(this.#position, window) * FLOAT + compressed.most * this.#element) * dim,
      stateWrittenBytes: window * dim * FLOAT,
      multiplyAdds: (near.seen + compressed.seen) * 2 * heads * dim,
    };
  }

  /** The greatest and the sum of a count over the rows of the call, which are numbered from 1. */
  #tokens(of: (row: number) => number): { readonly most: number; readonly seen: number } {
    let most = 0;
    let seen = 0;
    for (let row = 1; row <= this.#rows; row++) {
      const count = of(row);
      most = Math.max(most, count);
      seen += count;
    }
    return { most, seen };
  }

  #latents({ select, block, budgetBlocks, tail }: OpFields<'latentAttention'>, row: number): number {
    const tokens = this.#visible({ select, block, budgetBlocks }, row);
    return select < 0 || tail === 1 ? tokens : tokens - ((this.#position + row) % block);
  }

  /** Complete blocks once `rows` rows of the call are in. */
  #blocks(block: number, rows: number): number {
    return Math.floor((this.#position + rows) / block);
  }

  /** Tokens that the `row`-th row of the call (from 1) sees: all, or those of the chosen blocks and of the last one. */
  #visible(
    op: { readonly select: number; readonly block: number; readonly budgetBlocks: number },
    row: number,
  ): number {
    const tokens = this.#position + row;
    const blocks = Math.floor(tokens / op.block);
    if (op.select < 0 || blocks <= op.budgetBlocks) return tokens;
    return op.budgetBlocks * op.block + (tokens - blocks * op.block);
  }

  #bytes(weight: number): number {
    const dtype = WEIGHT_DTYPES[this.#dtypes[weight] ?? -1];
    return dtype === undefined ? 0 : BYTES[dtype];
  }
}
