import assert from 'node:assert/strict';
import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { temporaryFolder } from '../../test/support/repository.js';
import { PlumblineError } from '../errors.js';
import { availableMemory, readMachineMemory } from './machine-memory.js';
import {
  formatBytes,
  formatMemoryPlan,
  planMemory,
  requireFit,
  type MemoryDemand,
  type MemoryPlan,
} from './memory-plan.js';

const GIB = 1024 ** 3;

/** A folder that looks like the root of a Linux system to `readMachineMemory`. */
function system(t: TestContext, files: Record<string, string>): string {
  const root = temporaryFolder(t, 'machine');
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), text);
  }
  return root;
}

const MEMINFO = 'MemTotal:       16777216 kB\nMemFree:         1000000 kB\nMemAvailable:    8388608 kB\n';

test('without control groups the system says what is available', (t) => {
  const machine = readMachineMemory(system(t, { 'proc/meminfo': MEMINFO }));
  assert.deepEqual(machine, { totalBytes: 16 * GIB, availableBytes: 8 * GIB, cgroup: undefined });
  assert.equal(availableMemory(machine), 8 * GIB);
});

test('the narrowest version 2 group on the way to the root binds', (t) => {
  const machine = readMachineMemory(
    system(t, {
      'proc/meminfo': MEMINFO,
      'proc/self/cgroup': '0::/outer/inner\n',
      'sys/fs/cgroup/outer/memory.max': `${4 * GIB}\n`,
      'sys/fs/cgroup/outer/memory.current': `${3 * GIB}\n`,
      'sys/fs/cgroup/outer/memory.stat': `anon 1\ninactive_file ${GIB}\n`,
      'sys/fs/cgroup/outer/inner/memory.max': 'max\n',
      'sys/fs/cgroup/outer/inner/memory.current': '1\n',
    }),
  );
  assert.deepEqual(machine.cgroup, { limitBytes: 4 * GIB, availableBytes: 2 * GIB });
  assert.equal(availableMemory(machine), 2 * GIB);
});

test('inside a container the group is at the root of the mount', (t) => {
  const machine = readMachineMemory(
    system(t, {
      'proc/meminfo': MEMINFO,
      'proc/self/cgroup': '12:cpu:/docker/abc\n4:memory:/docker/abc\n',
      'sys/fs/cgroup/memory/memory.limit_in_bytes': `${GIB}\n`,
      'sys/fs/cgroup/memory/memory.usage_in_bytes': `${GIB / 4}\n`,
    }),
  );
  assert.deepEqual(machine.cgroup, { limitBytes: GIB, availableBytes: 0.75 * GIB });
});

test('a version 1 group without a limit does not bind', (t) => {
  const machine = readMachineMemory(
    system(t, {
      'proc/meminfo': MEMINFO,
      'proc/self/cgroup': '4:memory:/\n',
      'sys/fs/cgroup/memory/memory.limit_in_bytes': '9223372036854771712\n',
      'sys/fs/cgroup/memory/memory.usage_in_bytes': '1\n',
    }),
  );
  assert.equal(machine.cgroup, undefined);
});

test('this machine has memory', () => {
  const machine = readMachineMemory();
  assert.ok(machine.totalBytes > 0 && availableMemory(machine) <= machine.totalBytes);
});

const DEMAND: MemoryDemand = {
  weightBytes: 2 * GIB,
  gatheredBytes: 95 * GIB,
  stateFixedBytes: 64 * 1024 ** 2,
  statePerTokenBytes: 32 * 1024,
  workspaceBytes: 128 * 1024 ** 2,
  contextTokens: 32768,
  sequences: 4,
};

const machineOf = (bytes: number) => ({ totalBytes: 24 * GIB, availableBytes: bytes });

function refusal(plan: MemoryPlan): string {
  let message = '';
  assert.throws(
    () => requireFit(plan),
    (error) => {
      assert.ok(error instanceof PlumblineError && error.code === 'model_too_large');
      message = error.message;
      return true;
    },
  );
  return message;
}

test('the plan adds what is held at the same time, and not what stays on disk', () => {
  const plan = planMemory(DEMAND, machineOf(8 * GIB));
  const states = 4 * (DEMAND.stateFixedBytes + 32768 * DEMAND.statePerTokenBytes);
  const runtime = plan.lines.find(({ name }) => name === 'runtime')?.bytes ?? 0;
  assert.equal(plan.neededBytes, DEMAND.weightBytes + states + DEMAND.workspaceBytes + runtime);
  assert.equal(plan.fits, true);
  requireFit(plan);
  const text = formatMemoryPlan(plan);
  assert.match(text, /^ {2}weights +2\.00 GiB$/m);
  assert.match(text, /sequence states +4\.25 GiB {2}4 x \(64\.0 MiB \+ 32768 tokens x 32\.0 KiB\)/);
  assert.match(text, /tables read by row +95\.0 GiB {2}stay on disk; not counted/);
  assert.match(text, /available +8\.00 GiB {2}of 24\.0 GiB in the machine$/);
});

test('advice that is followed makes the plan fit, and one step more does not', () => {
  const machine = machineOf(4 * GIB);
  const plan = planMemory(DEMAND, machine);
  assert.equal(plan.fits, false);
  const message = refusal(plan);
  assert.match(
    message,
    /needs 6\.5\d GiB .* and 4\.00 GiB of memory are available; --parallel 1 would fit or --context \d+ would fit/,
  );
  const context = Number(/--context (\d+)/.exec(message)?.[1]);
  assert.ok(planMemory({ ...DEMAND, contextTokens: context }, machine).fits);
  assert.ok(!planMemory({ ...DEMAND, contextTokens: context + 1 }, machine).fits);
  assert.ok(planMemory({ ...DEMAND, sequences: 1 }, machine).fits);
  assert.ok(!planMemory({ ...DEMAND, sequences: 2 }, machine).fits);
});

test('when one sequence alone does not fit, both settings are named together', () => {
  const machine = machineOf(2.5 * GIB);
  const message = refusal(planMemory(DEMAND, machine, { context: '-c', sequences: '-p', keptStates: '-k' }));
  const context = Number(/-p 1 with -c (\d+) would fit/.exec(message)?.[1]);
  assert.ok(planMemory({ ...DEMAND, sequences: 1, contextTokens: context }, machine).fits);
  assert.ok(!planMemory({ ...DEMAND, sequences: 1, contextTokens: context + 1 }, machine).fits);
});

test('when the weights alone do not fit, no setting is promised to help', () => {
  assert.match(refusal(planMemory(DEMAND, machineOf(GIB))), /no setting of --context or --parallel is enough/);
});

test('sizes read as people write them', () => {
  assert.deepEqual([0, 1023, 1024, 10240, 1024 ** 2 * 150, 1024 ** 4 * 2048].map(formatBytes), [
    '0 B',
    '1023 B',
    '1.00 KiB',
    '10.0 KiB',
    '150 MiB',
    '2.00 PiB',
  ]);
});

test('states that wait to be written have a line of their own, which no share for kept states takes', () => {
  const demand: MemoryDemand = {
    weightBytes: GIB,
    gatheredBytes: 0,
    stateFixedBytes: 0,
    statePerTokenBytes: 1024,
    workspaceBytes: 0,
    contextTokens: 1024,
    sequences: 1,
    keptStateBytes: 'auto',
  };
  const machine = { totalBytes: 4 * GIB, availableBytes: 4 * GIB, cgroup: undefined };
  const without = planMemory(demand, machine);
  const plan = planMemory({ ...demand, waitingStateBytes: GIB }, machine);
  assert.equal(plan.lines.find(({ name }) => name === 'sessions being saved')?.bytes, GIB);
  assert.deepEqual([plan.waitingStateBytes, without.waitingStateBytes], [GIB, 0]);
  assert.equal(without.keptStateBytes - plan.keptStateBytes, GIB / 4);
  const tight = planMemory({ ...demand, waitingStateBytes: 3 * GIB, contextTokens: 2 ** 20 }, machine);
  assert.match(tight.advice.join(), /no setting|would fit/);
  assert.equal(tight.fits, false);
});
