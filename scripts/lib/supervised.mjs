/**
 * How the scripts run what is heavy: under `plumbline supervise` of the compiled sources, so that a test or a bench that
 * hangs or takes the whole memory ends with a reason, and takes everything that it started with it.
 *
 * Invariants: output and exit status are those of the command, and nothing is added to them while it ends by itself; a
 * limit that this system cannot hold is said, and the others are held.
 */
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';

/**
 * Runs node with `args`; the exit status of this process becomes its exit status, or the code of the limit that ended it.
 * @param limits memoryMib, idleS (not at a terminal, where somebody watches and output keeps its colours), totalS
 * @param report file for what was measured; see src/supervise/report.ts
 */
export function runSupervised(root, args, { memoryMib, idleS, totalS, report }) {
  const main = join(root, 'dist', 'src', 'cli', 'main.js');
  if (!existsSync(main)) {
    console.error('plumbline: dist/src/cli/main.js is missing; run npm run build:ts first');
    process.exit(1);
  }
  const limits = ['--total-s', totalS];
  if (!process.stdout.isTTY) limits.push('--idle-s', idleS);
  if (process.platform === 'linux') limits.push('--memory-mib', memoryMib);
  else console.error(`plumbline: on ${process.platform} the memory of what runs here is not limited`);
  if (report !== undefined) limits.push('--report', report);
  const flags = ['supervise', '--log-level', 'warn', ...limits.map(String), '--', process.execPath, ...args];
  const child = spawn(process.execPath, [main, ...flags], { cwd: root, stdio: 'inherit' });
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => child.kill(signal));
  child.on('exit', (code, signal) => {
    process.exitCode = code ?? 1;
    if (signal) console.error(`plumbline: supervise ended by ${signal}`);
  });
}
