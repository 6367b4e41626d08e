/** What a bank holds, told by session, for commands and the API. */
import type { ResidentSession } from './admin.js';
import type { Bank, BankEntry } from './bank.js';
import { Holdings } from './holdings.js';
import type { StateValue } from './types.js';

/** Memory that several entries of a session share is counted once; what two sessions share, in both. */
export function residentSessions<S extends StateValue>(bank: Bank<S>): readonly ResidentSession[] {
  const bySession = new Map<string, BankEntry<S>[]>();
  for (const entry of bank.entries()) {
    bySession.set(entry.session, [...(bySession.get(entry.session) ?? []), entry]);
  }
  return [...bySession].map(([session, entries]) => {
    const holdings = new Holdings();
    for (const { capture } of entries) holdings.add(capture);
    const tokens = entries.reduce((most, { capture }) => Math.max(most, capture.tokens.length), 0);
    return { session, entries: entries.length, tokens, bytes: holdings.bytes };
  });
}
