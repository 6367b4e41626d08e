/**
 * The memory plan of a model: what it will take, line by line, against what the machine has. It is printed before
 * anything is loaded, and a model that cannot fit is refused then, with the figures and what would lower them.
 *
 * Invariants: the plan counts what is held at the same time at full use (every sequence at its full context); tables of
 * which only rows are read are shown but not counted, since the page cache may drop them at any time.
 */
import { PlumblineError } from '../errors.js';
import { availableMemory, type MachineMemory } from './machine-memory.js';

/** What a model needs, in bytes. All figures are non-negative integers. */
export interface MemoryDemand {
  /** Weights that a forward pass reads, in memory or mapped: without them in memory every token waits for the disk. */
  readonly weightBytes: number;
  /** Tables of which single rows are read. */
  readonly gatheredBytes: number;
  /** Parts of a sequence's state whose size does not depend on its length. */
  readonly stateFixedBytes: number;
  readonly statePerTokenBytes: number;
  /** Activations and buffers of the plans. */
  readonly workspaceBytes: number;
  /** Tokens that one sequence may hold. */
  readonly contextTokens: number;
  /** Sequences that may be held at a time. */
  readonly sequences: number;
  /** States kept for later turns; default 0. `auto`: a share of what is left, so that it never makes a model too large. */
  readonly keptStateBytes?: number | 'auto' | undefined;
  /** States that wait to be written to a disk; default 0. */
  readonly waitingStateBytes?: number | undefined;
}

/** Flags by which a user can lower a line, as the command line calls them. */
export interface MemoryFlags {
  readonly context: string;
  readonly sequences: string;
  readonly keptStates: string;
}

const DEFAULT_FLAGS: MemoryFlags = {
  context: '--context',
  sequences: '--parallel',
  keptStates: '--session-ram-mib',
};

/** `auto` keeps states in a quarter of what is left, 2 GiB at most. */
const MOST_KEPT_BYTES = 2 * 1024 ** 3;

/** An allowance for what does not grow with the model: Node itself, the program's code, a tokenizer, the server. */
const RUNTIME_BYTES = 160 * 1024 * 1024;

export interface MemoryLine {
  readonly name: string;
  readonly bytes: number;
  /** false: shown, but not part of the sum. */
  readonly counted: boolean;
  readonly note?: string | undefined;
}

export interface MemoryPlan {
  readonly lines: readonly MemoryLine[];
  readonly neededBytes: number;
  readonly availableBytes: number;
  /** For states kept for later turns, `auto` settled. */
  readonly keptStateBytes: number;
  /** For states that wait to be written. */
  readonly waitingStateBytes: number;
  readonly machine: MachineMemory;
  readonly fits: boolean;
  /** What would make it fit, one advice a line; empty when it fits. */
  readonly advice: readonly string[];
}

export function planMemory(
  demand: MemoryDemand,
  machine: MachineMemory,
  flags: MemoryFlags = DEFAULT_FLAGS,
): MemoryPlan {
  const { contextTokens, sequences, waitingStateBytes = 0 } = demand;
  const perSequence = demand.stateFixedBytes + contextTokens * demand.statePerTokenBytes;
  const lines: MemoryLine[] = [
    { name: 'weights', bytes: demand.weightBytes, counted: true },
    {
      name: 'sequence states',
      bytes: sequences * perSequence,
      counted: true,
      note: `${sequences} x (${formatBytes(demand.stateFixedBytes)} + ${contextTokens} tokens x ${formatBytes(demand.statePerTokenBytes)})`,
    },
    { name: 'workspace', bytes: demand.workspaceBytes, counted: true },
    { name: 'runtime', bytes: RUNTIME_BYTES, counted: true },
  ];
  if (waitingStateBytes > 0) {
    lines.push({
      name: 'sessions being saved',
      bytes: waitingStateBytes,
      counted: true,
      note: 'at most; with --session-dir',
    });
  }
  const availableBytes = availableMemory(machine);
  const sum = (): number => lines.reduce((total, { bytes, counted }) => total + (counted ? bytes : 0), 0);
  const { keptStateBytes: kept = 0 } = demand;
  const left = Math.max(0, availableBytes - sum());
  const keptStateBytes = kept === 'auto' ? Math.min(MOST_KEPT_BYTES, Math.floor(left / 4)) : kept;
  if (keptStateBytes > 0) lines.push({ name: 'kept sessions', bytes: keptStateBytes, counted: true });
  if (demand.gatheredBytes > 0) {
    lines.push({ name: 'tables read by row', bytes: demand.gatheredBytes, counted: false, note: 'stay on disk' });
  }
  const neededBytes = sum();
  const fits = neededBytes <= availableBytes;
  return {
    lines,
    neededBytes,
    availableBytes,
    keptStateBytes,
    waitingStateBytes,
    machine,
    fits,
    advice: fits ? [] : adviceFor(demand, availableBytes, keptStateBytes, flags),
  };
}

/** @throws model_too_large with the figures, when the plan does not fit */
export function requireFit(plan: MemoryPlan): void {
  if (plan.fits) return;
  const figures = plan.lines.filter(({ counted }) => counted).map(({ name, bytes }) => `${name} ${formatBytes(bytes)}`);
  throw new PlumblineError(
    'model_too_large',
    `the model needs ${formatBytes(plan.neededBytes)} (${figures.join(', ')}) and ${formatBytes(plan.availableBytes)} of memory ` +
      `are available; ${plan.advice.join(' or ')}`,
  );
}

/** The plan as a small table for the terminal, without a line break at its end. */
export function formatMemoryPlan(plan: MemoryPlan): string {
  const { machine } = plan;
  const rows: { name: string; bytes: number; note?: string | undefined }[] = [
    ...plan.lines.map(({ name, bytes, counted, note }) => ({
      name,
      bytes,
      note: counted ? note : `${note ?? ''}; not counted`,
    })),
    { name: 'needed', bytes: plan.neededBytes },
    { name: 'available', bytes: plan.availableBytes, note: availabilityNote(machine) },
  ];
  const nameWidth = Math.max(...rows.map(({ name }) => name.length));
  const sizes = rows.map(({ bytes }) => formatBytes(bytes));
  const sizeWidth = Math.max(...sizes.map((size) => size.length));
  return rows
    .map(
      ({ name, note }, i) =>
        `  ${name.padEnd(nameWidth)}  ${(sizes[i] as string).padStart(sizeWidth)}${note === undefined ? '' : `  ${note}`}`,
    )
    .join('\n');
}

/** Binary units with three significant digits at least: 12 B, 5.00 KiB, 31.6 MiB, 246 GiB. */
export function formatBytes(bytes: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let value = bytes;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  const digits = unit === 0 || value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return `${value.toFixed(digits)} ${units[unit] as string}`;
}

function availabilityNote({ totalBytes, availableBytes, cgroup }: MachineMemory): string {
  const total = `of ${formatBytes(totalBytes)} in the machine`;
  if (cgroup !== undefined && cgroup.availableBytes < (availableBytes ?? totalBytes)) {
    return `${total}; the control group allows ${formatBytes(cgroup.limitBytes)}`;
  }
  return availableBytes === undefined ? `${total}; this system does not say what is free` : total;
}

/** The largest context at this number of sequences, and the largest number at this context, that would fit. */
function adviceFor(demand: MemoryDemand, available: number, kept: number, flags: MemoryFlags): string[] {
  const { contextTokens, sequences, stateFixedBytes, statePerTokenBytes } = demand;
  const held = demand.weightBytes + demand.workspaceBytes + (demand.waitingStateBytes ?? 0);
  const forStates = available - held - RUNTIME_BYTES - kept;
  const advice: string[] = [];
  const perSequence = stateFixedBytes + contextTokens * statePerTokenBytes;
  const room = forStates + kept - sequences * perSequence;
  if (kept > 0 && room >= 0) advice.push(`${flags.keptStates} ${Math.floor(room / 2 ** 20)} would fit`);
  const fewer = Math.floor(forStates / Math.max(perSequence, 1));
  if (fewer >= 1 && fewer < sequences) advice.push(`${flags.sequences} ${fewer} would fit`);
  const tokens = Math.floor((forStates / sequences - stateFixedBytes) / Math.max(statePerTokenBytes, 1));
  if (tokens >= 1 && tokens < contextTokens) advice.push(`${flags.context} ${tokens} would fit`);
  if (advice.length > 0) return advice;
  const alone = Math.floor((forStates - stateFixedBytes) / Math.max(statePerTokenBytes, 1));
  if (alone >= 1) return [`${flags.sequences} 1 with ${flags.context} ${Math.min(alone, contextTokens)} would fit`];
  return [
    `no setting of ${flags.context} or ${flags.sequences} is enough: free memory, or use a smaller or quantised model`,
  ];
}
