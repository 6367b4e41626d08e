/** What /metrics tells of a model's sessions, out of what /health does. */
import type { SessionFigures } from '../observe/session-metrics.js';
import type { SessionsHealth } from './health.js';

const sum = (counts: Readonly<Record<string, number>>): number =>
  Object.values(counts).reduce((total, count) => total + count, 0);

/** undefined when no sessions are kept. */
export function sessionFigures(model: string, health: SessionsHealth): SessionFigures | undefined {
  const { mode, ram, disk, restores = {} } = health;
  if (mode === 'off') return undefined;
  return {
    model,
    held: {
      ...(ram && { ram: { bytes: ram.used_bytes, budgetBytes: ram.budget_bytes, entries: ram.entries } }),
      ...(disk && {
        disk: { bytes: disk.bytes, budgetBytes: disk.budget_bytes, entries: disk.checkpoints },
        queue: { bytes: disk.waiting_bytes, entries: disk.waiting + Number(disk.writing) },
      }),
    },
    restores,
    evicted: { ...(ram && { ram: ram.evicted }), ...(disk && { disk: sum(disk.evicted) }) },
    refused: {
      ...(ram && { ram: { no_room: ram.refused_no_room, fenced: ram.refused_fenced } }),
      ...(disk && { disk: disk.not_stored }),
    },
    written: disk
      ? {
          pages: disk.written.page_bytes,
          records: disk.written.record_bytes,
          fixed: disk.written.fixed_bytes,
          overhead: disk.written.overhead_bytes,
        }
      : {},
  };
}
